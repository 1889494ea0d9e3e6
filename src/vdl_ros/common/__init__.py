"""Shared modules without ROS: settings, resources, signals, OpenGL, precision, timers."""
