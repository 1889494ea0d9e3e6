"""Diagnostics as other tools read them."""

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
def test_a_node_says_how_it_is(warning, level, message):
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node('patient', namespace='ward', context=context)
    heard: list[DiagnosticArray] = []
    node.create_subscription(
        DiagnosticArray, '/diagnostics', heard.append, qos.TOPICS['/diagnostics'])
    diagnostics = Diagnostics(node, lambda: (warning, {'lost': 2, 'lag': 0.5}))
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    for _ in range(100):
        if heard:
            break
        executor.spin_once(timeout_sec=0.1)
    status = heard[0].status[0]
    assert (status.level, status.name, status.message) == (level, '/ward/patient', message)
    assert {each.key: each.value for each in status.values} == {'lost': '2', 'lag': '0.5'}
    assert heard[0].header.stamp.sec > 0
    assert diagnostics is not None
    executor.remove_node(node)
    node.destroy_node()
    rclpy.shutdown(context=context)
