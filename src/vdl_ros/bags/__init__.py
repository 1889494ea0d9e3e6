"""Read MCAP bags without ROS: in order, at random, and their messages decoded."""
