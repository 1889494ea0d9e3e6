"""
Forks a child for each line of input, a size and a path, that saves checkpoints there in a loop.

Writes the child's id, then each step that it has saved, then -1 once it has ended. The children
share one import of torch.
"""

import os
import sys
from pathlib import Path

import torch

from vdl_ros.rl.runs.checkpoint import save_checkpoint

torch.set_num_threads(1)


def save_in_a_loop(size, path):
    step = 0
    while True:
        step += 1
        tensors = {name: torch.full((size,), float(step)) for name in 'vw'}
        save_checkpoint(
            path, config={'env_id': 'x'}, learner=tensors, progress={'step': step})
        # Fails, and ends this process, once nobody reads.
        os.write(1, f'{step}\n'.encode())


for line in sys.stdin.buffer:
    size, path = line.decode().rstrip('\n').split(' ', 1)
    # The child must not report before this process has named it.
    start_read, start_write = os.pipe()
    child = os.fork()
    if not child:
        os.read(start_read, 1)
        save_in_a_loop(int(size), Path(path))
    os.write(1, f'{child}\n'.encode())
    os.write(start_write, b'x')
    os.close(start_read)
    os.close(start_write)
    os.waitpid(child, 0)
    os.write(1, b'-1\n')
