"""Checkpoints: written whole or not at all, read without running anything that is in them."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

__all__ = ['FORMAT', 'CheckpointError', 'load_checkpoint', 'pack', 'save_checkpoint', 'unpack']

FORMAT = 2
_PARTS = ('config', 'learner', 'progress')


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names the file and the reason."""


def save_checkpoint(
    path: Path, *, config: dict[str, Any], learner: dict[str, Any], progress: dict[str, Any],
) -> None:
    """
    Write a checkpoint to a file beside ``path``, then rename it: a crash leaves the old one.

    Args:
        path: the file.
        config: every setting, by name.
        learner: :meth:`Learner.state`.
        progress: counts and returns of the run so far: numbers, texts, lists, dicts.

    Raises:
        OSError: the disk is full or the folder cannot be written.
    """
    partial = path.with_name(path.name + '.partial')
    try:
        with partial.open('wb') as stream:
            torch.save({'format': FORMAT, 'config': config, 'learner': learner,
                        'progress': progress}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path) -> dict[str, Any]:
    """
    Return what :func:`save_checkpoint` wrote.

    Only tensors and plain values are read: a file that names code to run is refused.

    Raises:
        CheckpointError: missing, corrupt, malicious, or of another format.
    """
    if not path.is_file():
        raise CheckpointError(f'{path}: no such file')
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch does not look at the checksums
        if broken:
            raise zipfile.BadZipFile(f'wrong checksum of {broken}')
        found = torch.load(path, map_location='cpu', weights_only=True)
    except pickle.UnpicklingError:
        raise CheckpointError(
            f'{path}: holds more than weights and plain values, or is corrupt: refused') from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, TypeError,
            AttributeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise CheckpointError(f'{path}: not a readable checkpoint: {reason}') from None
    if not isinstance(found, dict) or 'format' not in found or not all(
            isinstance(found.get(part), dict) for part in _PARTS):
        raise CheckpointError(f'{path}: not a checkpoint of this program')
    if found['format'] != FORMAT:
        raise CheckpointError(f'{path}: format {found["format"]} is not {FORMAT}')
    return found


def pack(state: dict[str, Any]) -> bytes:
    """Return tensors and plain values as bytes: those of a checkpoint's file."""
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def unpack(data: bytes) -> dict[str, Any]:
    """
    Return what :func:`pack` was given; nothing that is in ``data`` is run.

    Raises:
        pickle.UnpicklingError: it holds more than tensors and plain values.
    """
    found: dict[str, Any] = torch.load(
        io.BytesIO(data), map_location='cpu', weights_only=True)
    return found
