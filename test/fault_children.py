"""What processes do that rows of the fault matrix kill, or let read; forked by the fork server."""

import time
from pathlib import Path

import torch
from mutations import limited_memory

from vdl_ros.bags.messages import MessageError, decode
from vdl_ros.bags.reader import BagError, BagReader
from vdl_ros.common.tensor_file import TensorFileError
from vdl_ros.pose.estimator import load_model
from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint

#: Bytes beyond what the process has mapped once everything is imported and read once.
MEMORY = 2 << 30


def save_in_a_loop(size, path, connection):
    torch.set_num_threads(1)
    step = 0
    while True:
        step += 1
        save_checkpoint(
            path, config={'env_id': 'x'}, progress={'step': step},
            learner={name: torch.full((size,), float(step)) for name in 'vw'})
        connection.send(step)


def read_bag(path: Path) -> None:
    refusals = []
    try:
        for message in BagReader(path):
            try:
                decode(message.data, 'sensor_msgs/msg/JointState')
            except MessageError as error:
                refusals.append(error)
    except BagError as error:
        refusals.append(error)
    if refusals:
        raise refusals[-1]


READERS = {'bag': (read_bag, ValueError), 'model': (load_model, TensorFileError),
           'checkpoint': (load_checkpoint, TensorFileError)}


def read_files(connection, valid):
    """Read the files whose kinds and paths are received, within 2 GB more memory.

    The error of each is sent, whether it is a documented one, and the processor time, s. First
    valid files are read, so that everything is imported.
    """
    def read(kind, path):
        reader, documented = READERS[kind]
        started, error = time.thread_time(), None
        try:
            reader(path)
        except Exception as raised:
            error = raised
        return {'error': '' if error is None else f'{type(error).__name__}: {error}',
                'documented': error is None or isinstance(error, documented),
                'took': time.thread_time() - started}

    torch.set_num_threads(1)
    for kind, path in valid.items():
        assert not read(kind, path)['error'], kind
    with limited_memory(MEMORY):
        while True:
            connection.send(read(*connection.recv()))
