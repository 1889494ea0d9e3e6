"""Keys of the episode recorder, from a terminal or, as lines, from a pipe or a file.

On a terminal a key acts at once, without Enter; it stays in this mode until the end, and Ctrl-C
stays a signal. Only the text of a task is a line.
"""

import contextlib
import os
import select
import sys
import termios
import tty
from typing import Any, NamedTuple

#: Request of each key.
KEYS = {'s': 'start', 'y': 'success', 'n': 'failure', 'd': 'discard', 't': 'task', 'q': 'quit',
        'h': 'help'}
HELP = ('s start   y save as a success   n save as a failure   d discard   t task   q quit   '
        'h help')
# Bytes of a line.
_MAX_LINE = 4096


class Request(NamedTuple):
    """One of the values of ``KEYS``, or '' for another key; ``text`` is that of a task or key."""

    name: str
    text: str = ''


class EpisodeKeys:
    """Context manager of an input; inside, keys of a terminal are read without Enter."""

    def __init__(self, source: int | None = None) -> None:
        self._source = sys.stdin.fileno() if source is None else source
        #: Else lines of a file or another program are read.
        self.is_terminal = os.isatty(self._source)
        self._by_line = not self.is_terminal
        self._buffer = b''
        self._has_ended = False
        self._before: list[Any] = []

    def __enter__(self) -> 'EpisodeKeys':
        if self.is_terminal:
            self._before = termios.tcgetattr(self._source)
            tty.setcbreak(self._source, termios.TCSANOW)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def read(self) -> Request | None:
        """Return the next request without waiting; None: there is none yet.

        At the end of the input it is ``quit``.
        """
        if not self._has_ended and select.select([self._source], [], [], 0.0)[0]:
            try:
                data = os.read(self._source, 1024)
            except OSError:
                data = b''
            self._has_ended = not data
            self._buffer = (self._buffer + data)[-_MAX_LINE:]
        request = self._next_line() if self._by_line else self._next_key()
        if request is None and self._has_ended:
            return Request('quit')
        return request

    def _next_key(self) -> Request | None:
        if not self._buffer:
            return None
        key, self._buffer = self._buffer[:1].decode('latin-1').lower(), self._buffer[1:]
        name = KEYS.get(key, '')
        if name == 'task':
            # The terminal shows and edits the line.
            self._restore()
            self._by_line = True
            return Request('ask')
        return Request(name, key)

    def _next_line(self) -> Request | None:
        line, end, rest = self._buffer.partition(b'\n')
        if not end and not (self._has_ended and line):
            return None
        self._buffer = rest
        text = ' '.join(line.decode(errors='replace').split())
        if self.is_terminal:
            self._by_line = False
            with contextlib.suppress(termios.error, OSError):
                tty.setcbreak(self._source, termios.TCSANOW)
            return Request('task', text)
        word, _, rest_of_line = text.partition(' ')
        name = KEYS.get(word, word if word in KEYS.values() else '')
        return Request(name, rest_of_line if name == 'task' else word) if text else None

    def _restore(self) -> None:
        if self.is_terminal:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self._source, termios.TCSANOW, self._before)
