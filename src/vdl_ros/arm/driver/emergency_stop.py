"""The state of the emergency stop, and which requests change it.

Requests come from any number of publishers, each of which repeats its last one to a driver that
starts, in any order. A request to stop always engages, except one that was answered before. A
release names the state that it releases by its stamp, and counts only while that one is in force.
The state is kept in a file, so that it survives the driver.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from vdl_ros.common.files import write_text
from vdl_ros.common.quoting import quoted, shown

# Stops of so many requests are known again when a publisher repeats them.
_REMEMBERED = 64
# Longest sender and reason, characters.
_LONGEST = 200
# End of the times that a message can contain, ns since 1970.
_END = 2**31 * 10**9


@dataclass(frozen=True)
class StopState:
    """The state: ``stamp`` is the time of the latest change, ns since 1970, 0 before the first.

    ``sender`` is the node that requested the change, ``reason`` one line.
    """

    engaged: bool = False
    stamp: int = 0
    sender: str = ''
    reason: str = ''

    def __str__(self) -> str:
        return f'by {quoted(self.sender)}: {quoted(self.reason)}'


class EmergencyStop:
    """Decides about requests; ``now`` is a time in ns since 1970 on the driver's clock.

    Args:
        path: the file; it may be missing. A file that cannot be read counts as engaged.
    """

    def __init__(self, path: Path, now: int) -> None:
        self._path = path
        self.state = StopState()
        # Senders and stamps of the latest stops.
        self._known: list[tuple[str, int]] = []
        try:
            values = json.loads(path.read_text())
            state = StopState(**values['state'])
            known = [(sender, stamp) for sender, stamp in values['known']]
            if (type(state.engaged) is not bool or type(state.reason) is not str
                    or any(type(sender) is not str or type(stamp) is not int
                           for sender, stamp in [(state.sender, state.stamp), *known])
                    or not 0 <= state.stamp < _END):
                raise ValueError('wrong types')
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            self.state = StopState(True, now, '', f'{path} cannot be read: {type(error).__name__}')
            return
        self.state, self._known = state, known[-_REMEMBERED:]

    def stop(self, stamp: int, sender: str, reason: str, now: int) -> bool:
        """Engage; return False for a request that was answered before, which is ignored.

        ``stamp`` is of the request, on the sender's clock; 0: it has none.
        """
        sender = shown(sender, _LONGEST)
        if stamp:
            if (sender, stamp) in self._known:
                return False
            self._known = [*self._known, (sender, stamp)][-_REMEMBERED:]
        self._change(True, sender, reason, now)
        return True

    def release(self, releases: int, sender: str, reason: str, now: int) -> bool:
        """Release the state with the stamp ``releases``; return whether it is in force."""
        if not self.state.engaged or releases != self.state.stamp:
            return False
        self._change(False, shown(sender, _LONGEST), reason, now)
        return True

    def _change(self, engaged: bool, sender: str, reason: str, now: int) -> None:
        # Always a new stamp: a release of an earlier state does not count any more.
        stamp = max(now, self.state.stamp + 1)
        self.state = StopState(engaged, stamp, sender, shown(reason, _LONGEST))

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._path, json.dumps({'state': asdict(self.state), 'known': self._known}))
