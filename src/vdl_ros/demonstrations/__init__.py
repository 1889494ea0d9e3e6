"""Demonstrations: who records them, and their episodes as observations and actions; no ROS."""
