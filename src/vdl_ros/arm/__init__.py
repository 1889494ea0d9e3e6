"""The arm: geometry, kinematics, motors, USB protocol and simulation, without ROS."""

from vdl_ros.common.opengl import draw_without_display

# Before anything here imports MuJoCo.
draw_without_display()
