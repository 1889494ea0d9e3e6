"""The topics of one robot: types and fields that its contract names, and callbacks.

Nothing that comes over the graph chooses a type. What a message holds is checked at each reading.
"""

import math
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, PointStamped
from numpy.typing import NDArray
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile
from rclpy.subscription import Subscription
from std_msgs.msg import Header, String

from vdl_ros.common.images import ImageError, pixels_of
from vdl_ros.msg import EmergencyStopState, TargetStatus
from vdl_ros.robots import contract as contracts
from vdl_ros.robots.contract import TRAJECTORY, Contract, ContractError
from vdl_ros.robots.episode import State
from vdl_ros.robots.observer import frame
from vdl_ros.robots.readings import Reading, ReadingError, read_part
from vdl_ros.robots.session import Session
from vdl_ros.robots.task import Task
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import FrameError, FrameTree, seconds
from vdl_ros.ros.robots.message_fields import (
    feature_reader,
    field_reader,
    number_reader,
    part_writer,
    resolve_type,
    write_field,
)
from vdl_ros.srv import Confirm

# Nodes that hear actions, and move nothing by them; the last ones are of ROS.
_RECORDERS = ('recorder', 'record_episodes', 'black_box', 'topics', 'topic_stats',
              'rosbag2_recorder', 'foxglove_bridge')
_COMMAND_LINE = '_ros2cli'


def _age(request: Confirm.Request) -> float:
    """Return how long ago a person asked, s."""
    asked = seconds(request.asked)
    return max(0.0, time.time() - asked) if asked else 0.0


class _PersonsCommands:
    """The message by which a person commands, as ``takeover`` of a contract says."""

    def __init__(self, contract: Contract, takeover: contracts.Takeover) -> None:
        where = f'{contract.name}.yaml: takeover'
        self.type = resolve_type(f'{where}: type', takeover.type)
        self._neutral = contract.actions.neutral
        self._is_held = number_reader(
            where, self.type, takeover.held, takeover.held_index) if takeover.held else None
        names = [part.name for part in contract.actions.parts]
        self._parts = [
            (names.index(part.name), part.scale, number_reader(
                f'{where}: parts[{index}]', self.type, part.field, part.index))
            for index, part in enumerate(takeover.parts)]

    @property
    def has_button(self) -> bool:
        return self._is_held is not None

    def is_held(self, message: Any) -> bool:
        return self._is_held is None or bool(self._is_held(message))

    def values(self, message: Any) -> NDArray[np.float64] | None:
        """Return what a message commands, float64 [parts]; None: nothing finite."""
        # Of a position it is a change.
        values = np.nan_to_num(np.array(self._neutral, np.float64))
        if self.is_held(message):
            for index, scale, read in self._parts:
                values[index] = scale * read(message)
        return values if np.isfinite(values).all() else None


#: Service (vdl_ros/Confirm) by which a person confirms that a robot may go on, or was reset.
CONFIRM = 'robot/confirm'
#: Services (vdl_ros/Confirm), ``robot/success`` and so on, by which a person ends an episode.
OUTCOMES = ('success', 'failure', 'discard')
#: Topics for people: the place where the goal of the episode is, and what happens.
TARGET, STATUS = 'robot/target', 'robot/status'
# Of the target of a policy (geometry_msgs/PointStamped, of any frame on /tf), and of its status.
_ARM_TARGET, _ARM_STATUS = 'arm/target', 'arm/target_status'
_STOP_STATE = 'arm/emergency_stop_state'
_STOP_DEPTH = 32
_CLOCK_SKEW = 0.05  # how far in the future a stamp may be, s: the clocks of two hosts differ
# A subscriber that was found so recently may miss what is sent: it has to find the publisher too.
_FOUND_S = 0.5
# Where commands have no sender, another host's environment is found by its presence alone, s.
_ALONE_S = 2.0


class _TargetTopics:
    """Gives a person's targets to the :class:`Session` of a robot, whose lock its callbacks hold.

    A target is where a policy is to bring the robot; it tells what becomes of that.
    """

    def __init__(
        self, node: Node, session: Session, task: Task, lock: Any, full: Callable[[str], str],
        stamp: Callable[[], Time],
    ) -> None:
        self._session, self._task, self._lock = session, task, lock
        self._stamp, self._frames = stamp, FrameTree()
        self._told: tuple[bool, str] | None = None
        self._status = qos.pub(node, _ARM_STATUS, name=full(_ARM_STATUS))
        self.show()
        qos.sub(node, _ARM_TARGET, self._on_target, name=full(_ARM_TARGET))
        self._commanded: Time | None = None
        qos.sub(node, _STOP_STATE, self._on_stop_state, name=full(_STOP_STATE))
        for name in ('/tf', '/tf_static'):
            qos.sub(node, name, self._frames.add)

    def _on_target(self, message: PointStamped) -> None:
        point, frame = message.point, message.header.frame_id
        if all(map(math.isnan, (point.x, point.y, point.z))):
            with self._lock:
                self._session.consent.withdraw('the target is withdrawn')
                self.show()
            return
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


