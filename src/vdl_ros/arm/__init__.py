"""The arm: model, driver, simulation, control and keyboard; no ROS."""

from vdl_ros.common.opengl import draw_without_display

# Before anything here imports MuJoCo.
draw_without_display()
