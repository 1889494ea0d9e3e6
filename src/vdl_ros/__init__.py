"""Distributed reinforcement learning on the ROS 2 graph: actors, learners, a robot arm."""
