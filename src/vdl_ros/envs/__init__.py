"""Gymnasium environments and their factory, without ROS."""
