"""Parser of terminal input: turns bytes into keys, with presses and releases where available.

A plain terminal sends a byte for each key, repeats it while the key is held, and reports no
release. A terminal with the kitty keyboard protocol, once enabled, sends
``CSI code ; modifiers : event u`` for each press, repeat and release. All other input (answers of
the terminal, function keys, pasted text, noise) is recognised and dropped.
"""

import contextlib
import os
import re
import select
import sys
import termios
from dataclasses import dataclass

_CTRL_C = 0x03
# An escape sequence arrives at once; a lone ESC is a key. An unfinished paste ends after a while.
_SEQUENCE_S, _PASTE_S = 0.1, 1.0
# The body of a longer sequence is dropped: no key has one.
_MAX_LENGTH = 64
# More different keys between two reads are pasted text.
_FINGERS = 4
_PASTE_END = b'\x1b[201~'
_EVENTS = {'1': 'press', '2': 'repeat', '3': 'release'}
_CTRL, _OTHER_MODIFIERS = 4, 2 | 8 | 16 | 32
_NAMES = {27: 'esc', 32: 'space'}
# Keys that stop the motors count even within pasted or garbled text.
_ALWAYS = ('ctrl-c', 'esc', 'space')
# One key or sequence; no match: it is incomplete. A sequence ends before an invalid byte.
_TOKEN = re.compile(rb'''
    (?P<byte> [^\x1b])
  | \x1b\[ (?P<body> [ -?]*) (?: (?P<final> [@-~]) | (?=[^ -~]) )
  | \x1b[]P_^X] [^\x03\x07\x18\x1a\x1b]* (?: [\x07\x18\x1a] | \x1b\\ | (?=\x03|\x1b.) )
  | \x1bO.                                  # function key
  | (?P<escape> \x1b (?=\x1b))
  | \x1b (?: (?=[\x00-\x1f]) | [^[\]P_^XO] )  # Alt and a key; a control byte is kept
''', re.VERBOSE | re.DOTALL)


@dataclass(frozen=True)
class Key:
    """A key event.

    ``name`` is its character in lower case, 'space', 'esc', 'ctrl-c', or 'focus-out' when the
    terminal lost the keyboard focus. ``kind`` is 'press', 'repeat', 'release', or 'typed' from a
    terminal that does not distinguish them.
    """

    name: str
    kind: str = 'typed'


@dataclass(frozen=True)
class Flags:
    """The terminal's answer: bits of the kitty protocol that are enabled."""

    value: int


