"""Move ``tool0`` to a place in ``base_link``: ``ros2 run vdl_ros go_to X Y Z``, in m.

Subscribes: ``robot_description``, ``arm/joint_states``, ``arm/trajectory_status``,
``arm/emergency_stop_state``. Publishes: ``arm/joint_trajectory``, one point for
``arm_controller``, and on SIGINT or SIGTERM one without a point, which stops the arm. With
``--policy`` the node ``policy`` moves instead: subscribes ``arm/target_status``, publishes
``arm/target``, and ``arm/motors`` once, all off, if the policy is not to go on with it.

Exit status: 0 when it is there; 1 if no arm answers, or the trajectory was aborted or replaced; 2
if the place cannot be reached.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import PointStamped
from rclpy.executors import Executor
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.arm.geometry import ArmGeometry, Positions, parse
from vdl_ros.arm.joints import Motors
from vdl_ros.arm.kinematics import InverseKinematics, JointGoal, Kinematics
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.common.command_line import number_above_0
from vdl_ros.msg import EmergencyStopState, JointTrajectoryStatus, TargetStatus
from vdl_ros.ros.arm.arm_topics import MotorsPublisher, wait_for_acks
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import positions_of, trajectory_message
from vdl_ros.ros.process import EXIT_OK, set_up, spin_until

EXIT_FAILED = 1
# How long the nodes of an arm may take to answer, and how often what is new of that is said, s.
ANSWER_S, PATIENCE_S = 30.0, 2.0
# A trajectory that does not start, or a target that nobody takes, is sent again after this time,
# s: the receiver may have discovered this node after it was sent.
REPEAT_S = 2.0
# How long a policy may take to answer; motors may be off for so long, such as while joint states
# are missing, before it is a failure, s.
POLICY_S, PAUSED_S = 60.0, 5.0
# Joint angles, rad, and targets, m, that differ by less are the same.
SAME = 1e-6
Place = tuple[float, float, float]


class GoToNode(BaseNode):
    """Knows the arm's state, and brings ``tool0`` to ``place``, m, by a trajectory."""

    NAME = 'go_to'

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place
        self.description = ''
        self.measured: Positions | None = None
        # Number of measurements so far.
        self.measurements = 0
        self.status: JointTrajectoryStatus | None = None
        self.stop_state: EmergencyStopState | None = None
        # Whether it was engaged since this was set to False.
        self.was_stopped = False
        self._trajectories = self.pub('arm/joint_trajectory')
        self.sub('robot_description', self._on_description)
        self.sub('arm/joint_states', self._on_joint_states)
        self.sub('arm/trajectory_status', self._on_status)
        self.sub('arm/emergency_stop_state', self._on_stop_state)

    @property
    def missing(self) -> str:
        """Return what is not known yet, '' if nothing is."""
        known = {'robot_description': self.description, 'arm/trajectory_status': self.status,
                 'a subscriber of arm/joint_trajectory':
                     self._trajectories.get_subscription_count(),
                 'arm/emergency_stop_state': self.stop_state,
                 'arm/joint_states': self.measured is not None,
                 # The view of a launch is ready later than the arm.
                 'sign of life of the viewer': not self.is_blocked}
        return ', '.join(name for name, value in known.items() if not value)

    @property
    def is_blocked(self) -> bool:
        """Return whether the controller would only pause, because its viewer is missing."""
        return self.status is not None and self.status.state == 'idle' and bool(
            self.status.reason)

    def _on_description(self, message: String) -> None:
        self.description = message.data

    def _on_joint_states(self, message: JointState) -> None:
        with self.refusing('joint states'):
            self.measured = positions_of(message)
            self.measurements += 1

    def _on_status(self, message: JointTrajectoryStatus) -> None:
        self.status = message

    def _on_stop_state(self, message: EmergencyStopState) -> None:
        self.stop_state = message
        self.was_stopped |= message.engaged or message.neutral_required

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Move, and return the exit status; ``stop`` stops the arm."""
        log = self.get_logger()
        if not self._wait(executor, stop):
            return EXIT_FAILED
        assert self.measured is not None
        assert self.stop_state is not None
        if self.stop_state.engaged:
            log.error('emergency stop: release it first')
            return EXIT_FAILED
        self.was_stopped = False
        with set_up():
            geometry = parse(self.description)
            planner = InverseKinematics(
                geometry, CollisionChecker(build_scene(geometry)).collides)
            goal = planner.plan(self._place, self.measured)
        log.info(', '.join(f'{name} {value:.3f}' for name, value in zip(
            goal.names, goal.positions, strict=True)) + f' rad, in {goal.duration:.1f} s or more')
        reason = self._follow(goal, executor, stop)
        if reason:
            log.error(reason)
            return EXIT_FAILED
        away = _distance(geometry, self.measured, self._place)
        log.info(f'tool0 is {1000.0 * away:.0f} mm from {_text(self._place)} m')
        return EXIT_OK

    def _wait(self, executor: Executor, stop: threading.Event) -> bool:
        """Wait until all is known, and say what is missing; return whether it is."""
        log, said, end = self.get_logger(), '', math.inf
        while not spin_until(lambda: not self.missing, executor, stop, PATIENCE_S):
            if stop.is_set():
                return False
            missing, now = self.missing, time.monotonic()
            if missing != said:
                log.info(f'waiting for {missing}: is arm.launch.py running?')
                said, end = missing, now + ANSWER_S
            elif now > end:
                log.error(f'no {missing} for {ANSWER_S:g} s: is arm.launch.py running?')
                return False
        return True

    def _follow(self, goal: JointGoal, executor: Executor, stop: threading.Event) -> str:
        """Send a trajectory and wait for its end; return why it did not end well, or ''."""

        def state() -> str:
            return str(self.status.state) if self.status is not None else ''

        for _ in range(round(ANSWER_S / REPEAT_S)):
            self.status = None
            self._trajectories.publish(
                trajectory_message(goal.names, [goal.positions], [goal.duration]))
            started = spin_until(lambda: self.was_stopped or state() in ('running', 'aborted'),
                                 executor, stop, REPEAT_S)
            if self.was_stopped and not state():
                # Only a new request may move the arm afterwards.
                return 'emergency stop'
            if started or stop.is_set():
                break
        else:
            return 'arm_controller did not start the trajectory'
        spin_until(lambda: state() != 'running', executor, stop)
        # The first measurement may be older than the end.
        count = self.measurements + 2
        if state() == 'done' and not spin_until(
                lambda: self.measurements >= count, executor, stop, PATIENCE_S):
            return 'the trajectory is done, but arm/joint_states stopped'
        if stop.is_set():
            # By a trajectory that is refused.
            self._trajectories.publish(JointTrajectory())
            wait_for_acks(self._trajectories)
            return 'interrupted: the arm was stopped'
        assert self.status is not None
        if state() == 'done' and not _is_to(self.status, goal):
            return 'the trajectory was replaced by another one'
        return {'done': '', 'aborted': f'aborted: {self.status.reason}'}.get(
            state(), 'the trajectory was lost: arm_controller was started again')


def _text(place: Place) -> str:
    return f'({", ".join(f"{each:g}" for each in place)})'


def _is_to(status: JointTrajectoryStatus, goal: JointGoal) -> bool:
    targets = dict(zip(status.name, status.target, strict=False))
    return set(targets) == set(goal.names) and all(
        abs(targets[name] - position) < SAME
        for name, position in zip(goal.names, goal.positions, strict=True))


def _distance(geometry: ArmGeometry, measured: Positions, place: Place) -> float:
    """Return how far ``tool0`` is from ``place``, m; a joint that is not measured is at 0."""
    straight = geometry.upright
    here = np.where(np.isfinite(measured), measured, straight)
    return float(np.linalg.norm(Kinematics(geometry).pose(here)[:3, 3] - place))


class TargetLostError(Exception):
    """The policy does not follow this target any more; the arm may be somebody else's."""


