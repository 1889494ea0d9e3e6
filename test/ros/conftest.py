"""Nodes of this process for the tests of parts of nodes."""

import pytest
import rclpy


@pytest.fixture
def node(ros_domain):
    rclpy.init()
    node = rclpy.create_node('node')
    yield node
    node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def make_node(ros_domain):
    """Return a function: a node in a namespace with these parameters, such as count:=5."""
    context = rclpy.Context()
    rclpy.init(context=context)

    def make(*parameters):
        words = (word for each in parameters for word in ('-p', each))
        return rclpy.create_node('worker', context=context, namespace='left',
                                 cli_args=['--ros-args', *words])

    yield make
    rclpy.shutdown(context=context)
