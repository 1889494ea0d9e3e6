"""Move ``tool0`` to a place in ``base_link``, in m: ``ros2 run vdl_ros go_to X Y Z``; or joints.

Subscribes: ``robot_description``, ``arm/joint_states``, ``arm/trajectory_status``, and what
:class:`ArmConsent` needs. It sends a goal to the action of ``arm_controller``, which stops the arm
if the goal is cancelled (SIGINT, SIGTERM) or this program is gone. With ``--policy`` the policy of
``arm.launch.py`` moves instead: subscribes ``arm/target_status``, publishes ``arm/target``, and
``arm/motors`` once, all off, if the policy is not to go on with it.

Exit status: 0 when it is there; 1 if no arm answers, or the trajectory was aborted or replaced; 2
if the place cannot be reached.
"""

import argparse
import contextlib
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from action_msgs.msg import GoalStatus
from control_msgs.action import FollowJointTrajectory
from geometry_msgs.msg import PointStamped
from rclpy.action import ActionClient
from rclpy.executors import Executor
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String

from vdl_ros.arm.geometry import ArmGeometry, Positions, parse
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.kinematics import InverseKinematics, JointGoal, Kinematics
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.common.command_line import OneLineParser, number_above_0
from vdl_ros.common.consent import STOOD_STILL
from vdl_ros.common.quoting import quoted
from vdl_ros.msg import JointTrajectoryStatus, TargetStatus
from vdl_ros.ros.arm.arm_topics import ArmConsent, MotorsPublisher, wait_for_acks
from vdl_ros.ros.arm.trajectory_action import ACTION
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import positions_of, trajectory_message
from vdl_ros.ros.process import EXIT_OK, call_back, set_up, spin_until, split_words

EXIT_FAILED = 1
# How long the nodes of an arm may take to answer, and how often what is new of that is said, s.
ANSWER_S, PATIENCE_S = 30.0, 2.0
# A goal or target that nobody takes is sent again after this time, s: the receiver may have
# discovered this node after it was sent.
REPEAT_S = 2.0
# Longest wait for the end of a goal that is cancelled, s.
CANCEL_S = 2.0
# How long a policy may take to answer; motors may be off for so long, such as while joint states
# are missing, before it is a failure, s.
POLICY_S, PAUSED_S = 60.0, 5.0
# Joint angles, rad, and targets, m, that differ by less are the same.
SAME = 1e-6
Place = tuple[float, float, float]
Joints = dict[str, float]
_INTERRUPTED = 'interrupted: the arm was stopped'
_REMEDIES = {'emergency stop': 'emergency stop: ros2 run vdl_ros stop release ends it'}


class StartConsent(ArmConsent):
    """The consent of a person who starts this program; ``lost`` says why it is lost, or ''."""

    def __init__(self, node: BaseNode, sender: str = '') -> None:
        self.lost = ''
        super().__init__(node, self._on_withdrawn, yields_to_programs=False,
                         waits_for_driver=True, sender=sender)
        self.ask()

    def _on_withdrawn(self, reason: str, _: bool) -> None:
        self.lost = _REMEDIES.get(reason, reason)


