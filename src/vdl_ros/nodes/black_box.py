"""Keep the last 30 s of a robot's topics in memory; write a bag after an incident.

An incident is what ``incidents`` tells of, a pressed emergency stop, and SIGUSR1: a launch file
sends it when another process has failed.
"""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from rclpy.executors import Executor
from rclpy.logging import LoggingSeverity

from vdl_ros.common.quoting import quoted, shown
from vdl_ros.msg import EmergencyStopState
from vdl_ros.ros.bags.black_box import BlackBox, LastMessages, leaves_out
from vdl_ros.ros.bags.recording import Recording
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import BlackBoxConfig
from vdl_ros.ros.process import EXIT_OK, state_folder

_DISCOVER_S, _LOOK_S = 0.5, 0.1


class BlackBoxNode(BaseNode):
    """Hears everything in its namespace but images."""

    NAME = 'black_box'
    SETTINGS = (BlackBoxConfig,)
    IS_BACKGROUND = True

    def __init__(self, failures: Sequence[int] = ()) -> None:
        """``failures`` grows when another process has failed."""
        super().__init__()
        folder = self.settings(BlackBoxConfig).black_box
        self._messages = LastMessages()
        self._box = BlackBox(
            Path(folder) if folder else state_folder() / 'black_box',
            lambda path, reason: self._messages.save(
                path, reason, os.environ.get('ROS_DISTRO', '')),
            self.get_logger().warning)
        space = self.get_namespace().rstrip('/')
        topics = f'{space}/*,/statistics,/diagnostics' if space else '*'
        # What it records is no news.
        self.get_logger().set_level(LoggingSeverity.WARN)
        self._recording = Recording(self, topics, self._messages, leaves_out, max_bytes=64 << 20)
        self.every(_DISCOVER_S, self._recording.discover_topics)
        self._recording.discover_topics()
        self._is_stopped: bool | None = None
        self.sub('incidents', lambda message: self._box.on_incident(
            shown(message.data, 200), 'incidents'))
        self.sub('arm/emergency_stop_state', self._on_stop)
        self._failures, self._told = failures, 0

    def _on_stop(self, message: EmergencyStopState) -> None:
        before, self._is_stopped = self._is_stopped, message.engaged
        if message.engaged and before is False:
            self._box.on_incident(f'emergency stop by {quoted(message.sender)}', 'stop')

    def work(self, executor: Executor, stop: threading.Event) -> int:
        while not stop.is_set():
            executor.spin_once(timeout_sec=_LOOK_S)
            self._look()
        return EXIT_OK

    def _look(self) -> None:
        if len(self._failures) > self._told:
            self._told = len(self._failures)
            self._box.on_incident('a process of the launch failed')
        self._recording.flush()
        self._box.look()

    def stop(self) -> None:
        self._look()
        self._recording.close()
        self._box.look(ends=True)


def main(args: Sequence[str] | None = None) -> int:
    failures: list[int] = []
    # No event: the handler may interrupt the main thread while it holds the event's lock.
    signal.signal(signal.SIGUSR1, lambda number, frame: failures.append(number))
    return BlackBoxNode.main(args, failures)
