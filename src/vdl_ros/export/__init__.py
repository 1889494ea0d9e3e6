"""Export bags as data sets of LeRobot and robomimic, without ROS."""
