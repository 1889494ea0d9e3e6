"""Distributed reinforcement learning on the ROS 2 graph: actors, learners, a robot arm."""

import os

#: Who started this process, noted before anything is imported that takes long.
PARENT_PID = os.getppid()

# PyTorch's threads sleep while they wait for each other. Else they hold their cores meanwhile, and
# beside busy actors or other programs an update takes several times as long.
os.environ.setdefault('OMP_WAIT_POLICY', 'PASSIVE')
