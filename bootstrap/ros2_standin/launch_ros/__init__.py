"""A small stand-in for the ROS 2 package `launch_ros`; see the stand-in for `launch`."""

from . import actions, parameter_descriptions, substitutions

__all__ = ['actions', 'parameter_descriptions', 'substitutions']
