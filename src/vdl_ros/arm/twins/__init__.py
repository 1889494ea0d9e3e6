"""Many simulated arms at once, for training and measurements; without ROS."""
