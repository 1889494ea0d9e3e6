"""Bags become data sets of other projects' robot learning, without ROS."""
