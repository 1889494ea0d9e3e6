"""A trained policy that moves the arm's ``tool0`` to a target.

It commands the motors only while there is a target, and gives way to everybody else who does.
"""

import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from geometry_msgs.msg import PointStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vdl_ros.arm.geometry import ArmGeometry, GeometryConfig
from vdl_ros.arm.joints import Motors
from vdl_ros.common.consent import check_program
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.owi535.arm_env import RATE, JointReading
from vdl_ros.envs.owi535.reach import FEATURES, MOTORS, MisfitError, check
from vdl_ros.envs.owi535.reach_runner import Act, ReachableSpace, ReachRunner
from vdl_ros.envs.registration import REACH
from vdl_ros.msg import ArmPose, TargetStatus
from vdl_ros.play.onnx_policy import ActionError, PolicyMetadata, load_onnx_policy
from vdl_ros.ros.arm.arm_topics import ArmConsent, MotorsPublisher
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.messages.joint_messages import FrameError, FrameTree, positions_of, seconds
from vdl_ros.ros.node_settings import PolicyConfig
from vdl_ros.ros.statistics.statistics import TopicStatistics

BASE = 'base_link'
# Maximum age of a pose of the camera that explains why joint states are missing, s.
POSE_S = 1.0


class ArmPolicy(NamedTuple):
    """A policy that may move the arm; ``act`` raises ActionError for outputs without use."""

    act: Act
    algorithm: str
    agent_steps: int


def open_policy(path: Path, geometry: ArmGeometry) -> ArmPolicy:
    """Return the policy of a checkpoint, or of *.onnx by ``export_policy``: its likeliest actions.

    Raises:
        ValueError: it cannot be read, or does not fit; one line that names the file.
    """
    if path.suffix == '.onnx':
        onnx = load_onnx_policy(path)
        found = onnx.metadata
        _check_graph(path, found)
        policy = ArmPolicy(onnx, found.algorithm, found.agent_steps)
        described, wrappers = found.description, found.environment.get('env_wrappers')
        observes_reward = found.last_reward is not None
    else:
        # Imported here because it takes seconds, and an ONNX file does not need it.
        import torch

        from vdl_ros.play.saved_policy import load_policy
        # More threads do not pay for one observation.
        torch.set_num_threads(1)
        saved = load_policy(path, env_id=REACH)
        policy = ArmPolicy(saved.act(), saved.train.algorithm, saved.agent_steps)
        described, wrappers = saved.described, saved.env.env_wrappers
        observes_reward = saved.policy.last_action_reward
    try:
        check(described, geometry)
    except MisfitError as error:
        raise SettingError(f'{path}: {error}') from None
    if wrappers:
        raise SettingError(f'{path}: env_wrappers: {quoted(wrappers)} is not allowed: the arm has '
                           'no wrappers')
    if observes_reward:
        raise SettingError(f'{path}: last_action_reward: true is not allowed: the reward is '
                           'known in the environment only')
    return policy


def _check_graph(path: Path, found: PolicyMetadata) -> None:
    """Check the inputs and outputs, which need not be what the file says of itself."""
    env_id = found.environment.get('env_id')
    if env_id != REACH and found.description.get('task') != REACH:
        raise SettingError(f'{path}: env_id is {quoted(env_id)}, not {REACH!r}')
    first, *more = found.observation.inputs
    wanted = (len(FEATURES),)
    if more or first.shape != wanted or first.dtype != 'float32':
        raise SettingError(f'{path}: {first.name}: {first.dtype} {list(first.shape)} is not '
                           f'float32 {list(wanted)}')
    if found.action.sizes != (3,) * len(MOTORS) or not found.action.shape:
        raise SettingError(f'{path}: action: {list(found.action.sizes)} choices are not 3 for '
                           f'each of {", ".join(MOTORS)}')


