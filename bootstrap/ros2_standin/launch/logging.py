"""Log lines of the launch, and output of its processes: on the screen and in `launch.log`.

The log file is in a folder for each launch below `ROS_LOG_DIR`, else below `log` in `ROS_HOME`,
which is `~/.ros` by default. It is made when the first line is written.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from ._missing import ADVICE, missing_names

__all__ = ['get_logger', 'launch_config']


class LaunchConfig:
    """Settings of the log; the only instance is `launch_config`."""

    def __init__(self) -> None:
        self._log_dir = ''

    @property
    def level(self) -> int:
        """The level of all loggers."""
        return logging.root.level

    @level.setter
    def level(self, level: int) -> None:
        logging.root.setLevel(level)

    @property
    def log_dir(self) -> str:
        """The folder of this launch; `latest` beside it is a link to the newest one."""
        if not self._log_dir:
            base = os.environ.get('ROS_LOG_DIR') or os.path.join(
                os.environ.get('ROS_HOME') or os.path.join('~', '.ros'), 'log')
            base = os.path.normpath(os.path.expanduser(base))
            now = datetime.datetime.now().strftime('%Y-%m-%d-%H-%M-%S-%f')
            self._log_dir = os.path.join(base, f'{now}-{socket.gethostname()}-{os.getpid()}')
            os.makedirs(self._log_dir, exist_ok=True)
            link = os.path.join(base, 'latest')
            # Launches that start at the same time compete for the link.
            with contextlib.suppress(OSError):
                if os.path.islink(link):
                    os.unlink(link)
                os.symlink(self._log_dir, link, target_is_directory=True)
        return self._log_dir


launch_config = LaunchConfig()


class _Screen(logging.Handler):
    """Writes to the present standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        self.write(self.format(record))

    def write(self, text: str) -> None:
        encoding = getattr(sys.stdout, 'encoding', None) or 'utf-8'
        # A reader that has gone (`ros2 launch ... | head`) must not keep the launch from stopping
        # its processes.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(text.encode(encoding, 'replace').decode(encoding) + '\n')
            sys.stdout.flush()


class _LogFile(logging.Handler):
    """Writes to `launch.log`, which is opened for the first line."""

    _file: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        self.write(self.format(record), record.created)

    def write(self, text: str, created: float | None = None) -> None:
        if self._file is None:
            path = os.path.join(launch_config.log_dir, 'launch.log')
            self._file = open(path, 'a', encoding='utf-8')  # noqa: SIM115 (open to the end)
        self._file.write(f'{time.time() if created is None else created:.7f} {text}\n')
        self._file.flush()


_screen, _log_file = _Screen(), _LogFile()
for _handler in (_screen, _log_file):
    _handler.setFormatter(logging.Formatter('[{levelname}] [{name}]: {message}', style='{'))
# Where the lines of stdout and of stderr go, by the `output` of a process.
_OUTPUTS: dict[str, tuple[list[Any], list[Any]]] = {
    'screen': ([_screen], [_screen]),
    'log': ([_log_file], [_log_file, _screen]),
    'both': ([_log_file, _screen], [_log_file, _screen]),
}


def get_logger(name: str | None = None) -> logging.Logger:
    """Return a logger that writes to the screen and to `launch.log`."""
    logger = logging.getLogger(name)
    logger.propagate = False
    for handler in (_screen, _log_file):
        if handler not in logger.handlers:
            logger.addHandler(handler)
    return logger


def output_writers(process: str, output: str) -> dict[int, Callable[[str], None]]:
    """Return the functions that write a line of a process, by file descriptor (1 and 2).

    Raises:
        ValueError: unknown output.
    """
    if output not in _OUTPUTS:
        raise ValueError(f"output '{output}' {ADVICE} (here: {', '.join(_OUTPUTS)})")

    def writer(places: list[Any]) -> Callable[[str], None]:
        def write(line: str) -> None:
            for place in places:
                place.write(f'[{process}] {line}')
        return write

    return {fd: writer(places) for fd, places in enumerate(_OUTPUTS[output], 1)}


__getattr__ = missing_names(__name__)
