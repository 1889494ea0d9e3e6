"""
The arm by keys: which motors are on, from what a terminal sends and when. No ROS, no terminal.

Where the terminal tells when a key is let go, its motor stops then. Elsewhere a held key is known
by its repeats: they begin after the system's delay and then come fast, so a motor runs for
``first_timeout`` after the first byte and for ``repeat_timeout`` after every later one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vdl_ros.arm.model.motor_command import Motors
from vdl_ros.arm.teleop.keyboard import Flags, Key, Keyboard
from vdl_ros.arm.teleop.teleop_config import TeleopConfig

__all__ = ['HELP', 'KEYS', 'REPORTS', 'Teleop']

# Bits of the kitty protocol that are wanted: events, and for every key.
REPORTS = 1 | 2 | 8
_NEEDED = 2 | 8

#: Motor and way of each key; see arm/model/joints.py and urdf/owi535.urdf.xacro for the ways.
KEYS = {
    'a': ('gripper', 1), 'z': ('gripper', -1),
    's': ('wrist', -1), 'x': ('wrist', 1),
    'd': ('elbow', -1), 'c': ('elbow', 1),
    'f': ('shoulder', -1), 'v': ('shoulder', 1),
    'g': ('base', -1), 'b': ('base', 1),
}
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
class _Held:
    """A motor that is on, and until when; without an end until its key is released."""

    key: str
    way: int
    last: float
    until: float


class Teleop:
    """What the keys want; ``quit``, ``emergency`` and ``releases`` (keys tell when let go)."""

    def __init__(self, config: TeleopConfig) -> None:
        """Begin with all off."""
        self._config = config
        self._keyboard = Keyboard()
        self._held: dict[str, _Held] = {}
        self._asked = False
        self.releases = False
        self.quit = False
        self.emergency = False
        #: 1 on, -1 off, 0 nobody said.
        self.lamp = 0

    def feed(self, data: bytes, now: float) -> list[str]:
        """
        Take what was read from the terminal.

        Args:
            data: bytes, none if there were none.
            now: s, monotonic.

        Returns:
            What to do now, in order: 'help', 'stop' and 'release' (the emergency stop), 'ask'
            (switch the terminal to REPORTS and ask for its flags once more).
        """
        wishes = []
        events = self._keyboard.feed(data, now) if data else self._keyboard.idle(now)
        for event in events:
            wish = self._flags(event) if isinstance(event, Flags) else self._key(event, now)
            if wish:
                wishes.append(wish)
        return wishes

    def motors(self, now: float) -> Motors:
        """Return what the arm shall do at ``now``."""
        self._held = {name: each for name, each in self._held.items() if now < each.until}
        on: dict[str, Any] = {name: each.way for name, each in self._held.items()}
        return Motors(**on, lamp=self.lamp == 1)

    def stop(self) -> None:
        """Let go of every motor; a key that is still held counts when it comes again."""
        self._held.clear()

    def set_emergency(self, engaged: bool) -> None:
        """Take note of the emergency stop, whoever engaged or released it."""
        self.emergency = engaged
        self.stop()

    def _flags(self, flags: Flags) -> str:
        if self._asked:
            self.releases = flags.value & _NEEDED == _NEEDED
            return ''
        self._asked = True
        return 'ask'

    def _key(self, key: Key, now: float) -> str:
        name = key.name
        if name in KEYS:
            self._motor(key, now)
            return ''
        if key.kind in ('release', 'repeat'):
            return ''
        if name in ('esc', 'ctrl-c'):
            self.quit = True
        if name in ('esc', 'ctrl-c', 'space', 'focus-out', 'e'):
            self.stop()
        if name in _LAMP:
            self.lamp = _LAMP[name]
        if name in ('e', 'r'):
            self.set_emergency(name == 'e')
        return {'e': 'stop', 'r': 'release', 'h': 'help', '?': 'help'}.get(name, '')

    def _motor(self, key: Key, now: float) -> None:
        motor, way = KEYS[key.name]
        before = self._held.get(motor)
        if before is not None and (before.key != key.name or now >= before.until):
            before = None
        if key.kind == 'release':
            if before is not None:
                del self._held[motor]
            return
        if self.emergency or self.quit:
            return
        if key.kind == 'typed':
            until = self._typed_until(before, now)
        elif key.kind == 'press' or before is not None:
            until = math.inf
        else:
            # It was switched off while it was held: only a new press counts.
            return
        self._held[motor] = _Held(key.name, way, now, until)

    def _typed_until(self, before: _Held | None, now: float) -> float:
        if before is None:
            return now + self._config.first_timeout
        again = now + self._config.repeat_timeout
        # The first repeat may be a second hit: what was granted then stays.
        return again if now - before.last <= self._config.repeat_timeout else max(
            before.until, again)
