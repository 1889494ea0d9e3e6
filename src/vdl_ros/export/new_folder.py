"""A folder that appears only when everything in it is written."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vdl_ros.export.messages import ExportError

__all__ = ['new_folder']


@contextlib.contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """
    Yield a hidden folder, which is renamed to ``output`` at the end, or removed after an error.

    Raises:
        ExportError: ``output`` exists.
    """
    if output.exists():
        raise ExportError(f'{output} exists; name another output')
    output.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the last step is one rename.
    folder = Path(tempfile.mkdtemp(prefix=f'.{output.name}.partial-', dir=output.parent))
    try:
        root = folder / 'dataset'
        root.mkdir()
        yield root
        root.rename(output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
