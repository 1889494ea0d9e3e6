"""Scalars for TensorBoard: each call is written at once, whole or not at all."""

import io
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from vdl_ros.common.files import append_whole

_PREFIX = 'events.out.tfevents.'


class EventFile:
    """A new file of events in a folder, read after those that are there.

    Events from ``purge_step`` on in the other files do not count any more. OSError: it cannot be
    written.
    """

    def __init__(self, folder: Path, purge_step: int) -> None:
        # TensorBoard reads files in the order of their names, which have the time when they were
        # made; the clock may have been set back since.
        before = [each.name.split('.')[3] for each in folder.glob(f'{_PREFIX}*')]
        number = max([int(time.time()), *(int(each) + 1 for each in before if each.isdecimal())])
        self._path = folder / f'{_PREFIX}{number:010d}.{socket.gethostname()}.{os.getpid()}.0'
        self._write({'file_version': 'brain.Event:2'},
                    {'step': purge_step, 'session_log': SessionLog(status=SessionLog.START)})

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        self._write({'step': step, 'summary': Summary(value=[
            Summary.Value(tag=tag, simple_value=float(value)) for tag, value in scalars.items()])})

    def _write(self, *events: dict[str, Any]) -> None:
        data = io.BytesIO()
        writer = RecordWriter(data)
        for event in events:
            writer.write(Event(wall_time=time.time(), **event).SerializeToString())
        append_whole(self._path, data.getvalue())
