"""Move ``tool0`` to a place in ``base_link``: ``ros2 run vdl_ros go_to X Y Z``, in m.

Subscribes: ``robot_description``, ``arm/joint_states``, ``arm/trajectory_status``,
``arm/emergency_stop_state``. Publishes: ``arm/joint_trajectory``, one point for
``arm_controller``, and on SIGINT or SIGTERM one without a point, which stops the arm. With
``--policy`` the node ``policy`` moves instead (``ros/arm/target_request.py``).

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
from rclpy.executors import Executor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.arm.geometry import ArmGeometry, Positions, parse
from vdl_ros.arm.kinematics import JointGoal, Kinematics, Planner
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.common.command_line import number_above_0
from vdl_ros.msg import EmergencyStopState, JointTrajectoryStatus
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import wait_for_acks
from vdl_ros.ros.arm.target_request import EXIT_FAILED, TargetRequest, TargetRequestNode
from vdl_ros.ros.messages.joint_messages import positions_of, trajectory_message
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import EXIT_OK, make_executor, run_node, set_up, spin_until, take_settings

SETTINGS = (ProcessConfig,)
# How long the nodes of an arm may take to answer, and how often what is new of that is said, s.
ANSWER_S, PATIENCE_S = 30.0, 2.0
# A trajectory that does not start is sent again after this time, s: the controller may have
# discovered this node after it was sent.
REPEAT_S = 2.0
# Joint angles that differ by less are the same, rad.
SAME = 1e-6


class GoToNode(Node):
    """Knows the arm's state and sends trajectories.

    Raises:
        ValueError: a parameter that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('go_to')
        _, self.process = take_settings(self, *SETTINGS)
        self.description = ''
        self.measured: Positions | None = None
        # Number of measurements so far.
        self.measurements = 0
        self.status: JointTrajectoryStatus | None = None
        self.stop_state: EmergencyStopState | None = None
        # Whether it was engaged since this was set to False.
        self.was_stopped = False
        self._trajectories = self.create_publisher(
            JointTrajectory, 'arm/joint_trajectory', qos.TOPICS['arm/joint_trajectory'])
        self.create_subscription(
            String, 'robot_description', self._on_description, qos.TOPICS['robot_description'])
        qos.create_subscription(
            self, JointState, 'arm/joint_states', self._on_joint_states)
        self.create_subscription(JointTrajectoryStatus, 'arm/trajectory_status', self._on_status,
                                 qos.TOPICS['arm/trajectory_status'])
        self.create_subscription(
            EmergencyStopState, 'arm/emergency_stop_state', self._on_stop_state,
            qos.TOPICS['arm/emergency_stop_state'])

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

    def start(self, goal: JointGoal) -> None:
        """Send a trajectory to ``goal``."""
        self.status = None
        self._trajectories.publish(
            trajectory_message(goal.names, [goal.positions], [goal.duration]))

    def stop(self) -> None:
        """Stop the arm by a trajectory that is refused."""
        self._trajectories.publish(JointTrajectory())
        wait_for_acks(self._trajectories)

    def _on_description(self, message: String) -> None:
        self.description = message.data

    def _on_joint_states(self, message: JointState) -> None:
        try:
            self.measured = positions_of(message)
        except ValueError as error:
            self.get_logger().error(f'joint states refused: {error}', throttle_duration_sec=5.0)
        else:
            self.measurements += 1

    def _on_status(self, message: JointTrajectoryStatus) -> None:
        self.status = message

    def _on_stop_state(self, message: EmergencyStopState) -> None:
        self.stop_state = message
        self.was_stopped |= message.engaged or message.neutral_required


