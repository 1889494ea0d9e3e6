"""Confirms that a robot was put back, or may move again (docs/robots.md).

Exit status 1: nobody waits for it.
"""

import math
import threading
import time
from typing import Any

from rclpy.executors import Executor

from vdl_ros.robots.confirmation import process_age
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import time_of
from vdl_ros.ros.process import EXIT_OK
from vdl_ros.ros.robots.robot_topics import CONFIRM
from vdl_ros.srv import Confirm

EXIT_NOBODY = 1
_AGAIN_S = 5.0
# Without anybody who could answer: until a line, and until the end, s.
_TELL_S, _PATIENCE_S = 5.0, 30.0


class AskNode(BaseNode):
    """Calls a service of the environment of a robot, once it is there, and logs the answer.

    What it asks for is of when its process started, which can take seconds, or be paused.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        asked = time.time() - process_age()
        self._service, self._request = service, Confirm.Request(
            asked=time_of(int(asked * 1e9)))

    def work(self, executor: Executor, stop: threading.Event) -> int:
        client = self.create_client(Confirm, self._service)
        calls: list[Any] = []
        name = self.resolve_service_name(self._service)
        called_at, told, started = -math.inf, '', time.monotonic()
        while not stop.is_set():
            executor.spin_once(timeout_sec=0.1)
            for call in calls:
                if call.done():
                    self.get_logger().info(call.result().message)
                    return EXIT_OK if call.result().success else EXIT_NOBODY
            count, waited = self.count_services(name), time.monotonic() - started
            problem = ''
            if count > 1:
                # One of them may have been killed a while ago.
                problem = (f'{name}: several robots answer, which cannot be told apart; waits for '
                           'the end of the others, else give each a namespace')
            elif not count and waited > _PATIENCE_S:
                self.get_logger().error(f'{name}: nobody answers')
                return EXIT_NOBODY
            elif waited > _TELL_S:
                problem = f'{name}: waits for {"the answer" if count else "a robot"}'
            if problem not in ('', told):
                told = problem
                self.get_logger().warning(problem)
            if count > 1:
                continue
            # Again: a service that has not discovered this client yet does not answer.
            if client.service_is_ready() and time.monotonic() - called_at > _AGAIN_S:
                called_at = time.monotonic()
                calls.append(client.call_async(self._request))
        return EXIT_OK


class ConfirmNode(AskNode):
    """Confirms what was so when it was started."""

    NAME = 'confirm'

    def __init__(self) -> None:
        super().__init__(CONFIRM)


main = ConfirmNode.main
