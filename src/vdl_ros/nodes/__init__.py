"""ROS 2 nodes: one file, one executable, one node class; parameters, topics, timers."""

import os

# Before NumPy is imported: a node is one of many processes on a machine, and a thread for each
# core in each of them would slow all others down. PyTorch has threads of its own.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