class PolicyNode(BaseNode):
    """Connects a :class:`ReachRunner` to targets, joint states and motors."""

    NAME = 'policy'
    SETTINGS = (PolicyConfig, GeometryConfig)

    def __init__(self) -> None:
        super().__init__()
        check_program(self.get_name())
        self._config = config = self.settings(PolicyConfig)
        geometry = self.settings(GeometryConfig).load()
        policy = open_policy(config.path, geometry)
        self._runner = ReachRunner(
            policy.act, geometry, ReachableSpace(geometry), stale_after=config.policy_stale_after,
            give_up_after=config.policy_give_up_after)
        self._consent = ArmConsent(
            self, lambda reason, moved: self._give_up(reason, command=not moved),
            viewer_timeout=config.policy_viewer_timeout)
        self._frames = FrameTree()
        self._reading: JointReading | None = None
        # A target whose frame is not known yet.
        self._unplaced: PointStamped | None = None
        self._unplaced_since = 0.0
        self._posed_at = -math.inf
        self._told = ''
        self._motors = MotorsPublisher(self)
        self._status = self.pub('arm/target_status')
        self._statistics = TopicStatistics(self, 'arm/joint_states')
        Diagnostics(self, self._health)
        self._subscribe()
        self.every(1.0 / RATE, self._update, simulated=True)
        self._report()
        self.get_logger().info(
            f'{config.path}: {policy.algorithm}, {policy.agent_steps:,} steps; waiting for a '
            'target')

    def _subscribe(self) -> None:
        self.sub('arm/target', self._on_target)
        self.sub('arm/joint_states', self._on_joint_states)
        self.sub('arm/pose', self._on_pose)
        self.sub('/tf', self._frames.add)
        self.sub('/tf_static', self._frames.add)

    def stop(self) -> None:
        """Switch the motors off, if they were commanded."""
        if self._runner.target is not None:
            self._give_up('policy was stopped')
            self._motors.wait_for_acks()

    def make_safe(self) -> None:
        if self._runner.target is not None:
            self._give_up('an error in this node')

    def _on_target(self, message: PointStamped) -> None:
        reason = self._consent.ask() or _why_not(message)
        if reason:
            self.get_logger().warning(f'target refused: {reason}', throttle_duration_sec=1.0)
            # The old target does not count any more either, except if somebody else commands.
            self._give_up(f'target refused: {reason}', command=self._runner.target is not None)
            return
        self._unplaced = message
        # Until its frame is known, the runner keeps the motors off.
        self._unplaced_since = self.now()
        self._runner.set_target(np.full(3, math.nan), self._unplaced_since)
        self._place()

    def _place(self) -> str:
        """Give the runner the place of a new target; return why it is not known, or ''."""
        if self._unplaced is None:
            return ''
        point, frame = self._unplaced.point, self._unplaced.header.frame_id
        try:
            place = self._frames.point([point.x, point.y, point.z], frame, BASE)
        except FrameError as error:
            return str(error)
        self._unplaced = None
        self._runner.set_target(place, self.now(), self._unplaced_since)
        return ''

    def _on_joint_states(self, message: JointState) -> None:
        self._statistics.received(message.header.stamp)
        with self.refusing('joint states'):
            self._reading = JointReading(
                positions_of(message), np.array(seconds(message.header.stamp)))

    def _on_pose(self, message: ArmPose) -> None:
        self._posed_at = time.monotonic()

    def _update(self) -> None:
        self._consent.update()
        waiting = self._place()
        if self._runner.target is None:
            return
        try:
            directions = self._runner.update(
                self.now(), self._reading, waiting or self._why_paused())
        except ActionError as error:
            self._give_up(f'policy: {error}')
            return
        self._motors.send(Motors.of(directions.tolist()))
        if self._runner.target is None:
            self._unplaced = None
            self._consent.end()
        self._report()

    def _why_paused(self) -> str:
        """Return why motors have to be off now although there is a target, or ''."""
        if self._consent.pause:
            return self._consent.pause
        old = self._reading is None or (
            self.now() - float(self._reading.stamp) > self._config.policy_stale_after)
        if old and time.monotonic() - self._posed_at < POSE_S:
            return 'the pose by camera is too uncertain'
        return ''

    def _give_up(self, reason: str, *, command: bool = True) -> None:
        """Forget the target; ``command``: switch the motors off."""
        self._unplaced = None
        self._consent.end()
        self._runner.give_up(reason)
        if command:
            self._motors.send(Motors())
        self._report()

    def _report(self) -> None:
        """Publish the state; log each new reason."""
        runner = self._runner
        target = np.full(3, math.nan) if runner.target is None else runner.target
        self._status.publish(TargetStatus(
            header=Header(stamp=self.stamp(), frame_id=BASE),
            state=runner.state, reason=runner.reason, target=target.tolist(),
            distance=runner.distance, success=runner.success,
            reaction_time=runner.reaction_time, time_to_target=runner.time_to_target))
        if runner.reason and runner.reason != self._told:
            self.get_logger().warning(f'motors off: {runner.reason}')
        self._told = runner.reason

    def _health(self) -> Health:
        runner = self._runner
        return runner.reason, {
            'state': runner.state, 'distance': f'{runner.distance:.3f}',
            'success': runner.success, 'reaction_time': f'{runner.reaction_time:.2f}',
            'time_to_target': f'{runner.time_to_target:.2f}',
            'emergency_stop': self._consent.stopped}



def _why_not(target: PointStamped) -> str:
    """Return why a target is refused, or ''."""
    point = target.point
    if not target.header.frame_id:
        return f'frame_id: empty, {BASE} for example'
    if not all(math.isfinite(each) for each in (point.x, point.y, point.z)):
        return 'point: not finite'
    return ''


main = PolicyNode.main
