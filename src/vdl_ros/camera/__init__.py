"""Camera images from devices, videos and folders; no ROS."""
