"""Terminal in raw mode: reads single keys, shows a status line, restores itself at the end."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
from types import TracebackType

__all__ = ['Terminal']

# Mark pasted text; query the flags of the kitty protocol; report loss of the keyboard focus.
_BEGIN, _FLAGS = '\x1b[?2004h', '\x1b[?u'
_FOCUS, _NO_FOCUS = '\x1b[?1004h', '\x1b[?1004l'
_END = '\x1b[?2004l'
_CLEAR_LINE = '\r\x1b[K'
# A write that would block for longer is dropped, s: it must not delay commands.
_WRITE_S = 0.1


class Terminal:
    """Context manager of standard input and output: raw inside, always restored at the end."""

    def __init__(self, source: int | None = None, sink: int | None = None) -> None:
        """
        Check the descriptors; change nothing yet.

        Args:
            source: descriptor of a terminal to read, standard input by default.
            sink: descriptor of a terminal to write, standard output by default.

        Raises:
            ValueError: one of them is not a terminal.
        """
        self._source = sys.stdin.fileno() if source is None else source
        self._sink = sys.stdout.fileno() if sink is None else sink
        for name, descriptor in (('input', self._source), ('output', self._sink)):
            if not os.isatty(descriptor):
                raise ValueError(f'standard {name} is not a terminal: teleop reads keys')
        self._reporting = False
        self._status = ''

    def __enter__(self) -> Terminal:
        """Enter raw mode: single keys, no echo; Ctrl-C and Ctrl-Z are keys as well."""
        self._before = termios.tcgetattr(self._source)
        raw = termios.tcgetattr(self._source)
        raw[0] &= ~(termios.IXON | termios.ICRNL | termios.INLCR | termios.ISTRIP)
        raw[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._source, termios.TCSANOW, raw)
        self._write(_BEGIN + _FLAGS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Restore the terminal if it still exists."""
        self._write((f'\x1b[<u{_NO_FOCUS}' if self._reporting else '') + _END + '\n')
        with contextlib.suppress(termios.error, OSError):
            # Unread input was typed for this program, not for the shell.
            termios.tcflush(self._source, termios.TCIFLUSH)
            # Without waiting for output: a paused terminal accepts none.
            termios.tcsetattr(self._source, termios.TCSANOW, self._before)

    def read(self, timeout: float) -> bytes | None:
        """Return input within ``timeout`` (s), b'' if there is none; None if disconnected."""
        if not select.select([self._source], [], [], timeout)[0]:
            return b''
        try:
            return os.read(self._source, 1024) or None
        except OSError:
            return None

    def enable_reports(self, bits: int) -> None:
        """Enable ``bits`` of the kitty protocol and query which of them are on."""
        self._reporting = True
        self._write(f'\x1b[>{bits}u{_FLAGS}{_FOCUS}')

    def ask(self) -> None:
        """Query the flags of the kitty protocol: a terminal that is there answers."""
        self._write(_FLAGS)

    def log(self, text: str) -> None:
        """Write lines above the status line."""
        self._write(_CLEAR_LINE + text + '\n' + self._clipped())

    def set_status(self, status: str) -> None:
        """Redraw the status line if it changed."""
        if status != self._status:
            self._status = status
            self._write(_CLEAR_LINE + self._clipped())

    def _clipped(self) -> str:
        try:
            columns = os.get_terminal_size(self._sink).columns or 80
        except OSError:
            columns = 80
        return self._status[:columns - 1]

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            if select.select([], [self._sink], [], _WRITE_S)[1]:
                os.write(self._sink, text.encode())
