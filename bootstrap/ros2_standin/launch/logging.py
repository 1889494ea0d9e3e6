"""
Where the launch system and the processes it starts write: the screen and log files.

The log files of a launch are in a directory of its own below `ROS_LOG_DIR`, or else `log` in
`ROS_HOME`, which is `~/.ros` by default.  It is made when the first line is written to it.
"""

from __future__ import annotations

import datetime
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from ._unknown import unknown_attributes

__all__ = ['get_logger', 'launch_config', 'log_launch_config', 'output_writers', 'reset']

_FORMATS = {
    'default': '[{levelname}] [{name}]: {msg}',
    'default_with_timestamp': '{created:.7f} [{levelname}] [{name}]: {msg}',
}
_PLAIN = logging.Formatter('{message}', style='{')
_PLAIN_WITH_TIME = logging.Formatter('{created:.7f} {message}', style='{')
# A record of a process's output says so in this attribute, and is written without a prefix.
_IS_OUTPUT = 'is_process_output'


def logging_directory() -> str:
    """Give the directory that the log directories of launches are made in."""
    directory = os.environ.get('ROS_LOG_DIR')
    if not directory:
        home = os.environ.get('ROS_HOME') or os.path.join('~', '.ros')
        directory = os.path.join(home, 'log')
    return os.path.normpath(os.path.expanduser(directory))


def _formatter(variable: str, default: str) -> logging.Formatter:
    """Make the formatter that an environment variable asks for."""
    text = os.environ.get(variable) or default
    text = _FORMATS.get(text, text.encode('latin1').decode('unicode_escape'))
    return logging.Formatter(text.replace('{msg}', '{message}'), style='{')


