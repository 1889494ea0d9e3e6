"""Robots as environments, by contract: which topics are observation, action and reset; no ROS."""
