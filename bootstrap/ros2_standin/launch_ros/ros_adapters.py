"""The ROS node that the launch itself has, if an action needs one."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from launch._unknown import unknown_attributes
from launch.event_handlers import OnShutdown
from launch.launch_context import LaunchContext

__all__ = ['ROSAdapter', 'get_ros_adapter', 'get_ros_node']


class ROSAdapter:
    """A node that a thread spins until the launch shuts down."""

    def __init__(self, *, argv: Sequence[str] | None = None) -> None:
        """Make the node, in a ROS context of its own that leaves the signals alone."""
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.ros_context = rclpy.Context()
        rclpy.init(args=list(argv or ()), context=self.ros_context)
        self.ros_node: Any = rclpy.create_node(
            f'launch_ros_{os.getpid()}', context=self.ros_context
        )
        self.ros_executor = SingleThreadedExecutor(context=self.ros_context)
        self.ros_executor.add_node(self.ros_node)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        while not self._stop.is_set():
            self.ros_executor.spin_once(timeout_sec=0.1)

    def shutdown(self) -> None:
        """Let go of everything; does nothing the second time."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        self.ros_executor.remove_node(self.ros_node)
        self.ros_node.destroy_node()
        self.ros_context.try_shutdown()


def get_ros_adapter(context: LaunchContext) -> ROSAdapter:
    """Give the adapter of a launch, which is made when it is first asked for."""
    adapter = context.get_locals_as_dict().get('ros_adapter')
    if adapter is None:
        made = adapter = ROSAdapter()
        context.extend_globals({'ros_adapter': made})
        context.register_event_handler(
            OnShutdown(on_shutdown=lambda event, context: made.shutdown())
        )
    return adapter


def get_ros_node(context: LaunchContext) -> Any:
    """Give the node of a launch."""
    return get_ros_adapter(context).ros_node


__getattr__ = unknown_attributes(__name__)