class RobotInterfaces:
    """The message types of a contract with functions for their fields; no node yet."""

    def __init__(self, contract: Contract) -> None:
        self.contract, file = contract, f'{contract.name}.yaml'
        self.types = {key: resolve_type(f'{file}: topics: {key}: type', topic.type)
                      for key, topic in contract.inputs.items()}
        self.readers: dict[str, list[tuple[str, Callable[[Any], float]]]] = {
            key: [] for key in contract.inputs}
        for index, feature in enumerate(contract.features):
            self.readers[feature.source].append((feature.name, feature_reader(
                f'{file}: features[{index}]', self.types[feature.source], feature)))
        self.stops = []
        for index, stop in enumerate(contract.stops):
            where = f'{file}: stops[{index}]'
            kind = resolve_type(f'{where}: type', stop.type)
            # Without a field a message is a sign of life.
            self.stops.append((
                stop, kind,
                field_reader(where, kind, stop.field) if stop.field else lambda _: False,
                field_reader(where, kind, stop.mark) if stop.mark else lambda _: None))
        actions = contract.actions
        self.action = resolve_type(f'{file}: actions: type', actions.type)
        self.writers = [part_writer(f'{file}: actions: parts[{index}]', self.action, part)
                        for index, part in enumerate(actions.parts)]
        self.sender = field_reader(f'{file}: actions: sender', self.action, actions.sender) \
            if actions.sender else None
        self.takeover = contract.takeover and _PersonsCommands(contract, contract.takeover)
        self.is_stamped = 'header' in self.action.get_fields_and_field_types()
        self.is_trajectory = actions.type == TRAJECTORY
        for values in zip(*((part.low, part.high) for part in actions.parts), strict=True):
            try:
                self.message(np.array(values), Time(), '')
            except AssertionError:
                raise ContractError(f'{file}: actions: parts: {list(values)} is not allowed: the '
                                    f'numbers of {actions.type}') from None

    def message(self, action: NDArray[np.float64], stamp: Time, sender: str) -> Any:
        message = self.action(check_fields=True)
        for write, value in zip(self.writers, action.tolist(), strict=True):
            write(message, value)
        if self.is_trajectory:
            # Without a stamp it begins when it arrives, also on a host with another clock.
            message.points[0].time_from_start = Duration(
                seconds=1.0 / self.contract.rate).to_msg()
        elif self.is_stamped:
            message.header.stamp = stamp
        if self.contract.actions.sender:
            write_field(message, self.contract.actions.sender, sender)
        return message

    def moves(self, message: Any) -> bool:
        """Return whether a command moves the robot, also by a part that is only recorded."""
        return self.values(message, True) != self.values(self._neutral(), True)

    def is_neutral(self, message: Any) -> bool:
        """Return whether a command only switches off: it is not for a lamp, for example."""
        neutral, sender = self._neutral(), self.contract.actions.sender.partition('.')[0]
        return all(np.array_equal(getattr(message, name), getattr(neutral, name))
                   for name in message.get_fields_and_field_types()
                   if name not in ('header', sender))

    def _neutral(self) -> Any:
        return self.message(np.array(self.contract.actions.neutral), Time(), '')

    def values(self, message: Any, with_recorded: bool = False) -> list[Any]:
        actions, found = self.contract.actions, list[float | None]()
        for part in (*actions.parts, *(actions.recorded if with_recorded else ())):
            try:
                found.append(read_part(part, message))
            except (LookupError, ValueError):
                found.append(None)
        return found


