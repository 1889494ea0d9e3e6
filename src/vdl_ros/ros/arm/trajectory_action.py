"""The action ``arm/follow_joint_trajectory`` (control_msgs/FollowJointTrajectory) of a controller.

A goal is a trajectory as on ``arm/joint_trajectory``; a newer one of either kind replaces it. A
goal whose client is gone is aborted: nobody could cancel it.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTolerance
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.duration import Duration
from rclpy.event_handler import PublisherEventCallbacks, QoSPublisherMatchedInfo
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Header
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vdl_ros.arm.control.controller import TrajectoryController
from vdl_ros.arm.control.trajectory import GoalTolerances, ToleranceError
from vdl_ros.arm.geometry import Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import seconds

ACTION = 'arm/follow_joint_trajectory'
# What rclpy tells of a topic by its name is of the remapped one, but not of a service.
_GOALS, _FEEDBACK = f'{ACTION}/_action/send_goal', f'{ACTION}/_action/feedback'
_FEEDBACK_S = 0.2  # period of the feedback, s
_QUEUED_S = 0.1  # for so long a goal may wait in a process that runs, s
# A client that has not taken its feedback for this time is gone, s.
_CLIENT_TIMEOUT_S = 2.0
# How long the result of a goal is kept for a client that has not asked for it yet, s.
_RESULT_S = 30
_Result = FollowJointTrajectory.Result


class _Server(ActionServer):
    """An action server whose goals end when the caller says so.

    The callback that rclpy runs for a goal would have to wait for its end, which keeps the
    executor of this process busy. ``node`` refuses what callbacks and tasks raise: a task that
    raises ends the process of an events executor (rclpy issue 1641).
    """

    _node: BaseNode

    async def execute(self, taken_data: Any) -> None:
        with self._node.refusing(ACTION):
            await super().execute(taken_data)

    async def _execute_goal(self, execute_callback: Any, goal_handle: Any) -> None:
        with self._node.refusing(ACTION):
            await super()._execute_goal(execute_callback, goal_handle)

    def notify_execute(self, goal_handle: Any, execute_callback: Any) -> None:
        """Leave the goal executing."""

    def finish(self, handle: Any, end: Callable[[], None], result: Any) -> None:
        """Let ``end`` set the final state of a goal, and send the result."""
        def execute(_: Any) -> Any:
            end()
            return result

        super().notify_execute(handle, execute)


@dataclass
class _Goal:
    """The goal that the arm follows, and what is known of its client."""

    handle: Any
    tolerances: GoalTolerances
    duration: float
    starts: int
    taken_at: float
    departed: int
    ends_at: float | None = None


class TrajectoryAction:
    """Serves the action; the node gives it time by :meth:`update`.

    ``start`` starts a trajectory, or refuses it with a reason in ``controller.reason``; ``stop``
    ends it with a reason, motors off; ``is_busy``: it runs, or waits for its time;
    ``input_age``: for how long a goal that is taken may have waited, s.
    """

    def __init__(
        self, node: BaseNode, controller: TrajectoryController,
        start: Callable[[JointTrajectory], None], stop: Callable[[str], None],
        is_busy: Callable[[], bool], input_age: Callable[[], float],
    ) -> None:
        self._node, self._controller = node, controller
        self._start, self._stop, self._is_busy = start, stop, is_busy
        self._input_age = input_age
        self._goal: _Goal | None = None
        self._reported_at = 0.0
        # How many receivers of the feedback have ever left, and when the last one did, s. Which of
        # them has sent a goal cannot be known.
        self._departed, self._departed_at = 0, -math.inf
        # One of them did not take it; DDS may still know it.
        self._is_one_dead = False
        # Of its own, not of the server, because it tells whether the client takes the messages;
        # with the profile of rcl_action.
        self._feedback = node.create_publisher(
            FollowJointTrajectory.Impl.FeedbackMessage, _FEEDBACK, QoSProfile(depth=10),
            event_callbacks=PublisherEventCallbacks(matched=self._on_matched))
        self._server = _Server(
            node, FollowJointTrajectory, ACTION, execute_callback=self._never,
            goal_callback=self._on_request, handle_accepted_callback=self._on_goal,
            cancel_callback=self._on_cancel, result_timeout=_RESULT_S)

    def _on_matched(self, matched: QoSPublisherMatchedInfo) -> None:
        departed = matched.total_count - matched.current_count
        if departed > self._departed:
            self._departed, self._departed_at = departed, time.monotonic()

    def replaced(self, by: str) -> None:
        """End the goal, if there is one, motors off, because another trajectory follows."""
        if self._goal is not None:
            reason = f'replaced by {by}'
            self._stop(reason)
            self._abort(self._goal, _Result.GOAL_TOLERANCE_VIOLATED, reason)

    def update(self) -> None:
        """Check the client and the tolerances, send feedback, and the result at the end."""
        goal, now = self._goal, time.monotonic()
        if goal is None:
            return
        if self._is_busy():
            reason, code = self._reason_to_stop(goal, now)
            if not reason:
                if now - self._reported_at >= _FEEDBACK_S:
                    self._reported_at = now
                    self._report(goal)
                return
            self._stop(reason)
            self._abort(goal, code, reason)
        elif self._controller.state == 'done' and self._has_started(goal):
            violation = goal.tolerances.violation(self._controller.error, at_goal=True)
            if violation:
                self._abort(goal, _Result.GOAL_TOLERANCE_VIOLATED, violation)
            else:
                self._end(goal.handle, goal.handle.succeed, _Result.SUCCESSFUL, '')
        elif goal.handle.is_cancel_requested:
            self._end(goal.handle, goal.handle.canceled, _Result.SUCCESSFUL,
                      self._controller.reason)
        else:
            self._abort(goal, _Result.GOAL_TOLERANCE_VIOLATED, self._controller.reason)

    def _on_goal(self, handle: ServerGoalHandle) -> None:
        request = handle.request
        # The server keeps the handle, but nobody asks it for what may be megabytes.
        handle._goal_request = None
        try:
            self._follow(handle, request)
        except Exception:
            self._end(handle, handle.abort, _Result.INVALID_GOAL, 'an error in the controller')
            raise

    def _follow(self, handle: ServerGoalHandle, request: FollowJointTrajectory.Goal) -> None:
        self.replaced('another goal')
        handle.execute()
        now = time.monotonic()
        try:
            tolerances = _tolerances(request)
        except ToleranceError as error:
            self._stop(str(error))
            self._end(handle, handle.abort, _Result.INVALID_GOAL, str(error))
            return
        points = request.trajectory.points
        duration = seconds(points[-1].time_from_start) if points else 0.0
        # Its client may have left, or died, while the goal waited.
        since = now - self._input_age() - _QUEUED_S
        self._goal = _Goal(handle, tolerances, duration, self._controller.starts, since,
                           self._departed - (self._departed_at > since))
        self._start(request.trajectory)
        if not self._is_busy():
            self._abort(self._goal, _Result.INVALID_GOAL, self._controller.reason)

    def _on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        # At once; the goal itself ends with the next update.
        if self._goal is not None and self._goal.handle.goal_id == handle.goal_id:
            self._stop('cancelled by the client')
        return CancelResponse.ACCEPT

    def _never(self, _: ServerGoalHandle) -> Any:
        raise AssertionError('goals end by _Server.finish')

    def _reason_to_stop(self, goal: _Goal, now: float) -> tuple[str, int]:
        """Return why a running goal has to end, '' if it need not, and the code of the result."""
        if reason := self._why_client_counts_as_gone(goal, now):
            return reason, _Result.GOAL_TOLERANCE_VIOLATED
        if not self._has_started(goal):
            return '', _Result.SUCCESSFUL
        if violation := goal.tolerances.violation(self._controller.error, at_goal=False):
            return violation, _Result.PATH_TOLERANCE_VIOLATED
        clock = self._node.get_clock().now().nanoseconds * 1e-9
        if goal.ends_at is None:
            goal.ends_at = clock + goal.duration + goal.tolerances.late
        if clock > goal.ends_at:
            return (f'not at the goal {goal.tolerances.late:g} s after the end of the trajectory',
                    _Result.GOAL_TOLERANCE_VIOLATED)
        return '', _Result.SUCCESSFUL

    def _has_started(self, goal: _Goal) -> bool:
        return self._controller.starts > goal.starts

    def _why_client_counts_as_gone(self, goal: _Goal, now: float) -> str:
        """Return '' while every receiver of the feedback is there and takes it."""
        gone = 'the client of the goal is gone'
        if self._departed > goal.departed:
            return gone
        if now - self._reported_at < _FEEDBACK_S:
            return ''
        is_watched = self._is_watched()
        if is_watched and self._feedback.wait_for_all_acked(Duration()):
            # What was sent before a pause of this process says nothing of the time since.
            goal.taken_at = max(goal.taken_at, self._reported_at)
        elif now - goal.taken_at > _CLIENT_TIMEOUT_S:
            self._is_one_dead = True
            return gone if is_watched else (
                'a client of the action does not take feedback reliably: nobody would notice its '
                'end')
        return ''

    def _is_watched(self) -> bool:
        """Return whether each client takes the feedback so that its end would be noticed.

        Nothing tells that a receiver lives which is best effort, or whose profile does not match.
        """
        receivers = self._node.get_subscriptions_info_by_topic(_FEEDBACK)
        clients = self._node.count_clients(self._node.resolve_service_name(_GOALS))
        return (len(receivers) >= max(1, clients)
                and len(receivers) == self._feedback.get_subscription_count()
                and all(each.qos_profile.reliability is ReliabilityPolicy.RELIABLE
                        for each in receivers))

    def _on_request(self, _: FollowJointTrajectory.Goal) -> GoalResponse:
        """Refuse goals while DDS still knows a client that was killed, for its lease.

        Until then nothing would tell whether the client of another goal lives.
        """
        self._is_one_dead &= not self._feedback.wait_for_all_acked(Duration())
        if self._is_one_dead:
            self._node.get_logger().warning(
                'goal refused: a client that was killed is still known, for 20 s at most; try '
                'again', throttle_duration_sec=5.0)
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def _report(self, goal: _Goal) -> None:
        controller = self._controller
        moved = [index for index in range(len(JOINTS)) if not np.isnan(controller.target[index])]
        actual = controller.target + controller.error
        self._feedback.publish(FollowJointTrajectory.Impl.FeedbackMessage(
            goal_id=goal.handle.goal_id, feedback=FollowJointTrajectory.Feedback(
                header=Header(stamp=self._node.get_clock().now().to_msg()),
                joint_names=[JOINTS[index] for index in moved],
                desired=_point(controller.target, moved), actual=_point(actual, moved),
                error=_point(-controller.error, moved))))

    def _abort(self, goal: _Goal, code: int, reason: str) -> None:
        self._end(goal.handle, goal.handle.abort, code, reason)

    def _end(
        self, handle: ServerGoalHandle, end: Callable[[], None], code: int, reason: str,
    ) -> None:
        self._goal = None
        self._server.finish(handle, end, _Result(error_code=code, error_string=reason))


def _point(values: Positions, indices: Sequence[int]) -> JointTrajectoryPoint:
    return JointTrajectoryPoint(positions=[float(values[index]) for index in indices])


def _tolerances(request: FollowJointTrajectory.Goal) -> GoalTolerances:
    if (request.multi_dof_trajectory.points or request.component_path_tolerance
            or request.component_goal_tolerance):
        raise ToleranceError('multi_dof_trajectory: not allowed: each joint has one axis')

    def pairs(given: Sequence[JointTolerance]) -> list[tuple[str, float]]:
        for each in given:
            if each.velocity > 0.0 or each.acceleration > 0.0:
                raise ToleranceError(f'{each.name[:40]!r}: tolerances of velocity and '
                                     'acceleration are not allowed: motors are on or off')
        return [(each.name, each.position) for each in given]

    return GoalTolerances.of(pairs(request.path_tolerance), pairs(request.goal_tolerance),
                             seconds(request.goal_time_tolerance))
