"""Trajectory control of the arm's on/off motors; no ROS."""
