"""Tasks of the arm for reinforcement learning, in its twins."""

from vdl_ros.common.opengl import draw_without_display

# Before MuJoCo is imported.
draw_without_display()
