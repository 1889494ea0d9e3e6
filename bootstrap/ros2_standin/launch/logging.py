"""Log lines of the launch, and output of its processes: on the screen and in `launch.log`.

The log file is in a folder for each launch below `ROS_LOG_DIR`, else below `log` in `ROS_HOME`,
which is `~/.ros` by default. It is made when the first line is written.
"""

import contextlib
import datetime
import functools
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from ._core import ADVICE


@functools.cache
def log_dir() -> str:
    """Return the folder of this launch; `latest` beside it is a link to the newest one."""
    base = os.environ.get('ROS_LOG_DIR') or os.path.join(
        os.environ.get('ROS_HOME') or os.path.join('~', '.ros'), 'log')
    base = os.path.normpath(os.path.expanduser(base))
    now = datetime.datetime.now().strftime('%Y-%m-%d-%H-%M-%S-%f')
    folder = os.path.join(base, f'{now}-{socket.gethostname()}-{os.getpid()}')
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise RuntimeError(f'no folder for the logs of ROS: {base}: {error.strerror}; set '
                           'ROS_LOG_DIR to a folder that can be written') from error
    link = os.path.join(base, 'latest')
    # Launches that start at the same time compete for the link.
    with contextlib.suppress(OSError):
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(folder, link, target_is_directory=True)
    return folder


class _Formatter(logging.Formatter):
    """Leaves lines of processes, whose records have no level, as they are."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record) if record.levelno else record.getMessage()


class _Screen(logging.StreamHandler):
    """Writes to the present standard output."""

    @property
    def stream(self) -> Any:
        return sys.stdout

    @stream.setter
    def stream(self, stream: Any) -> None:
        pass


class _LogFile(logging.FileHandler):
    """Writes to `launch.log`, each line with its time."""

    def _open(self) -> Any:
        return open(os.path.join(log_dir(), 'launch.log'), 'a', encoding='utf-8')

    def format(self, record: logging.LogRecord) -> str:
        return f'{record.created:.7f} {super().format(record)}'


# A reader that has gone (`ros2 launch ... | head`) must not keep the launch from stopping its
# processes.
logging.raiseExceptions = False
_screen, _log_file = _Screen(), _LogFile('launch.log', delay=True)
for _handler in (_screen, _log_file):
    _handler.setFormatter(_Formatter('[{levelname}] [{name}]: {message}', style='{'))
# Where the lines of stdout and of stderr go, by the `output` of a process.
_OUTPUTS: dict[str, tuple[list[Any], list[Any]]] = {
    'screen': ([_screen], [_screen]),
    'log': ([_log_file], [_log_file, _screen]),
    'both': ([_log_file, _screen], [_log_file, _screen]),
}


def get_logger(name: str | None = None) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.propagate = False
    for handler in (_screen, _log_file):
        if handler not in logger.handlers:
            logger.addHandler(handler)
    return logger


def output_writers(process: str, output: str) -> dict[int, Callable[[str], None]]:
    """Return the functions that write a line of a process, by file descriptor (1 and 2)."""
    if output not in _OUTPUTS:
        raise ValueError(f"output '{output}' {ADVICE} (here: {', '.join(_OUTPUTS)})")

    def write(places: list[Any], line: str) -> None:
        for place in places:
            place.handle(logging.makeLogRecord({'msg': f'[{process}] {line}'}))

    return {fd: functools.partial(write, places) for fd, places in enumerate(_OUTPUTS[output], 1)}
