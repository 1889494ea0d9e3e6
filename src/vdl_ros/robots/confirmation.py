"""What a person has to confirm before a robot goes on, kept in a file."""

import contextlib
import os
import re
import time
from pathlib import Path

import msgspec

from vdl_ros import PARENT_PID
from vdl_ros.common.files import atomic_file

# Another one takes its place: of this process, or of one that the launch has started again.
_ENDED = 'the environment before has ended'


def _here() -> str:
    """Return what numbers of processes belong to: this boot, and the namespace of a container."""
    boot = Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    return f'{boot} {os.readlink("/proc/self/ns/pid")}'


class _Process(msgspec.Struct, frozen=True):
    """A process, also after another one got its number: ``started`` is in ticks since the boot."""

    number: int
    started: int

    @classmethod
    def of(cls, number: int) -> '_Process':
        """Return the process of this number that runs now, or one that never runs."""
        with contextlib.suppress(OSError):
            # After the name, which may have spaces and brackets; proc(5).
            fields = Path(f'/proc/{number}/stat').read_text().rpartition(')')[2].split()
            return cls(number, int(fields[19]))
        return cls(number, -1)

    @property
    def runs(self) -> bool:
        return self.started >= 0 and _Process.of(self.number) == self


def process_age() -> float:
    """Return for how long this process has been there, s; also while it was stopped."""
    # Counted in ticks, whose first one has begun before.
    started = (_Process.of(os.getpid()).started + 1) / os.sysconf('SC_CLK_TCK')
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


class _File(msgspec.Struct):
    reason: str
    here: str
    process: _Process
    launch: _Process


def _remove_finished(folder: Path) -> None:
    """Remove the files of robots whose process has ended, and who would start it again."""
    for path in folder.glob('*.json'):
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError, RecursionError):
            found = msgspec.json.decode(path.read_bytes(), type=_File)
            # Those of another host or container may run.
            if found.here == _here() and not (found.process.runs or found.launch.runs):
                path.unlink()


class Confirmation:
    """Why a person has to confirm that a robot may go on: ``reason``, or ''.

    It survives the process. That another one takes the place of this, also in the same process, is
    a reason too. It ends with its launch: who starts another one asks for motion.

    Args:
        path: the file of the robot, without the launch in its name; None: none.
        launch: the same for all processes that one launch starts one after the other.
    """

    def __init__(self, path: Path | None = None, launch: str = '') -> None:
        self._path = path and path.with_name(
            f'{path.stem}.{re.sub("[^A-Za-z0-9-]", "_", launch)}.json')
        self.reason = ''
        if self._path is None:
            return
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_File)
            lives = (found.here == _here() and found.process.runs
                     and found.process.number != os.getpid())
            self.reason = found.reason or ('' if lives else _ENDED)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.reason = f'{self._path} cannot be read: {type(error).__name__}'

    def save(self) -> None:
        """Write the reason, if there is one, and the process; raise OSError."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _remove_finished(self._path.parent)
        with atomic_file(self._path) as partial:
            partial.write_bytes(msgspec.json.encode(_File(
                self.reason, _here(), _Process.of(os.getpid()), _Process.of(PARENT_PID))))
