"""Camera images from devices, videos and folders, and their encodings; no ROS."""
