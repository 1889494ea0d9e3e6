"""Estimate arm and camera poses from a picture: data, networks, training; without ROS."""
