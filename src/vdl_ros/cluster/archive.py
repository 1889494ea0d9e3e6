"""Unpacks what another host has sent: plain files inside one folder, and nothing else."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path, PurePosixPath

from vdl_ros.common.quoting import quoted

__all__ = ['unpack']


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """
    Write the files of an archive below ``folder``, with the rights of new files.

    By hand, because ``extractall(filter='data')`` is not in every Python 3.11 that is in use.

    Raises:
        tarfile.TarError: an absolute path, one that leads out of the folder, a link, a device or a
            sparse file.
        OSError: a file cannot be written.
    """
    for member in archive:
        name = PurePosixPath(member.name)
        # A sparse file of a few bytes may claim to fill the disk.
        if (name.is_absolute() or '..' in name.parts or '\0' in member.name
                or not (member.isfile() or member.isdir()) or member.issparse()):
            raise tarfile.TarError(f'{quoted(member.name)} is no file of this folder')
        path = folder / name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None
        with content, path.open('wb') as file:
            shutil.copyfileobj(content, file)
