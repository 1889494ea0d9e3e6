"""Record topics to an MCAP bag, without decoding.

Subscribes to every topic that matches the parameter ``topics``, with the quality of service that
its publishers offer.
"""

import contextlib
import os
import threading
from pathlib import Path

from rclpy.executors import Executor

from vdl_ros.common.command_line import EXIT_DISK
from vdl_ros.common.settings import SettingError
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.bags.recording import Recording, topics_of
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.node_settings import RecordConfig
from vdl_ros.ros.process import EXIT_OK, call_back


class RecorderNode(BaseNode):
    """Opens the bag and discovers topics twice a second."""

    NAME = 'recorder'
    SETTINGS = (RecordConfig,)

    def __init__(self) -> None:
        super().__init__()
        config = self.settings(RecordConfig)
        if not config.output:
            raise SettingError('output: none is given: output:=<folder of the bag>')
        topics = topics_of(find_contract(config.robot), self.resolve_topic_name) \
            if config.robot else config.topics
        self.bag = BagWriter(Path(config.output), compression=config.compression,
                             distribution=os.environ.get('ROS_DISTRO', ''))
        self.recording = Recording(self, topics, self.bag)
        Diagnostics(self, self._health)
        self._timer = self.create_timer(0.5, self.recording.discover_topics)
        self.recording.discover_topics()

    def _health(self) -> Health:
        dropped = self.recording.dropped
        return f'{dropped} messages dropped: the disk is too slow' if dropped else '', {
            'bag': self.bag.path, 'messages': self.bag.count, 'dropped': dropped}

    def work(self, executor: Executor, stop: threading.Event) -> int:
        self.get_logger().info(f'recording to {self.bag.path}')
        while not stop.is_set() and self.recording.failure is None:
            executor.spin_once(timeout_sec=0.1)
        # Record the messages that were queued before the stop, but not those that keep arriving.
        for _ in range(self.recording.most_queued):
            received = self.recording.received
            call_back(executor, 0.0)
            if self.recording.received == received:
                break
        self.recording.close()
        failure = self.recording.failure
        try:
            self.bag.close()
        except OSError as error:
            failure = failure or error
        if failure is not None:
            self.get_logger().error(
                f'{self.bag.path}: {failure.strerror}: recording has ended; the '
                f'{self.bag.count} messages written stay readable')
            return EXIT_DISK
        self.get_logger().info(f'{self.bag.path}: {self.bag.count} messages, '
                               f'{self.recording.dropped} dropped')
        return EXIT_OK

    def stop(self) -> None:
        self.recording.close()
        with contextlib.suppress(OSError):
            self.bag.close()


main = RecorderNode.main
