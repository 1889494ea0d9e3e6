"""What both formats share: rows, the writer's interface, libraries that may be missing."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vdl_ros.export.messages import ExportError

__all__ = ['Layout', 'Row', 'Writer', 'library']


@dataclass(frozen=True)
class Layout:
    """
    What every row of a data set has.

    Attributes:
        size: width and height of the images.
        joints: names of the joints in ``state``.
        motors: names of the motors in ``action``; none if the bag holds no commands.
        camera: there is the camera's truth.
        fps: rows per second.
        task: what the arm does, in words.
        valid: share of the episodes that are set aside for validation.
    """

    size: tuple[int, int]
    joints: tuple[str, ...]
    motors: tuple[str, ...]
    camera: bool
    fps: int
    task: str
    valid: float = 0.0


@dataclass(frozen=True)
class Row:
    """
    One row.

    Attributes:
        image: RGB, uint8 [height, width, 3].
        state: positions of the joints, float32 [D], rad.
        action: commands of the motors, float32 [5], -1 to 1; None without commands.
        camera: distance (m), elevation and azimuth (rad), float32 [3]; None unless captured.
        stamp_ns: of the image.
    """

    image: NDArray[np.uint8]
    state: NDArray[np.float32]
    action: NDArray[np.float32] | None
    camera: NDArray[np.float32] | None
    stamp_ns: int


class Writer(Protocol):
    """Writes a data set: each episode is begun, filled and ended."""

    def begin(self) -> None:
        """Begin an episode."""

    def add(self, row: Row) -> None:
        """Add a row to it."""

    def end(self) -> None:
        """End it."""

    def close(self) -> None:
        """Finish all files."""

    def abandon(self) -> None:
        """Let go of all files; what was written does not matter."""

    def verify(self) -> tuple[int, int]:
        """
        Read the finished files and return the rows and episodes that are in them.

        Raises:
            ExportError: rows are missing in one of them, or times do not grow.
        """


def library(name: str, package: str, format_name: str) -> Any:
    """
    Return a module.

    Raises:
        ExportError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ExportError(f'--format {format_name} needs {package}, which is not installed here: '
                          f'pip install {package}') from None
