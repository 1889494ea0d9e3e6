"""What a person has to confirm before a robot goes on, kept in a file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vdl_ros.common.files import atomic_file


class _File(msgspec.Struct):
    launch: str
    reason: str


class Confirmation:
    """Why a person has to confirm that a robot may go on: ``reason``, or ''.

    It survives the process. It ends with its launch: who starts another one asks for motion.

    Args:
        path: the file, which may be missing; None: none.
        launch: the same for all processes that one launch starts one after the other.
    """

    def __init__(self, path: Path | None = None, launch: str = '') -> None:
        self._path, self._launch = path, launch
        self.reason = ''
        if path is None:
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
            self.reason = found.reason if found.launch == launch else ''
        except FileNotFoundError:
            pass
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.reason = f'{path} cannot be read: {type(error).__name__}'

    def save(self) -> None:
        """Write the reason to the file; raise OSError."""
        if self._path is None:
            return
        if not self.reason:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self._path) as partial:
            partial.write_bytes(msgspec.json.encode(_File(self._launch, self.reason)))
