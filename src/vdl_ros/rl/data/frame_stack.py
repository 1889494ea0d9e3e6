r"""
Encoding of stacked frames in which each frame is sent once.

An observation of S stacked frames shares S - 1 of them with the previous one, so an unroll of
T + 1 observations sends T + S frames instead of (T + 1) S, and the receiver stacks them again.
Stacks at the start of an episode do not continue the previous one; these are sent whole as well.
The frame at slot j of observation t is frame t + j of the unroll::

    frames        f0 f1 f2 f3 f4 f5 f6        S = 4, T = 3
    observation 0 f0 f1 f2 f3
    observation 1    f1 f2 f3 f4
    observation 2       f2 f3 f4 f5
    observation 3          f3 f4 f5 f6

After a reset at t, slot j of observation t + k comes from slot j + k of the stack that was sent
whole, if j + k < S; the other slots are frames after the reset.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

__all__ = ['check_positions', 'stack', 'unstack']


def unstack(
    observations: NDArray[np.uint8], is_reset: NDArray[np.bool_],
) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
    """
    Split stacked observations into frames and the stacks that do not continue.

    Args:
        observations: uint8 [T + 1, B, S, H, W], the oldest frame first.
        is_reset: bool [T + 1, B], true where an observation does not continue the previous one.

    Returns:
        frames uint8 [T + S, B, H, W]; the positions int32 [n, 2] = (t, b), t >= 1, of the resets
        in increasing order; and the stacks uint8 [n, S, H, W] at these positions. A reset at t = 0
        needs no stack: the frames hold the whole first observation.

    Raises:
        ValueError: a wrong shape or dtype, or an observation that does not continue the previous
            one and is not marked as a reset.
    """
    _check('observations', observations, np.uint8, 5)
    steps, batch, size = observations.shape[:3]
    if steps < 1 or size < 1:
        raise ValueError(f'observations: {observations.shape} holds no observation')
    _check('is_reset', is_reset, np.bool_, 2, (steps, batch))
    continues = (observations[1:, :, :-1] == observations[:-1, :, 1:]).all(axis=(2, 3, 4))
    broken = np.argwhere(~(continues | is_reset[1:]))
    if len(broken):
        t, b = (int(index) for index in broken[0])
        raise ValueError(
            f'observations: number {t + 1} of environment {b} does not continue the one before '
            'and is not marked as a reset')
    frames = np.empty((steps + size - 1, batch, *observations.shape[3:]), np.uint8)
    frames[:size] = observations[0].swapaxes(0, 1)
    frames[size:] = observations[1:, :, -1]
    positions = np.argwhere(is_reset[1:]).astype(np.int32)
    positions[:, 0] += 1
    return frames, positions, observations[positions[:, 0], positions[:, 1]]


def stack(
    frames: NDArray[np.uint8],
    positions: NDArray[np.int32],
    reset_stacks: NDArray[np.uint8],
    out: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """
    Return the observations uint8 [T + 1, B, S, H, W] that :func:`unstack` was given.

    The arguments are its return values; they are checked, as they come from the network. ``out``
    may be any writable array of that shape, such as a slice of a batch, and is then returned.

    Raises:
        ValueError: a wrong shape or dtype, or positions that are out of range or not in
            increasing order.
    """
    _check('frames', frames, np.uint8, 4)
    _check('reset_stacks', reset_stacks, np.uint8, 4)
    count, size, height, width = reset_stacks.shape
    _check('positions', positions, np.int32, 2, (count, 2))
    steps, batch = frames.shape[0] - size + 1, frames.shape[1]
    if size < 1 or steps < 1 or frames.shape[2:] != (height, width):
        raise ValueError(
            f'frames: {frames.shape} does not fit stacks of {size} frames {height} x {width}')
    check_positions(positions, steps, batch)
    shape = (steps, batch, size, height, width)
    if out is None:
        out = np.empty(shape, np.uint8)
    else:
        _check('out', out, np.uint8, 5, shape)
        if not out.flags.writeable:
            raise ValueError('out: is read-only')
    time, env, row, column = frames.strides
    out[...] = as_strided(frames, shape, (time, env, time, row, column), writeable=False)
    # Later resets must overwrite earlier ones less than S steps before. Earlier ones reach the
    # same observation with a greater k, so k decreases.
    for k in range(size - 2, -1, -1):
        within = positions[:, 0] + k < steps
        t, b = positions[within, 0] + k, positions[within, 1]
        out[t, b, :size - 1 - k] = reset_stacks[within, k:size - 1]
    return out


def check_positions(positions: NDArray[np.int32], steps: int, batch: int) -> None:
    """
    Check the positions int32 [n, 2] = (t, b) of resets.

    Raises:
        ValueError: one is outside [1, steps) x [0, batch), or they are not strictly increasing.
    """
    if not len(positions):
        return
    low, high = positions.min(axis=0), positions.max(axis=0)
    if low[0] < 1 or high[0] >= steps or low[1] < 0 or high[1] >= batch:
        raise ValueError(
            f'positions: ({low[0]}, {low[1]}) to ({high[0]}, {high[1]}) is not within '
            f'(1, 0) to ({steps - 1}, {batch - 1})')
    order = positions[:, 0].astype(np.int64) * batch + positions[:, 1]
    if (np.diff(order) <= 0).any():
        raise ValueError('positions: not in increasing order of (t, b)')


def _check(
    name: str, array: object, dtype: type, ndim: int, shape: tuple[int, ...] | None = None,
) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != ndim:
        found = (f'{array.dtype} with {array.ndim} axes' if isinstance(array, np.ndarray)
                 else type(array).__name__)
        raise ValueError(f'{name}: {found} is not {np.dtype(dtype)} with {ndim} axes')
    if shape is not None and array.shape != shape:
        raise ValueError(f'{name}: shape {array.shape} is not {shape}')
