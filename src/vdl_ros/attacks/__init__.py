"""Attacks on what a policy observes, without ROS: noise, gradients, patches and schedules."""
