"""Distributed reinforcement learning on the ROS 2 graph: actors, learners, a robot arm."""

import os
import signal
import sys
from importlib import import_module

TYPE_CHECKING = False  # without typing and pathlib, whose imports take longer than all else here
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

#: Who started this process, noted before anything is imported that takes long.
PARENT_PID = os.getppid()
# The first with AutoresetMode.
_MIN_GYMNASIUM = '1.1'


def begin_program(name: str) -> None:
    """Let a Ctrl-C during imports, or an old Gymnasium, end a program without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if error := gymnasium_error():
        print(f'{name}: {error}', file=sys.stderr)
        sys.exit(2)


class TooOldError(ImportError, ValueError):
    """A library that cannot be used; programs say it in one line, as of any bad input."""


def gymnasium_error() -> str:
    """Return why the installed version of Gymnasium cannot be used, or ''."""
    from importlib import metadata

    from packaging.version import Version
    try:
        found = metadata.version('gymnasium')
    except metadata.PackageNotFoundError:
        return ''
    return '' if Version(found) >= Version(_MIN_GYMNASIUM) else (
        f"gymnasium {found} is too old: pip install 'gymnasium>={_MIN_GYMNASIUM}'")


def load_policy(path: 'str | Path') -> 'Any':
    """Return a :class:`vdl_ros.play.predictor.Predictor`, a policy for plain Python.

    It is of a checkpoint, a run's folder, or an ONNX file. ValueError: it cannot be read.
    """
    # By its name: the modules that import this one must not depend on it.
    return import_module('vdl_ros.play.predictor').load_policy(path)
