"""Confirms that a robot was put back, for a contract whose reset is a person's (docs/robots.md).

Calls the service ``robot/confirm`` (std_srvs/Trigger) of the environment, and ends. Parameters:
docs/nodes.md, or ``ros2 run vdl_ros confirm --help``. Exit status 1: nobody waits for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

from rclpy.node import Node
from std_srvs.srv import Trigger

from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import EXIT_OK, make_executor, run_node, take_settings
from vdl_ros.ros.robots.resetters import CONFIRM

SETTINGS = (ProcessConfig,)
EXIT_NOBODY = 1
_AGAIN_S = 5.0


class ConfirmNode(Node):
    """A client of the service.

    Raises:
        SettingError: a parameter that is unknown or not allowed.
    """

    def __init__(self) -> None:
        super().__init__('confirm')
        _, self.process = take_settings(self, *SETTINGS)
        self.client = self.create_client(Trigger, CONFIRM)


def confirm(node: ConfirmNode, stop: threading.Event) -> int:
    """Call the service as soon as it is there, and print its answer."""
    executor = make_executor(node.process.executor)
    executor.add_node(node)
    calls: list[Any] = []
    called_at = -math.inf
    while not stop.is_set() and not any(call.done() for call in calls):
        executor.spin_once(timeout_sec=0.1)
        # Again: a service that has not discovered this client yet does not answer.
        if node.client.service_is_ready() and time.monotonic() - called_at > _AGAIN_S:
            called_at = time.monotonic()
            calls.append(node.client.call_async(Trigger.Request()))
    executor.remove_node(node)
    answer = next((call.result() for call in calls if call.done()), None)
    if answer is None:
        return EXIT_OK
    node.get_logger().info(answer.message)
    return EXIT_OK if answer.success else EXIT_NOBODY


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('confirm', ConfirmNode, confirm, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