class PolicyGoToNode(BaseNode):
    """Asks the node ``policy`` to bring ``tool0`` to ``place``, m, within ``timeout`` s."""

    NAME = 'go_to'

    def __init__(self, place: Place, timeout: float) -> None:
        super().__init__()
        self._place, self._timeout = place, timeout
        self._status: TargetStatus | None = None
        self._targets = self.pub('arm/target')
        self._motors = MotorsPublisher(self)
        self.sub('arm/target_status', self._on_status)

    @property
    def _is_answered(self) -> bool:
        """Whether there is a policy, which can be stopped too."""
        return self._status is not None and all(
            each.get_subscription_count() for each in (self._targets, self._motors.publisher))

    def _send(self) -> None:
        """Send the target; what was known of another one is forgotten."""
        self._status = None
        message = PointStamped(header=Header(stamp=self.stamp(), frame_id='base_link'))
        message.point.x, message.point.y, message.point.z = self._place
        self._targets.publish(message)

    def _switch_off(self) -> None:
        """Switch all motors off, as a person does: the policy gives its target up."""
        # Before it has the target it would not give it up.
        wait_for_acks(self._targets)
        self._motors.send(Motors())
        self._motors.wait_for_acks()

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
            if not is_taken and now > due:
                self._send()
                due = now + REPEAT_S
            executor.spin_once(timeout_sec=0.1)
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
    parser = argparse.ArgumentParser(
        prog='go_to', description='Move tool0 to a place in base_link; arm.launch.py runs.')
    for axis, way in (('x', 'forward'), ('y', 'to the left'), ('z', 'up')):
        parser.add_argument(axis, type=float, help=f'{way}, m')
    parser.add_argument('--policy', action='store_true',
                        help='move by the policy that arm.launch.py policy:=NAME runs')
    parser.add_argument('--timeout', type=number_above_0, default=60.0, metavar='S',
                        help='with --policy: its longest time, s (60)')
    return parser


def main(args: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if args is None else args)
    count = words.index('--ros-args') if '--ros-args' in words else len(words)
    options = _parser().parse_args(words[:count])
    place = (options.x, options.y, options.z)
    if options.policy:
        return PolicyGoToNode.main(words[count:], place, options.timeout)
    return GoToNode.main(words[count:], place)