class GoToNode(BaseNode):
    """Knows the arm's state, and brings ``tool0`` to a place, m, or joints to positions, rad."""

    NAME = 'go_to'

    def __init__(self, aim: Place | Joints) -> None:
        super().__init__()
        self._aim = aim
        self.description = ''
        self.measured: Positions | None = None
        # Number of measurements so far.
        self.measurements = 0
        self.status: JointTrajectoryStatus | None = None
        self._has_run = False
        self._consent = StartConsent(self)
        self._client = ActionClient(self, FollowJointTrajectory, ACTION)
        self.sub('robot_description', self._on_description)
        self.sub('arm/joint_states', self._on_joint_states)
        self.sub('arm/trajectory_status', self._on_status)

    @property
    def missing(self) -> str:
        """Return what is not known yet, '' if nothing is."""
        known = {'robot_description': self.description, 'arm/trajectory_status': self.status,
                 ACTION: self._client.server_is_ready(),
                 'arm/emergency_stop_state': self._consent.stop_state,
                 'arm/joint_states': self.measured is not None,
                 # The view of a launch is ready later than the arm.
                 'sign of life of the viewer': not self.is_blocked}
        return ', '.join(name for name, value in known.items() if not value)

    @property
    def is_blocked(self) -> bool:
        """Return whether the controller would only pause, because its viewer is missing."""
        return self.status is not None and self.status.state == 'idle' and bool(self.status.reason)

    def _on_description(self, message: String) -> None:
        self.description = message.data

    def _on_joint_states(self, message: JointState) -> None:
        with self.refusing('joint states'):
            self.measured = positions_of(message)
            self.measurements += 1

    def _on_status(self, message: JointTrajectoryStatus) -> None:
        self.status = message
        self._has_run |= message.state == 'running'

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Move, and return the exit status; ``stop`` stops the arm."""
        log = self.get_logger()
        if not self._wait(executor, stop):
            return EXIT_FAILED
        assert self.measured is not None
        # In a thread: meanwhile this one must notice what ends the consent.
        with set_up(), ThreadPoolExecutor(1) as pool:
            geometry = parse(self.description)
            planned = pool.submit(_plan, geometry, self._aim, self.measured)
            spin_until(planned.done, executor, stop)
            goal = planned.result()
        log.info(', '.join(f'{name} {value:.3f}' for name, value in zip(
            goal.names, goal.positions, strict=True)) + f' rad, in {goal.duration:.1f} s or more')
        reason = self._follow(goal, executor, stop)
        if reason:
            log.error(reason)
            return EXIT_FAILED
        log.info(_where(geometry, self.measured, self._aim))
        return EXIT_OK

    def _wait(self, executor: Executor, stop: threading.Event) -> bool:
        """Wait until all is known, and say what is missing; return whether it is."""
        log, said, end = self.get_logger(), '', math.inf
        while not spin_until(
                lambda: self._consent.lost or not self.missing, executor, stop, PATIENCE_S):
            if stop.is_set():
                return False
            missing, now = self.missing, time.monotonic()
            if missing != said:
                log.info(f'waiting for {missing}: is arm.launch.py running?')
                said, end = missing, now + ANSWER_S
            elif now > end:
                log.error(f'no {missing} for {ANSWER_S:g} s: is arm.launch.py running?')
                return False
        if self._consent.lost:
            log.error(self._consent.lost)
        return not self._consent.lost

    def _follow(self, goal: JointGoal, executor: Executor, stop: threading.Event) -> str:
        """Send the goal and wait for its end; return why it did not end well, or ''."""
        request = FollowJointTrajectory.Goal(trajectory=trajectory_message(
            goal.names, [goal.positions], [goal.duration]))
        handle = self._send(request, executor, stop)
        if handle is None:
            return self._consent.lost or (_INTERRUPTED if stop.is_set()
                                          else 'arm_controller did not take the goal')
        call, is_over = handle.get_result_async(), False
        try:
            spin_until(lambda: call.done() or self._consent.lost or self._is_lost, executor, stop)
            is_over = call.done()
        finally:
            if not is_over:
                cancelled = handle.cancel_goal_async()
                spin_until(cancelled.done, executor, threading.Event(), CANCEL_S)
        if not is_over:
            if stop.is_set():
                return _INTERRUPTED
            return (f'aborted: {self._consent.lost}' if self._consent.lost
                    else 'the trajectory was lost: arm_controller was started again')
        answer = call.result()
        if answer.status != GoalStatus.STATUS_SUCCEEDED:
            return f'aborted: {answer.result.error_string}'
        # The first measurement may be older than the end.
        count = self.measurements + 2
        if not spin_until(lambda: self.measurements >= count, executor, stop, PATIENCE_S):
            return 'the trajectory is done, but arm/joint_states stopped'
        return ''

    @property
    def _is_lost(self) -> bool:
        return self._has_run and self.status is not None and self.status.state == 'idle'

    def _send(self, request: Any, executor: Executor, stop: threading.Event) -> Any:
        """Send a goal until it is taken; return its handle, None if it is not."""
        calls: list[Any] = []
        for _ in range(round(ANSWER_S / REPEAT_S)):
            # A person may have stopped the arm while the goal was planned.
            call_back(executor, 0.0)
            self._consent.update()
            if self._consent.lost or stop.is_set():
                break
            self._has_run = False
            calls.append(self._client.send_goal_async(request))
            spin_until(lambda: self._consent.lost or any(call.done() for call in calls), executor,
                       stop, REPEAT_S)
            taken = [call.result() for call in calls if call.done() and call.result().accepted]
            if taken:
                # The newest: one that was accepted late is replaced by it.
                return taken[-1]
            if calls[-1].done():
                # Refused while a client that was killed is still known.
                spin_until(lambda: self._consent.lost, executor, stop, REPEAT_S)
        # One that is taken after all is cancelled.
        for call in calls:
            call.add_done_callback(
                lambda done: done.result().accepted and done.result().cancel_goal_async())
        spin_until(lambda: all(call.done() for call in calls), executor, threading.Event(),
                   CANCEL_S)
        return None


def _plan(geometry: ArmGeometry, aim: Place | Joints, measured: Positions) -> JointGoal:
    planner = InverseKinematics(geometry, CollisionChecker(build_scene(geometry)).collides)
    if isinstance(aim, dict):
        return planner.plan_joints(aim, measured)
    return planner.plan(aim, measured)


def _text(place: Place) -> str:
    return f'({", ".join(f"{each:g}" for each in place)})'


def _where(geometry: ArmGeometry, measured: Positions, aim: Place | Joints) -> str:
    """Return a line about where the arm is; a joint that is not measured is taken to be at 0."""
    if isinstance(aim, dict):
        return ', '.join(f'{name} {measured[JOINTS.index(name)]:.3f}' for name in aim) + ' rad'
    here = np.where(np.isfinite(measured), measured, geometry.upright)
    away = float(np.linalg.norm(Kinematics(geometry).pose(here)[:3, 3] - aim))
    return f'tool0 is {1000.0 * away:.0f} mm from {_text(aim)} m'


class TargetLostError(Exception):
    """The policy does not follow this target any more; the arm may be somebody else's."""


