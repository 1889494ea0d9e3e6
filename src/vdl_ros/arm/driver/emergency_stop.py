"""
The state of the emergency stop, and which requests change it.

Requests come from any number of publishers, each of which repeats its last one to a driver that
starts, in any order. A request to stop always engages, except one that was answered before. A
release counts only if it was published after the newest stop was received. The state is kept in a
file, so that it survives the driver.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vdl_ros.common.run_files import write_text

__all__ = ['EmergencyStop', 'StopState']

# Stops of so many requests are known again when a publisher repeats them.
_REMEMBERED = 64


@dataclass(frozen=True)
class StopState:
    """
    The state: ``stamp`` is the time of the latest change, ns since 1970, 0 before the first.

    ``sender`` is the node that requested the change, ``reason`` one line.
    """

    engaged: bool = False
    stamp: int = 0
    sender: str = ''
    reason: str = ''


class EmergencyStop:
    """Decides about requests; all times are ns since 1970, on the clock of the driver's host."""

    def __init__(self, path: Path, now: int) -> None:
        """
        Continue with the state in a file.

        Args:
            path: the file; it may be missing. A file that cannot be read counts as engaged.
            now: time.
        """
        self._path = path
        self.state = StopState()
        self._received = 0
        self._known: list[int] = []
        try:
            values = json.loads(path.read_text())
            state = StopState(**values['state'])
            received, known = values['received'], values['known']
            times = [state.stamp, received, *known]
            if (type(state.engaged) is not bool or type(state.sender) is not str
                    or type(state.reason) is not str or any(type(each) is not int
                                                            for each in times)):
                raise ValueError('wrong types')
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            self._received = now
            self.state = StopState(True, now, '', f'{path} cannot be read: {type(error).__name__}')
            return
        # The clock may have been set back since.
        self.state, self._received = state, min(received, now)
        self._known = known[-_REMEMBERED:]

    def request(self, engage: bool, stamp: int, received: int) -> str:
        """
        Decide about a request.

        Args:
            engage: stop, or release.
            stamp: time at which it was published.
            received: time at which it was received.

        Returns:
            'engaged' or 'released' if the state changed, 'stale' for a release that is older than
            a stop, else ''.
        """
        if engage:
            if stamp in self._known:
                return ''
            self._known = [*self._known, stamp][-_REMEMBERED:]
            self._received = received
            if self.state.engaged:
                return ''
            self.state = StopState(True, received)
            return 'engaged'
        if not self.state.engaged:
            return ''
        if stamp <= self._received:
            # If the clock was set back meanwhile, the next release counts.
            self._received = min(self._received, received)
            return 'stale'
        self.state = StopState(False, received)
        return 'released'

    def explain(self, sender: str, reason: str) -> None:
        """Add who requested the latest change and why."""
        self.state = replace(self.state, sender=sender, reason=reason)

    def save(self) -> None:
        """
        Write the state to the file.

        Raises:
            OSError: it cannot be written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._path, json.dumps({
            'state': asdict(self.state), 'received': self._received, 'known': self._known}))
