"""
What a terminal sends, as keys: plain bytes, or presses and releases where it can tell them.

A plain terminal sends a byte for a key, again and again while it is held, and nothing when it is
let go. One with the kitty keyboard protocol sends ``CSI code ; modifiers : event u`` for each
press, repeat and release, once it was asked to. Whatever else arrives (answers of the terminal,
function keys, pasted text, noise) is recognised so far that it is no key.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ['Flags', 'Key', 'Keyboard']

_ESC, _CTRL_C = 0x1B, 0x03
# An escape sequence comes at once; a lone ESC is the key. Text ends a paste that does not end.
_SEQUENCE_S, _PASTE_S = 0.1, 1.0
# Longer sequences mean nothing here.
_LONGEST = 64
# Nobody hits more different keys between two reads: it was pasted.
_FINGERS = 4
_STRINGS = b']P_^X'
_PASTE_END = b'\x1b[201~'
_EVENTS = {'1': 'press', '2': 'repeat', '3': 'release'}
_CTRL, _OTHER_MODIFIERS = 4, 2 | 8 | 16 | 32
_NAMES = {27: 'esc', 32: 'space'}
# Of pasted or confused text these count all the same: they stop.
_ALWAYS = ('ctrl-c', 'esc', 'space')


@dataclass(frozen=True)
class Key:
    """
    A key and what happened to it.

    ``name`` is its letter in lower case, 'space', 'esc', 'ctrl-c', or 'focus-out' when the
    terminal lost the keyboard. ``kind`` is 'press', 'repeat', 'release', or 'typed' when the
    terminal does not tell which.
    """

    name: str
    kind: str = 'typed'


@dataclass(frozen=True)
class Flags:
    """The terminal's answer: which parts of the kitty protocol are on, its bits."""

    value: int


class Keyboard:
    """Turns bytes, in whatever pieces they come, into keys."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._buffer = bytearray()
        self._pasting = False
        self._at = 0.0

    def feed(self, data: bytes, now: float) -> list[Key | Flags]:
        """Return what ``data``, read at ``now`` (s, monotonic), completes."""
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
        """Return what nothing more until ``now`` completes: a lone ESC is the key."""
        if self._pasting:
            if now - self._at >= _PASTE_S:
                self._pasting = False
                self._buffer.clear()
        elif self._buffer and now - self._at >= _SEQUENCE_S:
            lone = self._buffer == bytes([_ESC])
            self._buffer.clear()
            return [Key('esc')] if lone else []
        return []

    def _drop(self, count: int) -> None:
        del self._buffer[:count]

    def _next(self) -> Key | Flags | None:
        """Take one key or sequence from the buffer, or nothing if it is not complete."""
        byte = self._buffer[0]
        if byte != _ESC:
            self._drop(1)
            if byte == _CTRL_C:
                return Key('ctrl-c')
            return Key(_NAMES.get(byte, chr(byte).lower())) if 32 <= byte < 127 else None
        if len(self._buffer) == 1:
            return None
        second = self._buffer[1]
        if second == ord('['):
            return self._control_sequence()
        if second in _STRINGS:
            self._string()
            return None
        if second == _ESC:
            self._drop(1)
            return Key('esc')
        if second == ord('O'):
            # A function key: one byte more.
            if len(self._buffer) > 2:
                self._drop(3)
            return None
        # Alt and a key; but what is under a control byte counts.
        self._drop(1 if second < 32 else 2)
        return None

    def _control_sequence(self) -> Key | Flags | None:
        for place in range(2, len(self._buffer)):
            byte = self._buffer[place]
            if byte < 0x20 or byte > 0x7E:
                self._drop(place)
                return None
            if byte >= 0x40:
                body = self._buffer[2:place].decode('ascii')
                self._drop(place + 1)
                return self._meaning(body, chr(byte))
        if len(self._buffer) > _LONGEST:
            del self._buffer[2:]
        return None

    def _meaning(self, body: str, final: str) -> Key | Flags | None:
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

    def _string(self) -> None:
        """Drop an answer of the terminal, once its end is there."""
        for place in range(2, len(self._buffer)):
            byte = self._buffer[place]
            if byte == _ESC and place + 1 == len(self._buffer):
                break
            if byte in (0x07, 0x18, 0x1A):
                self._drop(place + 1)
                return
            if byte in (_CTRL_C, _ESC):
                end = byte == _ESC and self._buffer[place + 1] == ord('\\')
                self._drop(place + 2 if end else place)
                return
        if len(self._buffer) > _LONGEST:
            del self._buffer[2:-1]

    def _paste(self) -> Key | None:
        """Drop pasted text up to its end, but for Ctrl-C."""
        end = self._buffer.find(_PASTE_END)
        quit_at = self._buffer.find(_CTRL_C)
        if quit_at >= 0 and (end < 0 or quit_at < end):
            self._drop(quit_at + 1)
            return Key('ctrl-c')
        if end >= 0:
            self._pasting = False
            self._drop(end + len(_PASTE_END))
        else:
            self._drop(len(self._buffer) - len(_PASTE_END) + 1
                       if len(self._buffer) >= len(_PASTE_END) else 0)
        return None


def _key(body: str) -> Key | None:
    """Return the key of a kitty sequence; raise ValueError if it makes no sense."""
    fields = body.split(';')
    code = int(fields[0].split(':')[0])
    modifiers, _, event = (fields[1] if len(fields) > 1 else '').partition(':')
    bits = int(modifiers or 1) - 1
    kind = _EVENTS.get(event or '1')
    if kind is None or not (code == 27 or 32 <= code < 127):
        return None
    name = _NAMES.get(code, chr(code).lower())
    if kind == 'release':
        return Key(name, kind)
    if bits & _CTRL and name == 'c':
        return Key('ctrl-c', kind)
    return None if bits & (_CTRL | _OTHER_MODIFIERS) else Key(name, kind)