class Keyboard:
    """Parser of a terminal's bytes, which may arrive in any pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._pasting = False
        self._at = 0.0

    def feed(self, data: bytes, now: float) -> list[Key | Flags]:
        """Return the events that ``data``, read at ``now`` (s, monotonic), completes."""
        found = self.idle(now)
        self._at = now
        self._buffer += data
        while self._buffer:
            before = len(self._buffer)
            event = self._paste() if self._pasting else self._next()
            if event is not None:
                found.append(event)
            elif len(self._buffer) == before:
                break
        typed = {each.name for each in found if isinstance(each, Key) and each.kind == 'typed'}
        if len(typed) > _FINGERS:
            found = [each for each in found if isinstance(each, Flags) or each.kind != 'typed'
                     or each.name in _ALWAYS]
        return found

    def idle(self, now: float) -> list[Key | Flags]:
        """Return the events that silence until ``now`` completes: a lone ESC is a key."""
        if self._pasting:
            if now - self._at >= _PASTE_S:
                self._pasting = False
                self._buffer.clear()
        elif self._buffer and now - self._at >= _SEQUENCE_S:
            lone = self._buffer == b'\x1b'
            self._buffer.clear()
            return [Key('esc')] if lone else []
        return []

    def _next(self) -> Key | Flags | None:
        """Take one key or sequence from the buffer; leave it there if it is incomplete."""
        match = _TOKEN.match(self._buffer)
        if match is None:
            if len(self._buffer) > _MAX_LENGTH:
                # The last byte may be the ESC that begins the end of a string.
                del self._buffer[2:-1]
            return None
        parts = {name: value.decode('latin-1') for name, value in match.groupdict().items()
                 if value is not None}
        del self._buffer[:match.end()]
        if 'byte' in parts:
            byte = ord(parts['byte'])
            if byte == _CTRL_C:
                return Key('ctrl-c')
            return Key(_NAMES.get(byte, chr(byte).lower())) if 32 <= byte < 127 else None
        if 'escape' in parts:
            return Key('esc')
        return self._control_sequence(parts['body'], parts['final']) if 'final' in parts else None

    def _control_sequence(self, body: str, final: str) -> Key | Flags | None:
        if final == '~' and body == '200':
            self._pasting = True
        elif final == 'O' and not body:
            return Key('focus-out', 'press')
        elif final == 'u':
            try:
                return Flags(int(body[1:])) if body.startswith('?') else _key(body)
            except ValueError:
                return None
        return None

    def _paste(self) -> Key | None:
        """Drop pasted text up to its end, except Ctrl-C."""
        end = self._buffer.find(_PASTE_END)
        quit_at = self._buffer.find(_CTRL_C)
        if quit_at >= 0 and (end < 0 or quit_at < end):
            del self._buffer[:quit_at + 1]
            return Key('ctrl-c')
        if end >= 0:
            self._pasting = False
            del self._buffer[:end + len(_PASTE_END)]
        else:
            # Keep what may be the beginning of the end.
            del self._buffer[:max(0, len(self._buffer) - len(_PASTE_END) + 1)]
        return None


def _key(body: str) -> Key | None:
    fields = body.split(';')
    code = int(fields[0].split(':')[0])
    modifiers, _, event = (fields[1] if len(fields) > 1 else '').partition(':')
    bits = int(modifiers or 1) - 1
    kind = _EVENTS.get(event or '1')
    if kind is None or not (code == 27 or 32 <= code <= sys.maxunicode):
        return None
    name = _NAMES.get(code, chr(code).lower())
    if kind == 'release':
        return Key(name, kind)
    if bits & _CTRL and name == 'c':
        return Key('ctrl-c', kind)
    return None if bits & (_CTRL | _OTHER_MODIFIERS) else Key(name, kind)


# Mark pasted text; query the flags of the kitty protocol; report loss of the keyboard focus.
_BEGIN, _FLAGS = '\x1b[?2004h', '\x1b[?u'
_FOCUS, _NO_FOCUS = '\x1b[?1004h', '\x1b[?1004l'
_END = '\x1b[?2004l'
_CLEAR_LINE = '\r\x1b[K'


class Terminal:
    """Context manager of standard input and output: raw inside, always restored at the end.

    ``source`` and ``sink`` are other descriptors to read and write. ValueError: no terminal.
    """

    def __init__(self, source: int | None = None, sink: int | None = None) -> None:
        self._source = sys.stdin.fileno() if source is None else source
        sink = sys.stdout.fileno() if sink is None else sink
        for name, descriptor in (('input', self._source), ('output', sink)):
            if not os.isatty(descriptor):
                raise ValueError(f'standard {name} is not a terminal: teleop reads keys')
        self._reporting = False
        self._status = ''
        try:
            # A paused terminal takes no output, which must not delay commands. Opened again,
            # because the shell and ``source`` share the state of ``sink``.
            self._sink = os.open(os.ttyname(sink), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError:
            self._sink = os.dup(sink)

    def __enter__(self) -> 'Terminal':
        """Enter raw mode: single keys, no echo; Ctrl-C and Ctrl-Z are keys as well."""
        self._before = termios.tcgetattr(self._source)
        raw = termios.tcgetattr(self._source)
        raw[0] &= ~(termios.IXON | termios.ICRNL | termios.INLCR | termios.ISTRIP)
        raw[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        # Without what was typed before: nobody saw what it would move.
        termios.tcflush(self._source, termios.TCIFLUSH)
        termios.tcsetattr(self._source, termios.TCSANOW, raw)
        self._write(_BEGIN + _FLAGS)
        return self

    def __exit__(self, *_: object) -> None:
        self._write((f'\x1b[<u{_NO_FOCUS}' if self._reporting else '') + _END + '\n')
        with contextlib.suppress(termios.error, OSError):
            # Unread input was typed for this program, not for the shell.
            termios.tcflush(self._source, termios.TCIFLUSH)
            # Without waiting for output: a paused terminal accepts none.
            termios.tcsetattr(self._source, termios.TCSANOW, self._before)
        os.close(self._sink)

    def read(self, timeout: float) -> bytes | None:
        """Return input within ``timeout`` (s), b'' if there is none; None if disconnected."""
        if not select.select([self._source], [], [], timeout)[0]:
            return b''
        try:
            return os.read(self._source, 1024) or None
        except OSError:
            return None

    def enable_reports(self, bits: int) -> None:
        """Enable ``bits`` of the kitty protocol; the terminal answers which are on."""
        self._reporting = True
        self._write(f'\x1b[>{bits}u{_FLAGS}{_FOCUS}')

    def ask(self) -> None:
        self._write(_FLAGS)

    def log(self, text: str) -> None:
        self._write(_CLEAR_LINE + text + '\n' + self._clipped())

    def set_status(self, status: str) -> None:
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
            os.write(self._sink, text.encode())
