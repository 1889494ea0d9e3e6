"""Keyboard control of the arm; no ROS."""
