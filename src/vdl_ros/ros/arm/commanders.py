"""Warnings of two who command the motors at once, and of two arms that obey."""

import math
from collections.abc import Callable

from vdl_ros.common.consent import ROBOT_ENVIRONMENT, named
from vdl_ros.common.quoting import shown

# Nodes of this package that have a publisher on arm/motors but rarely publish.
_MOSTLY_IDLE = ('viewer', 'teleop', 'arm_controller', 'policy')
_WARN_AGAIN_S = 5.0
_NAMED = 5  # publishers that a warning names
_COUNT_AGAIN_S = 1.0  # minimum time between two queries of the graph for publishers, s
# Another arm is there if it has been for so long: a driver that was killed disappears later, s.
_SECOND_ARM_S = 3.0


class CommandConflictDetector:
    """Detects two publishers that command the motors at the same time.

    Senders name themselves in their messages; for unnamed ones the ``publishers`` in the graph, by
    their full names, are counted. Senders that alternate within ``window``, s, conflict.
    """

    def __init__(self, window: float, publishers: Callable[[], list[str]]) -> None:
        self._window, self._publishers = window, publishers
        self._commanded_at: dict[str, float] = {}
        self._last = ''
        self._warned_at = -_WARN_AGAIN_S
        self._counted_at = -_COUNT_AGAIN_S

    def update(self, sender: str, now: float) -> str:
        """Return a warning or '' for a command of ``sender`` ('' if unnamed) at ``now``, s."""
        # Only those of the window: senders can invent names.
        self._commanded_at = {name: at for name, at in self._commanded_at.items()
                              if now - at < self._window}
        before = self._commanded_at.get(sender)
        others = [name for name in self._commanded_at if name != sender]
        back = sender != self._last and before is not None
        self._commanded_at[sender], self._last = now, sender
        if now - self._warned_at < _WARN_AGAIN_S:
            return ''
        if back and others:
            names = sorted(name or 'a sender without a name' for name in (sender, *others))
        elif not sender and now - self._counted_at >= _COUNT_AGAIN_S:
            self._counted_at = now
            names = sorted(name for name in self._publishers()
                           if name.rsplit('/', 1)[-1] not in _MOSTLY_IDLE
                           and not name.rsplit('/', 1)[-1].startswith(ROBOT_ENVIRONMENT))
        else:
            return ''
        if len(names) < 2:
            return ''
        self._warned_at = now
        more = f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''
        return (f'arm/motors: {len(names)} publishers at once: '
                f'{", ".join(map(named, names[:_NAMED]))}{more}')


class SecondArmDetector:
    """Detects another driver that obeys the same commands, as of a second ``arm.launch.py``.

    ``publishers`` returns the full names of all nodes that publish the state of a stop.
    """

    def __init__(self, publishers: Callable[[], list[str]]) -> None:
        self._publishers = publishers
        self._since = math.inf

    def update(self, now: float) -> str:
        names = self._publishers()
        if len(names) < 2:
            self._since = math.inf
            return ''
        self._since = min(self._since, now)
        if now - self._since < _SECOND_ARM_S:
            return ''
        some = ', '.join(map(shown, names[:_NAMED]))
        return (f'{len(names)} arms obey the same commands: {some}: end one, or give it a '
                'namespace or a ROS_DOMAIN_ID of its own')
