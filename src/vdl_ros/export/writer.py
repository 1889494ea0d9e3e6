"""What the writers of data sets have in common: layout and rows, folders, optional libraries."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Layout:
    """Layout of the rows of a data set.

    Attributes:
        size: width and height of the images; (0, 0): there are none.
        joints: names of the numbers in ``state``.
        motors: names of the motors in ``action``; none if the bag holds no commands.
        camera: whether rows have its pose: captured frame by frame, they are no sequence.
        fps: rows per second.
        tasks: what the arm does in the episodes, in words, each text once.
        valid: share of the episodes for validation.
    """

    size: tuple[int, int] = (0, 0)
    joints: tuple[str, ...] = ()
    motors: tuple[str, ...] = ()
    camera: bool = False
    fps: int = 0
    tasks: tuple[str, ...] = ()
    valid: float = 0.0
    robot: str = 'owi535'

    @property
    def has_images(self) -> bool:
        return self.size != (0, 0)


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        image: RGB, uint8 [height, width, 3]; None without images.
        state: float32 [D]; of the arm the positions of its joints, rad.
        action: commands of the motors, float32 [motors]; None without commands.
        camera: distance (m), elevation and azimuth (rad), float32 [3]; None unless captured.
    """

    image: NDArray[np.uint8] | None
    state: NDArray[np.float32]
    action: NDArray[np.float32] | None
    camera: NDArray[np.float32] | None
    stamp_ns: int


def require_module(name: str, package: str, format_name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f'--format {format_name} needs {package}, which is not installed here: '
                         f'pip install {package}') from None


@contextlib.contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a hidden folder, renamed to ``output`` at the end, or removed after an error."""
    if output.exists():
        raise ValueError(f'{output} exists; name another output')
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