class _ScreenHandler(logging.Handler):
    """Writes to whatever is the standard output at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        text = _PLAIN.format(record) if hasattr(record, _IS_OUTPUT) else self.format(record)
        encoding = getattr(sys.stdout, 'encoding', None) or 'utf-8'
        try:
            sys.stdout.write(text.encode(encoding, 'replace').decode(encoding) + '\n')
            sys.stdout.flush()
        except (OSError, ValueError):
            # A reader that went away (`ros2 launch ... | head`) must not keep the processes from
            # being brought down in order.
            pass


class _FileHandler(logging.Handler):
    """Writes to a file of the log directory, which is opened for the first record."""

    def __init__(self, config: LaunchConfig, file_name: str, plain: Any | None = None) -> None:
        super().__init__()
        self._config = config
        self._file_name = file_name
        self._plain = plain
        self._file: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None:
            path = self._config.get_log_file_path(self._file_name)
            self._file = open(path, 'a', encoding='utf-8')  # noqa: SIM115 (kept while launching)
        if self._plain is not None:
            text = self._plain.format(record)
        elif hasattr(record, _IS_OUTPUT):
            text = _PLAIN_WITH_TIME.format(record)
        else:
            text = self.format(record)
        self._file.write(text + '\n')
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()


class LaunchConfig:
    """The level, the log directory and the handlers; there is one, `launch_config`."""

    def __init__(self) -> None:
        """Begin without a log directory."""
        self._log_dir: str | None = None
        self.file_handlers: dict[str, logging.Handler] = {}
        self._screen_handler = _ScreenHandler()
        self._screen_handler.setFormatter(_formatter('OVERRIDE_LAUNCH_SCREEN_FORMAT', 'default'))
        logging.root.setLevel(logging.INFO)

    @property
    def level(self) -> int:
        """The level that loggers have by default."""
        return logging.root.getEffectiveLevel()

    @level.setter
    def level(self, new_level: int) -> None:
        logging.root.setLevel(new_level)

    @property
    def log_dir(self) -> str:
        """The log directory of this launch."""
        if self._log_dir is None:
            base = logging_directory()
            now = datetime.datetime.now().strftime('%Y-%m-%d-%H-%M-%S-%f')
            directory = os.path.join(base, f'{now}-{socket.gethostname()}-{os.getpid()}')
            os.makedirs(directory, exist_ok=True)
            _point_latest_at(directory, os.path.join(base, 'latest'))
            self._log_dir = directory
        return self._log_dir

    @log_dir.setter
    def log_dir(self, new_log_dir: str | None) -> None:
        if new_log_dir is not None and not os.path.isdir(new_log_dir):
            raise ValueError(f'{new_log_dir} is not a directory')
        self._log_dir = new_log_dir

    def get_log_file_path(self, file_name: str = 'launch.log') -> str:
        """Give the path of a log file."""
        return os.path.join(self.log_dir, file_name)

    def get_screen_handler(self) -> logging.Handler:
        """Give the handler that writes to the screen."""
        return self._screen_handler

    def get_log_file_handler(
        self, file_name: str = 'launch.log', *, plain: logging.Formatter | None = None
    ) -> logging.Handler:
        """Give the handler that writes to a log file."""
        if file_name not in self.file_handlers:
            handler = _FileHandler(self, file_name, plain)
            handler.setFormatter(
                _formatter('OVERRIDE_LAUNCH_LOG_FORMAT', 'default_with_timestamp')
            )
            self.file_handlers[file_name] = handler
        return self.file_handlers[file_name]


def _point_latest_at(directory: str, link: str) -> None:
    """Make the link `latest`, which launches that start at the same time may fight over."""
    try:
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(directory, link, target_is_directory=True)
    except OSError:
        pass


launch_config = LaunchConfig()


def reset() -> None:
    """Forget the log directory and the open log files."""
    for handler in launch_config.file_handlers.values():
        handler.close()
    launch_config.__init__()  # type: ignore[misc]


def _add_handlers(logger: logging.Logger, *handlers: logging.Handler) -> None:
    if logger is not logging.root:
        logger.propagate = False
    for handler in handlers:
        if handler not in logger.handlers:
            logger.addHandler(handler)


def get_logger(name: str | None = None) -> logging.Logger:
    """Give a logger that writes to the screen and to `launch.log`."""
    logger = logging.getLogger(name)
    _add_handlers(
        logger, launch_config.get_screen_handler(), launch_config.get_log_file_handler()
    )
    return logger


def _destinations(output: Any) -> dict[str, set[str]]:
    """Tell where the streams of a process go: screen, log (launch.log) or own_log."""
    if isinstance(output, dict):
        result: dict[str, set[str]] = {'stdout': set(), 'stderr': set(), 'both': set()}
        for source, places in output.items():
            if source not in result:
                raise ValueError(
                    f'{source} is not a valid output source i.e. "stdout", "stderr" or "both"'
                )
            result[source] = {places} if isinstance(places, str) else set(places)
            for place in result[source]:
                if place not in ('screen', 'log', 'own_log'):
                    raise ValueError(
                        f'{place} is not a valid output destination i.e. "screen", "log" or '
                        '"own_log"'
                    )
        return result
    own = {'stdout': {'own_log'}, 'stderr': {'own_log'}}
    known: dict[str, dict[str, set[str]]] = {
        'screen': {'both': {'screen'}},
        'log': {'both': {'log'}, 'stderr': {'screen'}},
        'both': {'both': {'log', 'screen'}},
        'own_log': {'both': {'own_log'}, **own},
        'full': {'both': {'screen', 'log', 'own_log'}, **own},
    }
    if output not in known:
        raise ValueError(
            f'{output} is not a valid standard output config i.e. "screen", "log" or "both"'
        )
    return {'stdout': set(), 'stderr': set(), 'both': set(), **known[output]}


def output_writers(
    process_name: str, output_config: Any
) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """Give the functions that a process's lines on stdout and on stderr are written with."""
    places = _destinations(output_config)

    def writer(source: str) -> Callable[[str], None]:
        logger = logging.getLogger(f'{process_name}-{source}')
        logger.propagate = False
        wanted = places[source] | places['both']
        if 'screen' in wanted:
            _add_handlers(logger, launch_config.get_screen_handler())
        if 'log' in wanted:
            _add_handlers(logger, launch_config.get_log_file_handler())
        for name, sources in (
            (f'{process_name}-{source}.log', places[source]),
            (f'{process_name}.log', places['both']),
        ):
            if 'own_log' in sources:
                _add_handlers(logger, launch_config.get_log_file_handler(name, plain=_PLAIN))
        return lambda line: logger.info('%s', line, extra={_IS_OUTPUT: True})

    return writer('stdout'), writer('stderr')


def log_launch_config(*, logger: logging.Logger) -> None:
    """Log where the log files are, and the level."""
    logger.info(f'All log files can be found below {launch_config.log_dir}')
    logger.info(f'Default logging verbosity is set to {logging.getLevelName(launch_config.level)}')


__getattr__ = unknown_attributes(__name__)
