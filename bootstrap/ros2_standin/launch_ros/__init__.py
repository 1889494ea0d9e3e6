"""
A small stand-in for the ROS 2 package `launch_ros`: nodes, parameters and namespaces in a launch.

Like the stand-in for `launch` it has the names, module paths and behaviour that Python launch
files use.  rclpy is imported only by what needs a node of its own: lifecycle nodes.
"""

from launch._unknown import unknown_attributes

from . import (
    actions,
    event_handlers,
    events,
    parameter_descriptions,
    ros_adapters,
    substitutions,
    utilities,
)

__all__ = [
    'actions',
    'event_handlers',
    'events',
    'parameter_descriptions',
    'ros_adapters',
    'substitutions',
    'utilities',
]

__getattr__ = unknown_attributes(__name__)
