"""Data sets of LeRobot, without ROS: made of bags, checked, read."""
