"""Imports the package before any test imports mujoco, whose way to OpenGL it chooses."""

import vdl_ros.arm  # noqa: F401
