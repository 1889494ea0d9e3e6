"""The arm: geometry, kinematics, motors, USB protocol and simulation, without ROS."""

import os

# MuJoCo chooses its renderer when it is imported, and there is rarely a display.
os.environ.setdefault('MUJOCO_GL', 'egl')
