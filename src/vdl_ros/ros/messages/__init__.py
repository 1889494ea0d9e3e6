"""Conversions between numpy arrays and ROS messages."""
