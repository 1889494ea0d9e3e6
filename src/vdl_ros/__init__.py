"""Distributed reinforcement learning on the ROS 2 graph: actors, learners, a robot arm."""

import os

#: Who started this process, noted before anything is imported that takes long.
PARENT_PID = os.getppid()
