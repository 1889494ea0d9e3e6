"""The observations of a robot: the numbers of its task, and the latest frames of its cameras."""

from collections import deque
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image

from vdl_ros.common.images import ImageError
from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.robots.contract import Contract, ImageTopic
from vdl_ros.robots.task import Measured, Task


def frame(image: ImageTopic, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return what a robot sees of an image, RGB, uint8 [height, width, 3]; ImageError: its crop.

    The result is uint8 [H, W, C], by ``size`` and ``grayscale`` of the contract.
    """
    height, width = pixels.shape[:2]
    x, y, across, down = image.crop or (0, 0, width, height)
    if x + across > width or y + down > height:
        raise ImageError(f'image: {width} x {height} has no part {x}, {y}, {across}, {down}, the '
                         'crop of the contract')
    found = Image.fromarray(pixels[y:y + down, x:x + across])
    # The mean of all pixels of an area: thin things do not fall between two of them.
    found = found.resize(image.size or found.size, Image.Resampling.BOX)
    shown = np.asarray(found.convert('L') if image.grayscale else found, np.uint8)
    return shown.reshape(*shown.shape[:2], image.channels)


class Observer:
    """Makes the observations of one robot, live or recorded, by its task.

    Attributes:
        space: the task's, or, of a contract with images, :class:`ImageAndVector`: the frames are
            channels of one image [H, W, channels], one image of the contract after the other, of
            each the newest frame last.
    """

    def __init__(self, contract: Contract, task: Task) -> None:
        self._task = task
        images = contract.observed_images
        self._frames = {image.name: deque[NDArray[np.uint8]](maxlen=image.stack)
                        for image in images}
        self.space: spaces.Box = task.observation_space
        self._mixed: ImageAndVector | None = None
        if images:
            assert images[0].size is not None
            width, height = images[0].size
            channels = sum(image.stack * image.channels for image in images)
            self.space = self._mixed = ImageAndVector(
                spaces.Box(0, 255, (height, width, channels), np.uint8), self.space.shape[0])
            # Where the newest frame of the first image is.
            last = images[0].stack * images[0].channels
            self._newest = slice(last - images[0].channels, last)

    def begin(self) -> None:
        """Begin an episode, whose first frames also stand for those before it."""
        for frames in self._frames.values():
            frames.clear()

    def tick(self, measured: Measured) -> None:
        """Take the frames of a tick."""
        for name, frames in self._frames.items():
            frames.extend([measured.images[name]] * (1 if frames else frames.maxlen or 1))

    def step(self, measured: Measured) -> NDArray[Any]:
        """Take the frames of a tick, and return its observation."""
        self.tick(measured)
        return self.observe(measured)

    def observe(self, measured: Measured) -> NDArray[Any]:
        """Return the observation at the latest tick; the task is asked for its numbers once."""
        numbers = self._task.observe(measured)
        if self._mixed is None:
            return numbers
        row = np.empty(self.space.shape, np.uint8)
        image, vector = self._mixed.split(row)
        vector[:] = numbers
        np.concatenate([each for frames in self._frames.values() for each in frames], axis=2,
                       out=image)
        return row

    def shown(self, observations: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the newest frames of the first image in observations [B, ...], [B, H, W, 3]."""
        assert self._mixed is not None
        frames = self._mixed.split(observations)[0][..., self._newest]
        return np.broadcast_to(frames, (*frames.shape[:-1], 3))
