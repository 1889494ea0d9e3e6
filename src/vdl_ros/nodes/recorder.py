"""Record topics to an MCAP bag, without decoding.

Subscribes to every topic that matches the parameter ``topics``, with the quality of service that
its publishers offer. Parameters: docs/nodes.md, or ``ros2 run vdl_ros recorder --help``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rclpy.node import Node

from vdl_ros.common.settings import SettingError, select
from vdl_ros.robots.contract_file import find_contract
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.bags.recording import Recording, topics_of
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.node_settings import ProcessConfig, RecordConfig
from vdl_ros.ros.process import EXIT_OK, call_back, make_executor, run_node, take_settings

SETTINGS = (RecordConfig, ProcessConfig)
EXIT_DISK = 3


class RecorderNode(Node):
    """Opens the bag and discovers topics twice a second.

    Raises:
        ValueError: a parameter or a path that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('recorder')
        given, self.process = take_settings(self, *SETTINGS)
        config = select(RecordConfig, given)
        if not config.output:
            raise SettingError('output: none is given: output:=<folder of the bag>')
        if config.robot:
            config = replace(config, topics=topics_of(
                find_contract(config.robot), self.resolve_topic_name))
        self.bag = BagWriter(Path(config.output), compression=config.compression,
                             distribution=os.environ.get('ROS_DISTRO', ''))
        self.recording = Recording(self, config, self.bag)
        self._diagnostics = Diagnostics(self, self._health)
        self._timer = self.create_timer(0.5, self.recording.discover_topics)
        self.recording.discover_topics()

    def _health(self) -> Health:
        dropped = self.recording.dropped
        return f'{dropped} messages dropped: the disk is too slow' if dropped else '', {
            'bag': self.bag.path, 'messages': self.bag.count, 'dropped': dropped}


def record(node: RecorderNode, stop: threading.Event) -> int:
    """Record until stopped, or until the disk is full."""
    executor = make_executor(node.process.executor)
    executor.add_node(node)
    node.get_logger().info(f'recording to {node.bag.path}')
    while not stop.is_set() and node.recording.failure is None:
        executor.spin_once(timeout_sec=0.1)
    # Record the messages that were queued before the stop, but not those that keep arriving.
    for _ in range(node.recording.most_queued):
        received = node.recording.received
        call_back(executor, 0.0)
        if node.recording.received == received:
            break
    executor.remove_node(node)
    node.recording.close()
    failure = node.recording.failure
    try:
        node.bag.close()
    except OSError as error:
        failure = failure or error
    if failure is not None:
        node.get_logger().error(
            f'{node.bag.path}: {failure.strerror}: recording has ended; the '
            f'{node.bag.count} messages written stay readable')
        return EXIT_DISK
    node.get_logger().info(f'{node.bag.path}: {node.bag.count} messages, '
                           f'{node.recording.dropped} dropped')
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('recorder', RecorderNode, record, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
