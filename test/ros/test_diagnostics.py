"""Diagnostics have the format that other tools read."""

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from vdl_ros.ros import qos
from vdl_ros.ros.diagnostics import Diagnostics


@pytest.mark.parametrize(('warning', 'level', 'message'), [
    ('', DiagnosticStatus.OK, 'ok'),
    ('2 trajectories lost', DiagnosticStatus.WARN, '2 trajectories lost'),
])
def test_level_message_and_values_are_published(warning, level, message):
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node('patient', namespace='ward', context=context)
    received: list[DiagnosticArray] = []
    node.create_subscription(
        DiagnosticArray, '/diagnostics', received.append, qos.TOPICS['/diagnostics'])
    diagnostics = Diagnostics(node, lambda: (warning, {'lost': 2, 'lag': 0.5}))
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    for _ in range(100):
        if received:
            break
        executor.spin_once(timeout_sec=0.1)
    status = received[0].status[0]
    assert (status.level, status.name, status.message) == (level, '/ward/patient', message)
    assert {each.key: each.value for each in status.values} == {'lost': '2', 'lag': '0.5'}
    assert received[0].header.stamp.sec > 0
    assert diagnostics is not None
    executor.remove_node(node)
    node.destroy_node()
    rclpy.shutdown(context=context)
