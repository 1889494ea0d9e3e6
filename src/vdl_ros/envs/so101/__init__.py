"""The SO-101, LeRobot's arm of six servos: a twin, tasks on its topics and as environments."""

from vdl_ros.common.opengl import draw_without_display

# Before MuJoCo is imported.
draw_without_display()
