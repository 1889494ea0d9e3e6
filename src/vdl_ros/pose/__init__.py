"""Where arm and camera are, read off one image: data, models, training; without ROS."""