class RobotTopics:
    """Connects the :class:`Session` of one robot to its topics; callbacks hold its lock.

    ``now`` returns the time of the robot's clock, s.
    """

    def __init__(
        self, node: Node, interfaces: RobotInterfaces, task: Task, copy: int, lock: Any,
        now: Callable[[], float], stamp: Callable[[], Time],
    ) -> None:
        self._node, self._interfaces, self._task, self._lock = node, interfaces, task, lock
        self._now, self._stamp = now, stamp
        contract = interfaces.contract
        # A message may arrive before that of the simulated clock that it was stamped by.
        self._skew = math.inf if contract.simulated_clock else _CLOCK_SKEW
        #: Returns the name of a topic with the robot's namespace.
        self.full = partial(contract.full, copy=copy)
        self._name = node.get_fully_qualified_name()
        self._session: Session | None = None
        # Why the latest message of each topic that was refused was so, without numbers.
        self._refusals: dict[str, str] = {}
        # Images that have come since the last tick, the newest of each, not decoded yet.
        self._images: dict[str, tuple[Reading, Any]] = {}
        self._sent: tuple[float, list[Any]] | None = None
        self._found = math.inf
        self._alone_at = time.monotonic() + (
            _ALONE_S if interfaces.sender is None and not contract.simulated_clock else 0.0)
        self._is_held = False
        self._stop_listeners: dict[int, Subscription] = {}
        #: Time from sending the latest action that has come back as an echo to its arrival, s.
        self.action_lag = 0.0
        self.topic = self.full(contract.actions.topic)
        #: Those that tell who else has this robot, which may be commanded on several.
        self.shared = self.topic, self.full(next(iter(contract.topics.values())).topic)
        self._publisher = node.create_publisher(interfaces.action, self.topic, qos.MOTORS)
        self._target, self._status = (
            qos.pub(node, each, name=self.full(each)) for each in (TARGET, STATUS))
        #: As lines for people name it.
        self.robot = contract.env_id + (f' {copy}' if contract.copies > 1 else '')
        self._incidents = qos.pub(node, 'incidents')
        self._shown = '', 0
        self._targets: _TargetTopics | None = None

    def send(self, action: NDArray[np.float64]) -> None:
        message = self._interfaces.message(action, self._stamp(), self._name)
        values = self._interfaces.values(message)
        if self._sent is None or self._sent[1] != values:
            self._sent = time.monotonic(), values
        self._publisher.publish(message)

    def show(self, now: float) -> None:
        """Publish what is new for people: what happens, and where the goal of an episode is."""
        assert self._session is not None
        while self._session.incidents:
            self._incidents.publish(String(
                data=f'{self.robot}, {self._session.incidents.popleft()}'))
        if self._targets is not None:
            self._targets.show()
            return
        status, begun = self._session.status(now), self._session.begun
        if begun != self._shown[1] and self._task.target is not None:
            x, y, z = map(float, self._task.target)
            self._target.publish(PointStamped(
                header=Header(stamp=self._stamp(), frame_id=self._task.frame),
                point=Point(x=x, y=y, z=z)))
        if status != self._shown[0]:
            self._status.publish(String(data=status))
        self._shown = status, begun

    def is_received(self) -> bool:
        """Return whether a subscriber, other than this node, has been there long enough."""
        others = [each for each in self._node.get_subscriptions_info_by_topic(self.topic)
                  if each.node_name not in (self._node.get_name(), *_RECORDERS)
                  and not each.node_name.startswith(_COMMAND_LINE)]
        now = time.monotonic()
        self._found = min(self._found, now) if others else math.inf
        return now - self._found >= _FOUND_S and now >= self._alone_at

    def connect(self, session: Session, *, follows: bool = False) -> None:
        """Listen; a session that ``follows`` takes targets."""
        self._session, interfaces = session, self._interfaces
        if follows:
            self._targets = _TargetTopics(
                self._node, session, self._task, self._lock, self.full, self._stamp)
        topics, actions = interfaces.contract.inputs, interfaces.contract.actions

        def listen(kind: Any, name: str, call: Callable[[Any], None], profile: QoSProfile) -> None:
            self._node.create_subscription(kind, self.full(name), call, profile)

        for key, topic in topics.items():
            listen(interfaces.types[key], topic.topic, partial(self._on_message, key), qos.LATEST)
        self.look_for_stops()
        self._node.create_service(Confirm, self.full(CONFIRM), self._on_confirmed)
        for outcome in OUTCOMES:
            self._node.create_service(
                Confirm, self.full(f'robot/{outcome}'), partial(self._on_judged, outcome))
        if interfaces.sender is not None:
            listen(interfaces.action, actions.topic, self._on_other, qos.MOTORS_OF_ALL)
        if (person := interfaces.takeover) and (takeover := interfaces.contract.takeover):
            listen(person.type, takeover.topic, partial(self._on_person, person), qos.LATEST)
        if actions.echo:
            listen(interfaces.action, actions.echo, self._on_echo, qos.REPORT)

    def look_for_stops(self) -> None:
        """Count who publishes each stop, and subscribe to it with the profile that is offered."""
        assert self._session is not None
        for index, (stop, kind, *readers) in enumerate(self._interfaces.stops):
            # What is asked and made below remaps it.
            name = self.full(stop.topic)
            publishers = self._node.get_publishers_info_by_topic(name)
            with self._lock:
                self._session.stops[index].on_publishers(len(publishers))
            if not publishers:
                continue
            offered, listener = publishers[0].qos_profile, self._stop_listeners.get(index)
            profile = QoSProfile(
                history=HistoryPolicy.KEEP_LAST, depth=_STOP_DEPTH,
                reliability=offered.reliability, durability=offered.durability,
            ) if stop.field else qos.ALIVE
            if listener is None or any(getattr(listener.qos_profile, each) != getattr(
                    profile, each) for each in ('reliability', 'durability')):
                if listener is not None:
                    self._node.destroy_subscription(listener)
                self._stop_listeners[index] = self._node.create_subscription(
                    kind, name, partial(self._on_stop, index, *readers), profile)

    def _on_confirmed(
        self, request: Confirm.Request, response: Confirm.Response,
    ) -> Confirm.Response:
        assert self._session is not None
        with self._lock:
            reason = self._session.confirm(_age(request))
        response.success, response.message = not reason, reason or 'the robot goes on'
        return response

    def _on_judged(
        self, outcome: str, request: Confirm.Request, response: Confirm.Response,
    ) -> Confirm.Response:
        assert self._session is not None
        with self._lock:
            reason = self._session.judge(outcome, _age(request))
        response.success, response.message = not reason, reason or 'the episode ends'
        return response

    def wait_for_acks(self, seconds: float) -> None:
        self._publisher.wait_for_all_acked(Duration(seconds=seconds))

    def _on_message(self, key: str, message: Any) -> None:
        topic = self._interfaces.contract.inputs[key]
        wall, now = time.monotonic(), self._now()
        if now == -math.inf:
            return  # the simulated clock has not begun
        stamp, lag = now, 0.0
        try:
            values = {name: read(message) for name, read in self._interfaces.readers[key]}
            if topic.stamped and hasattr(message, 'header'):
                stamp = seconds(message.header.stamp)
                lag = seconds(self._stamp()) - stamp
                if lag < -self._skew:
                    raise ReadingError(f'its stamp is {-lag:.2g} s ahead: synchronise the clocks, '
                                       'or stamped: false')
                if lag > topic.timeout:
                    raise ReadingError(
                        f'its stamp is {lag:.2g} s old, more than its timeout, {topic.timeout:g} '
                        's: a busy machine, a slow link, or clocks to synchronise')
        except ReadingError as error:
            self._refuse(topic, error)
            return
        reading = Reading(values, stamp, max(0.0, lag), now, wall)
        if isinstance(topic, contracts.ImageTopic):
            self._images[key] = reading, message
            return
        assert self._session is not None
        with self._lock:
            self._session.on_reading(key, reading)

    def look_at_images(self) -> None:
        """Decode the images that count at this tick; a damaged one leaves the one before."""
        assert self._session is not None
        for key, (reading, message) in self._images.items():
            image = self._interfaces.contract.inputs[key]
            assert isinstance(image, contracts.ImageTopic)
            try:
                seen = frame(image, pixels_of(message))
            except ImageError as error:
                self._refuse(image, error)
                continue
            self._session.on_reading(key, reading._replace(frame=seen))
        self._images.clear()

    def forget_images(self) -> None:
        self._images.clear()

    def _refuse(self, topic: contracts.Topic, error: ValueError) -> None:
        reason = re.sub(r'\d+', '', str(error))
        if self._refusals.get(topic.topic) != reason:
            self._refusals[topic.topic] = reason
            self._node.get_logger().warning(f'{self.full(topic.topic)} refused: {error}')

    def _on_stop(
        self, index: int, read: Callable[[Any], Any], mark: Callable[[Any], Any], message: Any,
    ) -> None:
        assert self._session is not None
        with self._lock:
            self._session.on_stop(index, bool(read(message)), mark(message))

    def _on_other(self, message: Any) -> None:
        assert self._interfaces.sender is not None
        assert self._session is not None
        sender = str(self._interfaces.sender(message))
        moving = self._interfaces.moves(message)
        if sender != self._name:
            values = self._interfaces.values(message)
            is_known = all(value is not None and math.isfinite(value) for value in values)
            with self._lock:
                self._session.on_other(
                    sender, self._now(), moving=moving, values=values if is_known else (),
                    for_lamp=not (moving or self._interfaces.is_neutral(message)))

    def _on_person(self, person: _PersonsCommands, message: Any) -> None:
        # The message that lets go counts too; none after it, or nobody would give the robot back.
        was_held, self._is_held = self._is_held, person.is_held(message)
        values = person.values(message)
        if values is not None and (was_held or self._is_held):
            assert self._session is not None
            with self._lock:
                self._session.on_person(
                    values, self._now(), holds=person.has_button and self._is_held)

    def _on_echo(self, message: Any) -> None:
        with self._lock:
            if self._sent is not None and self._interfaces.values(message) == self._sent[1]:
                self.action_lag = time.monotonic() - self._sent[0]
                self._sent = self._sent[0], []
