"""The state of the emergency stop, and which requests change it.

Requests come from any number of publishers, each of which repeats its last one to a driver that
starts, in any order. A request to stop always engages, except one that was answered before. A
release names the state that it releases by its stamp, and counts only while that one is in force.
The state is kept in a file, so that it survives the driver.
"""

import secrets
from pathlib import Path
from typing import Annotated

import msgspec

from vdl_ros.common.files import atomic_file
from vdl_ros.common.quoting import quoted, shown

# Stops of so many requests are known again when a publisher repeats them.
_REMEMBERED = 64
# Longest sender and reason, characters.
_MAX_LENGTH = 200
# End of the times that a message can contain, ns since 1970.
_END = 2**31 * 10**9


class StopState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state: ``stamp`` is the time of the latest change, ns since 1970, 0 before the first.

    ``sender`` is the node that requested the change, ``reason`` one line.
    """

    engaged: bool = False
    stamp: Annotated[int, msgspec.Meta(ge=0, lt=_END)] = 0
    sender: str = ''
    reason: str = ''

    def __str__(self) -> str:
        return f'by {quoted(self.sender)}: {quoted(self.reason)}'


class _File(msgspec.Struct):
    state: StopState
    # Senders and stamps of the latest stops.
    known: list[tuple[str, int]]


class EmergencyStop:
    """Decides about requests; ``now`` is a time in ns since 1970 on the driver's clock.

    Args:
        path: the file; it may be missing. A file that cannot be read counts as engaged.
    """

    def __init__(self, path: Path, now: int) -> None:
        self._path = path
        found = _File(StopState(), [])
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            found.state = StopState(
                True, now, '', f'{path} cannot be read: {type(error).__name__}')
        self.state, self._known = found.state, found.known[-_REMEMBERED:]

    def stop(self, stamp: int, sender: str, reason: str, now: int) -> bool:
        """Engage; return False for a request that was answered before, which is ignored.

        ``stamp`` is of the request, on the sender's clock; 0: it has none.
        """
        sender = shown(sender, _MAX_LENGTH)
        if stamp:
            if (sender, stamp) in self._known:
                return False
            self._known = [*self._known, (sender, stamp)][-_REMEMBERED:]
        self._change(True, sender, reason, now)
        return True

    def release(self, releases: int, sender: str, reason: str, now: int) -> bool:
        """Release the state with the stamp ``releases``; return whether it was in force."""
        if not self.state.engaged or releases != self.state.stamp:
            return False
        self._change(False, shown(sender, _MAX_LENGTH), reason, now)
        return True

    def interrupt(self, reason: str, now: int) -> None:
        """Let the state have another stamp, which ends what programs do with the arm."""
        if self.state.engaged:
            self._change(True, self.state.sender, self.state.reason, now)
        else:
            self._change(False, '', reason, now)

    def _change(self, engaged: bool, sender: str, reason: str, now: int) -> None:
        # Always a new stamp: a release of an earlier state does not count any more. Two starts
        # with the same file need two stamps, also where the clock was set back.
        stamp = now if now > self.state.stamp else self.state.stamp + 1 + secrets.randbelow(10**6)
        self.state = StopState(engaged, stamp, sender, shown(reason, _MAX_LENGTH))

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self._path) as partial:
            partial.write_bytes(msgspec.json.encode(_File(self.state, self._known)))
