"""The keyboard control: which motors the keys run, and its settings."""

import math
from dataclasses import dataclass
from typing import Any

from vdl_ros.arm.joints import Motors
from vdl_ros.arm.teleop.keyboard import Flags, Key, Keyboard
from vdl_ros.common.settings import setting


@dataclass(frozen=True)
class TeleopConfig:
    """The node ``teleop``."""

    first_timeout: float = setting(
        0.55, 'A key counts as held for this after a tap; longer than the delay before repeats.',
        minimum=0.05, maximum=2.0, unit='s')
    rate: float = setting(
        20.0, 'Rate of commands while a motor is on.', minimum=4.0, maximum=100.0, unit='Hz')


#: Keys count as held for this after a repeat, and after the last press or repeat on terminals that
#: report releases, s.
REPEAT_S, HELD_S = 0.15, 5.0
# Bits of the kitty protocol to enable; needed are event types, for every key.
REPORTS = 1 | 2 | 8
_NEEDED = 2 | 8

#: Motor and direction of each key, see urdf/owi535.urdf.xacro.
KEYS = {
    'a': ('gripper', 1), 'z': ('gripper', -1),
    's': ('wrist', -1), 'x': ('wrist', 1),
    'd': ('elbow', -1), 'c': ('elbow', 1),
    'f': ('shoulder', -1), 'v': ('shoulder', 1),
    'g': ('base', -1), 'b': ('base', 1),
}
# Period of the question whether the terminal is there, and the silence that counts as a dead
# link, s.
_ASK_S, _SILENCE_S = 0.5, 1.5
_LAMP = {'q': 1, 'w': -1}

HELP = """\
  a z  gripper open, close        g b  base clockwise, counter-clockwise
  s x  wrist up, down             q w  lamp on, off
  d c  elbow up, down             space  all motors off
  f v  shoulder up, down          e r  emergency stop, release it
  h ?  this help                  Esc, Ctrl-C  motors off and quit
A motor runs while its key is held.\
"""


@dataclass
class _HeldKey:
    """A key that runs a motor until a time."""

    name: str
    direction: int
    last: float
    until: float


class Teleop:
    """State of the keyboard control.

    ``quit`` and ``emergency`` are set by keys; ``releases``: the terminal reports key releases.
    """

    def __init__(self, config: TeleopConfig) -> None:
        self._config = config
        self._keyboard = Keyboard()
        self._held: dict[str, _HeldKey] = {}
        # Keys that are down, of a terminal that reports releases.
        self._down: set[str] = set()
        self._enabled = False
        self.releases = False
        self.quit = False
        self.emergency = False
        # After an emergency stop a key that is still held does nothing until it is let go.
        self._until_let_go = False
        # The key of the stop was hit; the driver has not confirmed it yet.
        self._requested = False
        self._typed_at = -math.inf
        self._read_at = self._asked_at = -math.inf
        #: 1 on, -1 off, 0 not set yet.
        self.lamp = 0

    def feed(self, data: bytes, now: float) -> list[str]:
        """Take input of the terminal, read at ``now`` (s, monotonic); return actions in order.

        They are 'help', 'stop' and 'release' (the emergency stop), 'off' (all motors, also those
        of programs), 'enable' (REPORTS of the terminal, and query its flags again) and 'ask'
        (query its flags again).
        """
        if data:
            self._read_at = now
        events = self._keyboard.feed(data, now) if data else self._keyboard.idle(now)
        actions = [self._flags(event) if isinstance(event, Flags) else self._key(event, now)
                   for event in events]
        if self.releases and self._held and now - self._asked_at >= _ASK_S:
            self._asked_at = now
            actions.append('ask')
        return [action for action in actions if action]

    def motors(self, now: float) -> Motors:
        if self.releases and now - self._read_at >= _SILENCE_S:
            self._held.clear()
        self._held = {name: each for name, each in self._held.items() if now < each.until}
        on: dict[str, Any] = {name: each.direction for name, each in self._held.items()}
        return Motors(**on, lamp=self.lamp == 1)

    def stop(self) -> None:
        """Switch every motor off; a key that is still held needs a new press or repeat."""
        self._held.clear()

    def set_emergency(self, engaged: bool) -> None:
        self._requested = False
        if engaged != self.emergency:
            self._until_let_go = True
            self.stop()
        self.emergency = engaged

    def _flags(self, flags: Flags) -> str:
        if self._enabled:
            self.releases = flags.value & _NEEDED == _NEEDED
            if not self.releases:
                # Nothing will report the release of a key that is held.
                self.stop()
            return ''
        self._enabled = True
        return 'enable'

    def _key(self, key: Key, now: float) -> str:
        name = key.name
        if key.kind == 'press':
            self._down.add(name)
        elif key.kind == 'release':
            if name not in self._down:
                # The layout of the keyboard changed: it may be a key that is held.
                self.stop()
            self._down.discard(name)
        if name in KEYS:
            self._motor(key, now)
            return ''
        if key.kind in ('release', 'repeat'):
            return ''
        if name in ('esc', 'ctrl-c'):
            self.quit = True
        if name == 'focus-out':
            self._down.clear()
        if name in ('esc', 'ctrl-c', 'space', 'focus-out', 'e'):
            self.stop()
        if name in _LAMP:
            self.lamp = _LAMP[name]
        if name in ('e', 'r'):
            self._requested = name == 'e'
        actions = {'e': 'stop', 'r': 'release', 'h': 'help', '?': 'help', 'space': 'off'}
        return actions.get(name, '')

    def _motor(self, key: Key, now: float) -> None:
        motor, direction = KEYS[key.name]
        before = self._held.get(motor)
        if before is not None and (before.name != key.name or now >= before.until):
            before = None
        if key.kind == 'release':
            if before is not None:
                del self._held[motor]
            return
        # Without reports of releases, a pause between the bytes is one.
        let_go = key.kind == 'press' or now - self._typed_at > self._config.first_timeout
        self._typed_at = now
        if self.emergency or self._requested or self.quit or (self._until_let_go and not let_go):
            return
        self._until_let_go = False
        if key.kind == 'typed':
            until = self._typed_until(before, now)
        elif key.kind == 'press' or before is not None:
            until = now + HELD_S
            # The keyboard repeats only the key that was pressed last.
            for each in self._held.values():
                each.until = max(each.until, until)
        else:
            # Switched off while held: only a new press counts.
            return
        self._held[motor] = _HeldKey(key.name, direction, now, until)

    def _typed_until(self, before: _HeldKey | None, now: float) -> float:
        if before is None:
            return now + self._config.first_timeout
        again = now + REPEAT_S
        # The first repeat may be a second tap, which does not shorten the first one's time.
        return again if now - before.last <= REPEAT_S else max(before.until, again)
