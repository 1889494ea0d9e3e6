"""Publish a node's health on ``/diagnostics`` each second, for rqt_robot_monitor and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from vdl_ros.ros import qos

__all__ = ['Diagnostics', 'Health']

_PERIOD_S = 1.0

# (warning or '', values by name)
Health = tuple[str, Mapping[str, object]]


class Diagnostics:
    """Publishes the result of ``check``: level OK, or WARN with a warning."""

    def __init__(self, node: Node, check: Callable[[], Health]) -> None:
        self._node, self._check = node, check
        self._publisher = node.create_publisher(
            DiagnosticArray, '/diagnostics', qos.TOPICS['/diagnostics'])
        self._timer = node.create_timer(_PERIOD_S, self._publish)

    def _publish(self) -> None:
        warning, values = self._check()
        message = DiagnosticArray(status=[DiagnosticStatus(
            level=DiagnosticStatus.WARN if warning else DiagnosticStatus.OK,
            name=self._node.get_fully_qualified_name(), message=warning or 'ok',
            hardware_id='', values=[KeyValue(key=key, value=str(value))
                                    for key, value in values.items()])])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)
