"""Files of large arrays (.npz): written whole, and read without running code in them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.run_files import atomic_file

__all__ = ['ArrayFileError', 'load_array_file', 'save_array_file']


class ArrayFileError(ValueError):
    """A file that cannot be used; the message names the file and the reason."""


def save_array_file(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """
    Write arrays to a file beside ``path``, uncompressed, then rename it.

    Raises:
        OSError: the disk is full or the folder cannot be written.
    """
    contents: dict[str, Any] = dict(arrays)
    with atomic_file(path) as partial, partial.open('wb') as file:
        np.savez(file, **contents)


def load_array_file(path: Path, kind: str) -> dict[str, NDArray[Any]]:
    """
    Return what :func:`save_array_file` wrote.

    Args:
        path: the file.
        kind: what the file is, for messages.

    Raises:
        ArrayFileError: missing, corrupt or malicious.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                # A small file could fill the memory.
                raise ValueError('it is compressed')
        # Also checks the checksums.
        with np.load(path, allow_pickle=False) as found:
            return dict(found)
    # What numpy and zipfile raise at damaged files is of any kind.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise ArrayFileError(f'{path}: not a readable {kind}: {reason}') from None
