"""A program on the same domain that is not ours."""

import pytest
import rclpy
from rclpy.node import Node


@pytest.fixture
def stranger():
    """Return a node of another program on the same domain."""
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node('stranger', context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)