class PolicyGoToNode(BaseNode):
    """Asks a policy to bring ``tool0`` to ``place``, m, within ``timeout`` s."""

    NAME = 'go_to'

    def __init__(self, place: Place, timeout: float) -> None:
        super().__init__()
        self._place, self._timeout = place, timeout
        self._status: TargetStatus | None = None
        self._targets = self.pub('arm/target')
        self._motors = MotorsPublisher(self, person=True)
        # Before the policy has the target; then the policy looks after itself.
        self._consent = StartConsent(self, self._motors.sender)
        self.sub('arm/target_status', self._on_status)

    @property
    def _is_answered(self) -> bool:
        """Whether there is a policy, which can be stopped too."""
        return self._status is not None and all(
            each.get_subscription_count() for each in (self._targets, self._motors.publisher))

    def _send(self, place: Place) -> None:
        """Send a target; what was known of another one is forgotten."""
        self._status = None
        message = PointStamped(header=Header(stamp=self.stamp(), frame_id='base_link'))
        message.point.x, message.point.y, message.point.z = place
        self._targets.publish(message)

    def _switch_off(self) -> None:
        """Switch all motors off, as a person does: the policy gives its target up."""
        # Before it has the target it would not give it up.
        wait_for_acks(self._targets)
        self._motors.send(Motors())
        # A robot without motors of that topic hears this one.
        self._send((math.nan,) * 3)
        wait_for_acks(self._targets, self._motors.publisher)

    def _on_status(self, message: TargetStatus) -> None:
        self._status = message

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Ask, and return the exit status; the motors are off if it was given up here."""
        log = self.get_logger()
        if not spin_until(lambda: self._is_answered, executor, stop, PATIENCE_S):
            log.info('waiting for a policy, such as that of arm.launch.py policy:=reach')
        if not spin_until(lambda: self._is_answered, executor, stop, POLICY_S):
            if not stop.is_set():
                log.error(f'no policy for {POLICY_S:g} s: is arm.launch.py policy:=reach running?')
            return EXIT_FAILED
        try:
            reason = self._follow(executor, stop)
        except TargetLostError as ended:
            log.error(str(ended))
            return EXIT_FAILED
        except BaseException:
            self._switch_off()
            raise
        if reason:
            self._switch_off()
            log.error(reason)
            return EXIT_FAILED
        assert self._status is not None
        log.info(f'tool0 is {1000.0 * self._status.distance:.0f} mm from {_text(self._place)} m, '
                 f'after {self._status.time_to_target:.1f} s; the policy holds it there')
        return EXIT_OK

    def _follow(self, executor: Executor, stop: threading.Event) -> str:
        """Send the target until it is taken, and wait; return why to give it up, '' if reached."""
        end = time.monotonic() + self._timeout
        due, paused_since, is_taken = 0.0, math.inf, False
        while not stop.is_set():
            now = time.monotonic()
            self._consent.update()
            if self._consent.lost == STOOD_STILL and due:
                # Of a target that it may have taken the policy sees by itself what else ends it.
                return f'motors off: {self._consent.lost}'
            if not is_taken and self._consent.lost:
                raise TargetLostError(self._consent.lost)
            if not is_taken and now > due:
                self._send(self._place)
                due = now + REPEAT_S
            call_back(executor, 0.1)
            status = self._status
            if now > end:
                away = '' if status is None else f', {100.0 * status.distance:.1f} cm away'
                return f'not reached within {self._timeout:g} s{away}: motors off'
            if status is None:
                continue
            is_mine = all(abs(mine - other) < SAME for mine, other in zip(
                self._place, status.target, strict=True))
            is_taken |= is_mine
            if status.state == 'idle' and status.reason:
                raise TargetLostError(f'motors off: {status.reason}')
            if is_taken and not is_mine:
                raise TargetLostError('another target has replaced this one')
            if is_mine and status.success:
                return ''
            if status.state != 'paused':
                paused_since = math.inf
            elif (paused_since := min(paused_since, now)) < now - PAUSED_S:
                return f'motors off: {status.reason}'
        return 'interrupted: motors off'


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='go_to', usage='go_to [-h] [--policy] [--timeout S] X Y Z | JOINT=RAD ...',
        description='Move tool0 to a place in base_link, or joints; arm.launch.py runs.')
    parser.add_argument('aim', nargs='+', help='the place, m: X forward, Y to the left, Z up; or '
                        'positions of joints, rad, such as base=0.5 shoulder=-0.3')
    parser.add_argument('--policy', action='store_true',
                        help='move by the policy that arm.launch.py policy:=NAME runs')
    parser.add_argument('--timeout', type=number_above_0, default=60.0, metavar='S',
                        help='with --policy: its longest time, s (60)')
    return parser


def _aim(parser: argparse.ArgumentParser, words: Sequence[str]) -> Place | Joints:
    with contextlib.suppress(ValueError):
        if not any('=' in word for word in words):
            x, y, z = map(float, words)
            return x, y, z
        joints = {name: float(value) for name, value in (word.split('=') for word in words)}
        if len(joints) == len(words):
            return joints
    return parser.error(f'{quoted(" ".join(words))} is not allowed: JOINT=RAD ..., or X Y Z, m')


def main(args: Sequence[str] | None = None) -> int:
    parser = _parser()
    options, words = split_words(parser, args)
    aim = _aim(parser, options.aim)
    if not options.policy:
        return GoToNode.main(words, aim)
    if isinstance(aim, dict):
        parser.error('--policy takes a place, X Y Z, m')
    return PolicyGoToNode.main(words, aim, options.timeout)
