"""Play an MCAP bag: publish its messages at the recorded rate.

Topics that command an arm are left out unless they are named: a recorded command must not move a
real arm by accident. With ``relearn`` it publishes only trajectories, to a learner.
"""

import fnmatch
import threading
import time
from pathlib import Path

from builtin_interfaces.msg import Time
from rclpy.executors import Executor
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock

from vdl_ros.bags.reader import BagError, BagMessage, BagReader
from vdl_ros.common.consent import STOOD_STILL, StandstillDetector
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import EmergencyStopState
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import check_topic, message_class, playback_profile
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import PlayConfig
from vdl_ros.ros.process import EXIT_BAD_INPUT, EXIT_OK
from vdl_ros.ros.training.trajectory_player import LearnerLostError, TrajectoryPlayer

# A policy makes an actor move its robot.
COMMANDS = ('motors', 'joint_trajectory', 'target', 'emergency_stop', 'emergency_stop_state',
            'emergency_stop_release', 'viewer_alive', 'cmd_vel', 'teleop', 'joy', 'policy',
            'actions', 'commands', 'stop')
_MOTIONS = {'motors', 'joint_trajectory', 'target', 'cmd_vel', 'teleop', 'joy', 'commands'}
_STOP_STATE = 'arm/emergency_stop_state'
EXIT_FAILED = 1
_CLOCK_S = 0.02
# What is no pause, but a clock that was set, or that did not run yet.
_MIN_PAUSE_S, _MAX_PAUSE_S = -1.0, 3600.0
_LONG_S = 10.0