class Move:
    """Brings ``tool0`` of the arm of a node to a place, float64 [3], m."""

    def __init__(self, place: Sequence[float]) -> None:
        self._place = tuple(place)

    def __call__(self, node: GoToNode, stop: threading.Event) -> int:
        """Move, and return the exit status; ``stop`` stops the arm."""
        executor = make_executor(node.process.executor)
        executor.add_node(node)
        try:
            return self._move(node, executor, stop)
        finally:
            executor.remove_node(node)

    def _move(self, node: GoToNode, executor: Executor, stop: threading.Event) -> int:
        log = node.get_logger()
        if not self._wait(node, executor, stop):
            return EXIT_FAILED
        assert node.measured is not None
        assert node.stop_state is not None
        if node.stop_state.engaged:
            log.error('emergency stop: release it first')
            return EXIT_FAILED
        node.was_stopped = False
        with set_up():
            geometry = parse(node.description)
            planner = Planner(geometry, CollisionChecker(build_scene(geometry)).collides)
            goal = planner.plan(self._place, node.measured)
        log.info(', '.join(f'{name} {value:.3f}' for name, value in zip(
            goal.names, goal.positions, strict=True)) + f' rad, in {goal.duration:.1f} s or more')
        reason = self._follow(node, goal, executor, stop)
        if reason:
            log.error(reason)
            return EXIT_FAILED
        away = _distance(geometry, node.measured, self._place)
        log.info(f'tool0 is {1000.0 * away:.0f} mm from '
                 f'({", ".join(f"{each:g}" for each in self._place)}) m')
        return EXIT_OK

    @staticmethod
    def _wait(node: GoToNode, executor: Executor, stop: threading.Event) -> bool:
        """Wait until all is known, and say what is missing; return whether it is."""
        log, said, end = node.get_logger(), '', math.inf
        while not spin_until(lambda: not node.missing, executor, stop, PATIENCE_S):
            if stop.is_set():
                return False
            missing, now = node.missing, time.monotonic()
            if missing != said:
                log.info(f'waiting for {missing}: is arm.launch.py running?')
                said, end = missing, now + ANSWER_S
            elif now > end:
                log.error(f'no {missing} for {ANSWER_S:g} s: is arm.launch.py running?')
                return False
        return True

    @staticmethod
    def _follow(
        node: GoToNode, goal: JointGoal, executor: Executor, stop: threading.Event,
    ) -> str:
        """Send a trajectory and wait for its end; return why it did not end well, or ''."""

        def state() -> str:
            return str(node.status.state) if node.status is not None else ''

        for _ in range(round(ANSWER_S / REPEAT_S)):
            node.start(goal)
            started = spin_until(lambda: node.was_stopped or state() in ('running', 'aborted'),
                                 executor, stop, REPEAT_S)
            if node.was_stopped and not state():
                # Only a new request may move the arm afterwards.
                return 'emergency stop'
            if started or stop.is_set():
                break
        else:
            return 'arm_controller did not start the trajectory'
        spin_until(lambda: state() != 'running', executor, stop)
        # The first measurement may be older than the end.
        count = node.measurements + 2
        if state() == 'done' and not spin_until(
                lambda: node.measurements >= count, executor, stop, PATIENCE_S):
            return 'the trajectory is done, but arm/joint_states stopped'
        if stop.is_set():
            node.stop()
            return 'interrupted: the arm was stopped'
        assert node.status is not None
        if state() == 'done' and not _is_to(node.status, goal):
            return 'the trajectory was replaced by another one'
        return {'done': '', 'aborted': f'aborted: {node.status.reason}'}.get(
            state(), 'the trajectory was lost: arm_controller was started again')


def _is_to(status: JointTrajectoryStatus, goal: JointGoal) -> bool:
    """Return whether the status is that of a trajectory to ``goal``."""
    targets = dict(zip(status.name, status.target, strict=False))
    return set(targets) == set(goal.names) and all(
        abs(targets[name] - position) < SAME
        for name, position in zip(goal.names, goal.positions, strict=True))


def _distance(geometry: ArmGeometry, measured: Positions, place: Sequence[float]) -> float:
    """Return how far ``tool0`` is from ``place``, m; a joint that is not measured is at 0."""
    straight = geometry.upright
    here = np.where(np.isfinite(measured), measured, straight)
    return float(np.linalg.norm(Kinematics(geometry).pose(here)[:3, 3] - place))


def _parser() -> argparse.ArgumentParser:
    """Return the command line."""
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
    """Run the node."""
    words = list(sys.argv[1:] if args is None else args)
    count = words.index('--ros-args') if '--ros-args' in words else len(words)
    options = _parser().parse_args(words[:count])
    place = (options.x, options.y, options.z)
    if options.policy:
        return run_node('go_to', TargetRequestNode, TargetRequest(place, options.timeout),
                        SETTINGS, words[count:])
    return run_node('go_to', GoToNode, Move(place), SETTINGS, words[count:])


if __name__ == '__main__':
    raise SystemExit(main())
