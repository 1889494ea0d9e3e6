"""The driver of the real arm: what to send, when to stop, and the USB device; no ROS."""
