"""What the writers of data sets have in common: layout and rows, optional libraries."""

import importlib
from dataclasses import dataclass
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
        rewards: whether rows have rewards and ends.
    """

    size: tuple[int, int] = (0, 0)
    joints: tuple[str, ...] = ()
    motors: tuple[str, ...] = ()
    camera: bool = False
    fps: int = 0
    tasks: tuple[str, ...] = ()
    valid: float = 0.0
    robot: str = 'owi535'
    rewards: bool = False

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
        reward, done: of the action, and whether it terminated the episode.
    """

    image: NDArray[np.uint8] | None
    state: NDArray[np.float32]
    action: NDArray[np.float32] | None
    camera: NDArray[np.float32] | None
    stamp_ns: int
    reward: float = 0.0
    done: bool = False


def require_module(name: str, package: str, format_name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f'--format {format_name} needs {package}, which is not installed here: '
                         f'pip install {package}') from None
