"""ROS 2 nodes: one file, one executable, one node class; parameters, topics, timers."""
