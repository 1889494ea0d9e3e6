"""A process that reads the files whose kinds and paths it is sent, within 2 GB more memory."""

import json
import sys
import time
from pathlib import Path

from mutations import limited_memory

from vdl_ros.bags.indexed_file import IndexedFile
from vdl_ros.bags.messages import MessageError, decode
from vdl_ros.bags.reader import BagError, BagReader, closed_part
from vdl_ros.common.tensor_file import TensorFileError
from vdl_ros.pose.model_file import load_model
from vdl_ros.rl.runs.checkpoint import load_checkpoint

#: Bytes beyond what the process has mapped once everything is imported and read once.
MEMORY = 2 << 30


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
    closed_part(path)
    try:
        file = IndexedFile(path)
        for place in file.messages:
            file.read(place)
    except BagError as error:
        refusals.append(error)
    if refusals:
        raise refusals[-1]


READERS = {'bag': read_bag, 'model': load_model, 'checkpoint': load_checkpoint}
ERRORS = {'bag': ValueError, 'model': TensorFileError, 'checkpoint': TensorFileError}


def read(kind: str, path: Path) -> dict:
    """Return the error, if any, whether it is a documented one, and processor time, s."""
    started, error = time.thread_time(), None
    try:
        READERS[kind](path)
    except Exception as raised:
        error = raised
    took = time.thread_time() - started
    return {'error': '' if error is None else f'{type(error).__name__}: {error}',
            'documented': error is None or isinstance(error, ERRORS[kind]), 'took': took}


def main() -> None:
    # The first lines are of valid files, so that everything is imported.
    for _ in READERS:
        print(json.dumps(read(*_next())), flush=True)
    with limited_memory(MEMORY):
        while (sent := _next()) is not None:
            print(json.dumps(read(*sent)), flush=True)


def _next() -> tuple[str, Path] | None:
    line = sys.stdin.readline()
    if not line:
        return None
    kind, path = json.loads(line)
    return kind, Path(path)


if __name__ == '__main__':
    main()
