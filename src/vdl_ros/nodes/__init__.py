"""Programs of this package that are ROS nodes, one a module, with the name of its program.

Topics: docs/nodes.md. Parameters: docs/settings.md, or ``ros2 run vdl_ros NAME --help``.
"""
