"""Joint trajectory controller for the arm's on/off motors: topic and action.

It commands the motors only while a trajectory runs, and gives way to a person's commands.
"""

import math

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Header
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.arm.control.controller import ControllerConfig, TrajectoryController
from vdl_ros.arm.control.trajectory import TrajectoryError
from vdl_ros.arm.geometry import GeometryConfig, Positions
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.common.consent import check_program
from vdl_ros.msg import JointTrajectoryStatus
from vdl_ros.ros.arm.arm_topics import ArmConsent, MotorsPublisher
from vdl_ros.ros.arm.trajectory_action import TrajectoryAction
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.messages.joint_messages import markers, positions_of, seconds
from vdl_ros.ros.statistics.statistics import TopicStatistics

RATE_HZ = 50.0
# Updates between two messages on trajectory_status while a trajectory runs.
REPORT_EVERY = 10
# How far ahead the start of a trajectory may lie, s, except that of a goal: its client lives.
MAX_WAIT_S = 60.0


class ArmControllerNode(BaseNode):
    """Connects a :class:`TrajectoryController` to trajectories, joint states and motors."""

    NAME = 'arm_controller'
    SETTINGS = (ControllerConfig, GeometryConfig)

    def __init__(self) -> None:
        super().__init__()
        check_program(self.get_name())
        geometry = self.settings(GeometryConfig).load()
        config = self.settings(ControllerConfig)
        self._controller = TrajectoryController(geometry, config)
        self._timeout = config.goal_timeout
        # When a trajectory that waits for its start last did so with a viewer, s.
        self._watched_at = -math.inf
        self._consent = ArmConsent(
            self, lambda reason, moved: self._cancel(reason, command=not moved),
            yields_to_programs=False, viewer_timeout=config.viewer_timeout)
        self._kinematics = Kinematics(geometry)
        self._measured: Positions | None = None
        self._measured_at: float | None = None
        # What the latest status says of it.
        self._reported_missing = ''
        self._waiting: JointTrajectory | None = None
        self._followed_at = -math.inf
        self._updates = 0
        self._motors = MotorsPublisher(self)
        self._status = self.pub('arm/trajectory_status')
        self._target = self.pub('arm/trajectory_markers')
        self._statistics = TopicStatistics(self, 'arm/joint_states')
        Diagnostics(self, self._health)
        self.sub('arm/joint_trajectory', self._on_trajectory)
        self.sub('arm/joint_states', self._on_joint_states)
        self._action = TrajectoryAction(
            self, self._controller, self._take, self._cancel,
            is_busy=lambda: self._waiting is not None or self._controller.state == 'running',
            input_age=lambda: self._consent.input_age)
        self.every(1.0 / RATE_HZ, self._update, simulated=True)
        self._report()

    def stop(self) -> None:
        self._cancel('arm_controller was stopped')
        self._motors.wait_for_acks()

    def make_safe(self) -> None:
        self._cancel('an error in this node')

    def _on_trajectory(self, message: JointTrajectory) -> None:
        self._action.replaced('a trajectory on arm/joint_trajectory')
        self._take(message, MAX_WAIT_S)

    def _take(self, message: JointTrajectory, max_wait: float = math.inf) -> None:
        """Start a trajectory now or at its time, or refuse it."""
        was_running, wait = self._controller.state == 'running', (
            seconds(message.header.stamp) - self.now())
        reason = self._consent.ask() or (
            f'its start is {wait:.0f} s ahead, more than {max_wait:g} s'
            if wait > max_wait else '')
        if reason:
            self._waiting = None
            self._controller.refuse(reason)
            self._report_refusal(was_running)
        # A stamp in the future is the start time; zero or a past stamp means now.
        elif wait > 0.0:
            self._waiting = message
            self.get_logger().info(f'trajectory waits {wait:.3g} s for its start')
            self._report()
        else:
            self._start(message)

    def _start(self, message: JointTrajectory) -> None:
        """Start a trajectory, or reject it as a whole; a rejection stops the arm as well."""
        self._waiting = None
        was_running = self._controller.state == 'running'
        names = list(message.joint_names)
        points = [list(point.positions) for point in message.points]
        times = [seconds(point.time_from_start) for point in message.points]
        try:
            self._controller.start(names, points, times)
        except TrajectoryError:
            self._report_refusal(was_running)
            return
        self._updates = 0
        self.get_logger().info(
            f'trajectory of {len(points)} points, {times[-1]:g} s, for {", ".join(names)}')
        self._show(names, points)
        self._report()

    def _cancel(self, reason: str, *, command: bool = True) -> None:
        """End the trajectory that runs and one that waits; ``command``: switch the motors off."""
        was_waiting, self._waiting = self._waiting is not None, None
        if self._controller.state == 'running':
            self._controller.cancel(reason)
            self._end(command=command)
        elif was_waiting:
            self._controller.refuse(reason)
            self._report_refusal(False)

    def _report_refusal(self, was_running: bool) -> None:
        self.get_logger().error(f'trajectory refused: {self._controller.reason}')
        self._finish(command=was_running)

    def _on_joint_states(self, message: JointState) -> None:
        self._statistics.received(message.header.stamp)
        with self.refusing('joint states'):
            self._measured = positions_of(message)
            self._measured_at = seconds(message.header.stamp)

    def _update(self) -> None:
        """Command the motors while a trajectory runs; report on its goal."""
        self._follow()
        self._action.update()

    def _follow(self) -> None:
        self._consent.update()
        before, self._followed_at = self._followed_at, self.now()
        if self._followed_at < before:
            self._cancel('time went backward')
        missing = self._consent.missing_viewer
        if self._waiting is None or not missing:
            self._watched_at = self._followed_at
        elif self._followed_at - self._watched_at > self._timeout:
            self._cancel(f'{missing} for {self._timeout:g} s')
        if self._waiting is not None and seconds(self._waiting.header.stamp) <= self.now():
            self._start(self._waiting)
        if self._controller.state == 'idle' and missing != self._reported_missing:
            self._report()
        if self._controller.state != 'running':
            return
        command = self._controller.update(
            self.now(), self._measured, self._measured_at, self._consent.pause)
        if self._controller.state != 'running':
            self._end()
            return
        self._motors.send(Motors.of(command.tolist()))
        self._updates += 1
        if self._updates % REPORT_EVERY == 0:
            self._report()

    def _end(self, *, command: bool = True) -> None:
        """Report the result of a trajectory that ran; ``command``: switch the motors off."""
        self._finish(command=command)
        if self._controller.state == 'done':
            self.get_logger().info('trajectory done')
        else:
            self.get_logger().warning(f'trajectory aborted: {self._controller.reason}')

    def _finish(self, *, command: bool) -> None:
        """Report that no trajectory runs; ``command``: switch the motors off."""
        if command:
            self._motors.send(Motors())
        if self._waiting is None:
            self._consent.end()
        self._show([], [])
        self._report()

    def _show(self, names: list[str], points: list[list[float]]) -> None:
        """Publish markers of the tool's path; joints outside the trajectory keep their angle."""
        current = (np.zeros(len(JOINTS)) if self._measured is None
                   else np.nan_to_num(self._measured))
        poses = np.tile(current, (len(points), 1))
        for column, name in enumerate(names):
            poses[:, JOINTS.index(name)] = [point[column] for point in points]
        path = self._kinematics.pose(poses)[:, :3, 3]
        self._target.publish(markers(path, self.stamp()))

    def _report(self) -> None:
        target, error = self._controller.target, self._controller.error
        moved = [index for index in range(len(JOINTS)) if not np.isnan(target[index])]
        self._reported_missing = self._consent.missing_viewer
        state, reason = self._controller.state, self._controller.reason
        if self._waiting is not None and state != 'running':
            state, reason = 'waiting', 'for its start'
        elif state == 'idle':
            reason = self._reported_missing
        self._status.publish(JointTrajectoryStatus(
            header=Header(stamp=self.stamp()), state=state, reason=reason,
            progress=self._controller.progress,
            name=[JOINTS[index] for index in moved], target=target[moved].tolist(),
            error=error[moved].tolist()))

    def _health(self) -> Health:
        return '', {'state': self._controller.state, 'reason': self._controller.reason,
                    'progress': f'{self._controller.progress:.2f}',
                    'emergency_stop': self._consent.stopped}


main = ArmControllerNode.main
