"""A person's target for a robot: where a policy is to bring it, and what becomes of that."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PointStamped
from rclpy.node import Node
from std_msgs.msg import Header

from vdl_ros.msg import EmergencyStopState, TargetStatus
from vdl_ros.robots.episode import State
from vdl_ros.robots.session import Session
from vdl_ros.robots.task import Task
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import FrameError, FrameTree

#: Topics of the target (geometry_msgs/PointStamped, of any frame on /tf), and of its status.
TARGET, STATUS = 'arm/target', 'arm/target_status'
_STOP_STATE = 'arm/emergency_stop_state'


class TargetTopics:
    """Gives targets to the :class:`Session` of a robot, whose lock its callbacks hold."""

    def __init__(
        self, node: Node, session: Session, task: Task, lock: Any, full: Callable[[str], str],
        stamp: Callable[[], Time],
    ) -> None:
        self._session, self._task, self._lock = session, task, lock
        self._stamp, self._frames = stamp, FrameTree()
        self._told: tuple[bool, str] | None = None
        self._status = qos.pub(node, STATUS, name=full(STATUS))
        self.show()
        qos.sub(node, TARGET, self._on_target, name=full(TARGET))
        self._commanded: Time | None = None
        qos.sub(node, _STOP_STATE, self._on_stop_state, name=full(_STOP_STATE))
        for name in ('/tf', '/tf_static'):
            qos.sub(node, name, self._frames.add)

    def _on_target(self, message: PointStamped) -> None:
        point, frame = message.point, message.header.frame_id
        try:
            if not frame:
                raise FrameError(f'frame_id: empty, {self._task.frame} for example')
            place = self._frames.point([point.x, point.y, point.z], frame, self._task.frame)
        except FrameError as error:
            place, reason = np.full(3, math.nan), str(error)
        else:
            reason = '' if np.isfinite(place).all() else 'point: not finite'
        with self._lock:
            self._session.aim(place, reason)
            self.show()

    def _on_stop_state(self, message: EmergencyStopState) -> None:
        # Of a person whom the driver hears, and this node perhaps not yet.
        before, self._commanded = self._commanded, message.commanded
        if before not in (None, message.commanded):
            with self._lock:
                self._session.consent.withdraw('a person commands the robot')

    def show(self) -> None:
        """Publish what has become of the target; call it at each tick."""
        session, aimed = self._session, self._session.aimed
        is_given, waits = session.consent.given, session.waits
        state = 'idle' if not is_given else 'paused' if waits else 'running'
        reason = waits if is_given else session.given_up
        if not is_given and self._told == (is_given, reason):
            return
        self._told = is_given, reason
        self._status.publish(TargetStatus(
            header=Header(stamp=self._stamp(), frame_id=self._task.frame), state=state,
            reason=reason,
            target=[math.nan] * 3 if aimed is None or not is_given else aimed.place.tolist(),
            distance=self._task.distance if session.state is State.RUNNING else math.nan,
            success=is_given and aimed is not None and not math.isnan(aimed.reached),
            reaction_time=math.nan if aimed is None else aimed.reaction,
            time_to_target=math.nan if aimed is None else aimed.reached))
