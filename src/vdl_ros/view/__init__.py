"""The arm in a browser: what is shown, and the buttons that move it, without ROS."""
