"""Conversions between NumPy arrays and ROS messages."""
