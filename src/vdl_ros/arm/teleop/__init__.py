"""Keyboard control of the arm: terminal, parser of keys, and the motors they run; no ROS."""
