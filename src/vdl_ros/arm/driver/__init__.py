"""Driver of the real arm: USB device, protocol, safety logic and guardian process; no ROS."""