class PlayerNode(BaseNode):
    """Publishes a bag's messages."""

    NAME = 'player'
    SETTINGS = (PlayConfig,)

    def __init__(self) -> None:
        super().__init__()
        self._config = self.settings(PlayConfig)
        if not self._config.bag:
            raise SettingError('bag: none is given: bag:=<folder of the bag>')
        self._patterns = [each.strip() for each in self._config.play_topics.split(',')
                          if each.strip()]
        self._publishers_by_topic: dict[str, Publisher | None] = {}
        # Why it commands nothing any more, '' while it may.
        self._standstill, self._ended_by = StandstillDetector(), ''
        self._time = self.pub('/clock') if self._config.publish_clock else None
        self.bag = BagReader(Path(self._config.bag))
        self.trajectories = TrajectoryPlayer(self, self.bag) if self._config.relearn else None
        if self.trajectories is not None:
            return
        # Announced before the first message, so that subscribers can discover them.
        for message in self.bag:
            self._publisher_of(message)
        for pattern in self._patterns:
            if not any(_matches(name, pattern) for name in self._publishers_by_topic):
                raise SettingError(f'play_topics: {quoted(pattern)} is no topic of the bag: '
                                   f'{shown(", ".join(self._publishers_by_topic), 300)}')
        played = {name.rsplit('/', 1)[-1] for name, each in self._publishers_by_topic.items()
                  if each is not None}
        self._commands = not played.isdisjoint(COMMANDS)
        moving = [each.topic_name for name, each in self._publishers_by_topic.items()
                  if each is not None and name.rsplit('/', 1)[-1] in _MOTIONS]
        if moving:
            if 'emergency_stop_state' in played:
                raise SettingError('play_topics: emergency_stop_state is not allowed with what '
                                   "moves: the arm's own one ends the player")
            # Of the arm in its namespace, and of each arm that the bag moves.
            stops = {self.resolve_topic_name(_STOP_STATE), *(
                f'{name[:name.index("/arm/")]}/{_STOP_STATE}' for name in moving
                if '/arm/' in name)}
            for name in stops:
                qos.sub(self, _STOP_STATE, self._on_stop_state, name=name)

    def _on_stop_state(self, state: EmergencyStopState) -> None:
        # Its commands would go on as soon as the stop is released.
        if state.engaged:
            self._ended_by = 'emergency stop'

    def play(self, stop: threading.Event, executor: Executor) -> int:
        """Play until the end, or until ``stop``; return how many messages were published."""
        self._wait(time.monotonic() + self._config.play_delay, stop, executor)
        count = 0
        while not (stop.is_set() or self._ended_by):
            count += self._play_once(stop, executor)
            if not self._config.loop:
                break
        return count

    def work(self, executor: Executor, stop: threading.Event) -> int:
        if self.trajectories is not None:
            return self._relearn(self.trajectories, stop, executor)
        for fault in self.bag.faults:
            self.get_logger().warning(fault)
        count = self.play(stop, executor)
        if self._ended_by:
            self.get_logger().error(f'{self._ended_by}: it commands nothing any more')
            return EXIT_FAILED
        end = '' if stop.is_set() else ', to the end of the bag'
        self.get_logger().info(f'{count} messages played{end}')
        return EXIT_OK

    def _relearn(
        self, trajectories: TrajectoryPlayer, stop: threading.Event, executor: Executor,
    ) -> int:
        """Play the trajectories to a learner, to the end, or until it or this node has ended."""
        log = self.get_logger()
        log.info('waiting for a learner with relearn')
        try:
            count, is_end = trajectories.play(stop, executor)
        except BagError as error:
            log.error(str(error))
            return EXIT_BAD_INPUT
        except LearnerLostError as error:
            log.error(str(error))
            return EXIT_FAILED
        log.info(f'{count} trajectories played' + (', to the end of the bag' if is_end else ''))
        if trajectories.missing:
            log.warning(
                f'{trajectories.missing} trajectories that its actors sent are not in the bag')
        for fault in self.bag.faults:
            log.warning(fault)
        return EXIT_OK

    def _play_once(self, stop: threading.Event, executor: Executor) -> int:
        count = 0
        # Only now: the time to open the bag must not shorten the first intervals.
        due, before, clock_at = 0.0, None, -1.0
        for message in self.bag:
            if before is None:
                due, before = time.monotonic(), message.stamp_ns
            pause = (message.stamp_ns - before) * 1e-9
            if not _MIN_PAUSE_S <= pause <= _MAX_PAUSE_S:
                self.get_logger().warning(
                    f'{pause:.1f} s from one message to the next, on {quoted(message.topic)}, are '
                    f'skipped: {_MIN_PAUSE_S:g} to {_MAX_PAUSE_S:g} s')
                pause = 0.0
            elif pause > _LONG_S:
                self.get_logger().info(f'the next message comes after {pause:.1f} s')
            due, before = due + pause / self._config.play_rate, message.stamp_ns
            self._wait(due, stop, executor)
            # Nobody expects motion any more.
            if self._commands and self._standstill.recent:
                self._ended_by = STOOD_STILL
            if stop.is_set() or self._ended_by:
                break
            if self._time is not None and due - clock_at >= _CLOCK_S:
                clock_at = due
                self._time.publish(Clock(clock=Time(
                    sec=message.stamp_ns // 10**9, nanosec=message.stamp_ns % 10**9)))
            publisher = self._publisher_of(message)
            if publisher is not None:
                publisher.publish(message.data)
                count += 1
        return count

    def _wait(self, until: float, stop: threading.Event, executor: Executor) -> None:
        self._standstill.update()
        # A stop that has arrived is heard also where the next message is late.
        looks = self._commands
        while ((left := until - time.monotonic()) > 0.0 or looks) and not (
                stop.is_set() or self._ended_by):
            looks = False
            executor.spin_once(timeout_sec=min(max(left, 0.0), 0.1))
            self._standstill.update()

    def _publisher_of(self, message: BagMessage) -> Publisher | None:
        """Return the publisher of a message's topic; None if the topic is not played."""
        if message.topic not in self._publishers_by_topic:
            self._publishers_by_topic[message.topic] = self._make_publisher(message)
        return self._publishers_by_topic[message.topic]

    def _make_publisher(self, message: BagMessage) -> Publisher | None:
        name = message.topic
        if not name.startswith('/'):
            name = f'{self.get_namespace().rstrip("/")}/{name}'
        if not self._is_selected(name) or (name == '/clock' and self._time is not None):
            return None
        try:
            check_topic(name)
            kind = message_class(message.type)
        except BagError as error:
            self.get_logger().warning(f'{quoted(name)} is not played: {error}')
            return None
        return self.create_publisher(kind, name, playback_profile(message.qos))

    def _is_selected(self, name: str) -> bool:
        if not self._patterns:
            return name.rsplit('/', 1)[-1] not in COMMANDS
        return any(_matches(name, pattern) for pattern in self._patterns)


def _matches(name: str, pattern: str) -> bool:
    """Return whether a pattern is of a topic, of its name without ``/``, or of its last name."""
    return any(fnmatch.fnmatchcase(each, pattern)
               for each in (name, name.lstrip('/'), name.rsplit('/', 1)[-1]))


main = PlayerNode.main
