"""The observation spaces that environments and policies share.

An observation is one array everywhere: numbers of any shape and type, an image, or, if there are
an image and numbers, a row of bytes (:class:`ImageAndVector`). So what only keeps or moves
observations (unrolls, batches, replay, minibatches) does not depend on their parts.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from vdl_ros.common.quoting import quoted

# The smallest image size that every network accepts.
SMALLEST_IMAGE = 36
#: Of observations and rewards. Squares of their sums, in float32, are finite.
MAX_NUMBER = 1e9


def number_error(values: NDArray[Any]) -> str:
    """Return which number of an observation or reward is not allowed, and what is; or ''."""
    kind = values.dtype.kind
    if kind not in 'biuf':
        return f'{quoted(values.tolist())} is not allowed: numbers'
    if values.dtype == np.float16:
        # It has no number as large as those below.
        values = values.astype(np.float32)
    # This is done in every step: one pass if all are allowed. No number is above the root of the
    # sum of squares, which is NaN if one is.
    if values.dtype.itemsize == 1 or (
            kind == 'f' and np.vdot(values, values) <= MAX_NUMBER * MAX_NUMBER):
        return ''
    wrong = values[~((values >= -MAX_NUMBER) & (values <= MAX_NUMBER))]
    return '' if not wrong.size else (
        f'{wrong[0]:g} is not allowed: from {-MAX_NUMBER:g} to {MAX_NUMBER:g}')


class ScaledImage(spaces.Box):
    """An image scaled to [0, 1] as a network sees it, float32."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(0.0, 1.0, shape, np.float32)


def is_image(space: spaces.Space[Any]) -> bool:
    """Return whether observations are images, uint8 or scaled, [C, H, W] or [H, W, C].

    Other bytes, such as characters from 0 to 127, do not have the whole range.
    """
    return isinstance(space, spaces.Box) and len(space.shape) == 3 \
        and (isinstance(space, ScaledImage) or (
            space.dtype == np.uint8 and space.low.min() == 0 and space.high.max() == 255)) \
        and (min(space.shape[1:]) >= SMALLEST_IMAGE or min(space.shape[:2]) >= SMALLEST_IMAGE)


class MirroredBox(spaces.Box):
    """Numbers of a task that is the same in a mirror, with left and right exchanged.

    Attributes:
        signs: -1 for each number that changes its sign then, else 1, float32 [V].
        action_signs: the same for each part of an action, float32 [A].
    """

    def __init__(
        self, low: ArrayLike, high: ArrayLike, signs: Sequence[int], action_signs: Sequence[int],
    ) -> None:
        super().__init__(
            np.asarray(low, np.float32), np.asarray(high, np.float32), dtype=np.float32)
        self.signs = np.array(signs, np.float32)
        self.action_signs = np.array(action_signs, np.float32)


class ImageAndVector(spaces.Box):
    """An image and V numbers in a row of bytes, uint8 [N]: the numbers as float32, then the image.

    The image is uint8, or a :class:`ScaledImage`.
    """

    def __init__(self, image: spaces.Box, vector_size: int) -> None:
        self.image, self.vector_size = image, vector_size
        self.vector_bytes = 4 * vector_size
        size = math.prod(image.shape) * np.dtype(image.dtype).itemsize
        super().__init__(0, 255, (self.vector_bytes + size,), np.uint8)

    def split(self, rows: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the parts of rows [..., N]: images and vectors [..., V].

        They are views: what is written to them is written to ``rows``, if its last axis is
        contiguous.
        """
        images = rows[..., self.vector_bytes:].view(self.image.dtype)
        return (images.reshape(*rows.shape[:-1], *self.image.shape),
                rows[..., :self.vector_bytes].view(np.float32))

    def __repr__(self) -> str:
        return f'ImageAndVector({list(self.image.shape)}, {self.vector_size} numbers)'
