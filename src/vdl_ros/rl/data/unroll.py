"""An unroll: T steps of B environments as named arrays, the schema that checks it, its encoding.

=====================  ==================  =====================================================
name                   shape               meaning
=====================  ==================  =====================================================
observations           [T + 1, B, ...]     x_0 ... x_T
images, vectors        [T + 1, B, ...],    sent instead of observations that are an image and
                       [T + 1, B, V]       numbers; ``vectors`` float32
frames, reset_index,                       sent instead of observations, or images, that are stacks
reset_stacks                               of frames, see :func:`unstack`
is_reset               [T + 1, B] bool     x_t is the first observation of an episode
actions                [T, B] or           int64, each part from 0; or float32 before the
                       [T, B, A]           environment clips it
rewards                [T, B] float32      from the environment
terminated, truncated  [T, B] bool         how episodes ended
behaviour_log_probs    [T, B] float32      log mu(a_t | x_t)
success                [T, B] bool         an episode that ends here reached its aim
reaction_time          [T, B, 4] float32   parts of the reaction time, s, in the order of
                                           ``metrics.PARTS``
late_actions           [T, B] int32        steps of the environment that held the last action while
                                           this one was not there
adversary_l2           [T, B] float32      size of the perturbation of x_t, root mean square
adversary_injects      [T, B] bool         an attack perturbed x_t
life_lost              [T, B] bool         the episode that ends here is a life of a game that
                                           goes on
intervened             [T, B] bool         a person chose a_t; its log-probability is another one's
state                  [B, S] float32      state of the policy before x_0; absent if S is 0
=====================  ==================  =====================================================

The seven before ``state`` are absent if the environment lacks them. After the end of an episode
the environment ignores the next action and resets, so a step into a reset observation,
``is_reset[t + 1]``, is not valid for learning. Environments that reset themselves at once
(SAME_STEP) are recorded as if they did (``acting/actor.py``).
"""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from vdl_ros.common.metrics import PARTS
from vdl_ros.common.observation_spaces import MAX_NUMBER, ImageAndVector
from vdl_ros.common.quoting import quoted


def unstack(
    observations: NDArray[np.uint8], is_reset: NDArray[np.bool_],
) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
    """Split stacked observations so that each frame is sent once.

    An observation of S stacked frames shares S - 1 of them with the previous one, so T + 1
    observations are T + S frames. Stacks at the start of an episode do not continue the previous
    one; these are returned whole as well. The frame at slot j of observation t is frame t + j::

        frames        f0 f1 f2 f3 f4 f5 f6        S = 4, T = 3
        observation 0 f0 f1 f2 f3
        observation 1    f1 f2 f3 f4
        observation 2       f2 f3 f4 f5
        observation 3          f3 f4 f5 f6

    After a reset at t, slot j of observation t + k comes from slot j + k of the whole stack, if
    j + k < S; the other slots are frames after the reset.

    Args:
        observations: uint8 [T + 1, B, S, H, W], the oldest frame first.
        is_reset: bool [T + 1, B], true where an observation does not continue the previous one;
            ValueError: it is not marked.

    Returns:
        frames uint8 [T + S, B, H, W]; the positions int32 [n, 2] = (t, b), t >= 1, of the resets
        in increasing order; and the stacks uint8 [n, S, H, W] at these positions. A reset at t = 0
        needs no stack: the frames hold the whole first observation.
    """
    steps, batch, size = observations.shape[:3]
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
    frames: NDArray[np.uint8], positions: NDArray[np.int32], reset_stacks: NDArray[np.uint8],
    out: NDArray[np.uint8],
) -> None:
    """Write the observations that :func:`unstack` was given into ``out`` [T + 1, B, S, H, W].

    The arguments have passed :meth:`UnrollSchema.check`: of others memory is read out of bounds.
    """
    steps, size = len(out), out.shape[2]
    time, env, row, column = frames.strides
    out[...] = as_strided(frames, out.shape, (time, env, time, row, column), writeable=False)
    # Later resets must overwrite earlier ones less than S steps before. Earlier ones reach the
    # same observation with a greater k, so k decreases.
    for k in range(size - 2, -1, -1):
        within = positions[:, 0] + k < steps
        t, b = positions[within, 0] + k, positions[within, 1]
        out[t, b, :size - 1 - k] = reset_stacks[within, k:size - 1]


def _check_positions(positions: NDArray[np.int32], steps: int, batch: int) -> None:
    """Check that positions (t, b) of resets, int32 [n, 2], are within an unroll and increase."""
    if not len(positions):
        return
    low, high = positions.min(axis=0), positions.max(axis=0)
    if low[0] < 1 or high[0] >= steps or low[1] < 0 or high[1] >= batch:
        raise UnrollError(
            f'reset_index: ({low[0]}, {low[1]}) to ({high[0]}, {high[1]}) is not within '
            f'(1, 0) to ({steps - 1}, {batch - 1})')
    order = positions[:, 0].astype(np.int64) * batch + positions[:, 1]
    if (np.diff(order) <= 0).any():
        raise UnrollError('reset_index: not in increasing order of (t, b)')


Arrays = dict[str, NDArray[Any]]
# Bytes of one unroll: the number of environments comes over the network.
_MAX_BYTES = 1 << 31
# One trajectory must not end a run.
_MAX_BY_NAME = {'actions': 1e6, 'behaviour_log_probs': 1e6}


class UnrollError(ValueError):
    """An unroll that does not match its schema; the message names the array and the reason."""


@dataclass(frozen=True)
class Unroll:
    """One actor's unroll, with its origin.

    Attributes:
        arrays: see this module's table.
        start_id: random number of this start of the actor.
        sequence: 0, 1, 2, ... for each start_id.
        age_s: seconds from its last step to its arrival.
    """

    arrays: Mapping[str, NDArray[Any]]
    actor_id: str
    start_id: int
    sequence: int
    policy_version: int
    age_s: float = 0.0
    num_bytes: int = 0

    @property
    def num_envs(self) -> int:
        return int(self.arrays['rewards'].shape[1])


# dtype and shape by name. In a shape, -1 stands for B, which may differ between actors, and -2 for
# the number of resets.
Expected = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
#: Extras, which some environments have, with the shape for one step of one environment.
OPTIONAL: Expected = {
    'success': (np.dtype(np.bool_), ()),
    'reaction_time': (np.dtype(np.float32), (len(PARTS),)),
    'late_actions': (np.dtype(np.int32), ()),
    'adversary_l2': (np.dtype(np.float32), ()),
    'adversary_injects': (np.dtype(np.bool_), ()),
    'life_lost': (np.dtype(np.bool_), ()),
    'intervened': (np.dtype(np.bool_), ())}


def _check_names(expected: Expected, found: Mapping[str, object]) -> None:
    if found.keys() != expected.keys():
        missing = sorted(expected.keys() - found.keys())
        unknown = sorted(found.keys() - expected.keys())
        raise UnrollError(f'arrays missing: {missing}, unknown: {quoted(unknown)}')


def with_optional(expected: Expected, found: Container[str]) -> Expected:
    steps = expected['rewards'][1]
    return expected | {name: (dtype, (*steps, *shape))
                       for name, (dtype, shape) in OPTIONAL.items() if name in found}


def add_extras(arrays: Arrays, extras: Mapping[str, NDArray[Any]], t: int) -> None:
    """Write the extras of step ``t``, by name in ``OPTIONAL``, into an unroll."""
    for name, values in extras.items():
        if name not in arrays:
            arrays[name] = np.zeros((len(arrays['rewards']), *values.shape), values.dtype)
        arrays[name][t] = values


def check_arrays(expected: Expected, arrays: Mapping[str, NDArray[Any]]) -> int:
    """Check names, dtypes, shapes and the magnitude of numbers; return B or raise UnrollError."""
    _check_names(expected, arrays)
    free: dict[int, int] = {}
    for name, (dtype, shape) in expected.items():
        array = arrays[name]
        if array.dtype != dtype:
            raise UnrollError(f'{name}: dtype {array.dtype} is not {dtype}')
        wanted = tuple(
            free.setdefault(size, array.shape[axis])
            if size < 0 and axis < array.ndim else size for axis, size in enumerate(shape))
        if array.shape != wanted:
            raise UnrollError(f'{name}: shape {array.shape} is not {wanted}')
        if dtype.kind == 'f' or name == 'observations':
            _check_magnitude(name, array)
    if free[-1] < 1:
        raise UnrollError('rewards: holds no environment')
    return free[-1]


def check_lengths(
    expected: Expected, lengths: Mapping[str, int], steps: int, resets_per_env: int,
) -> int:
    """Check the bytes of each array by name, before the arrays are looked at; return B.

    ``steps`` are the rows of ``rewards``. It raises an UnrollError if no arrays can match.
    """
    _check_names(expected, lengths)
    num_envs = lengths['rewards'] // (expected['rewards'][0].itemsize * steps)
    sizes = {-1: num_envs, -2: num_envs * resets_per_env}
    for name, (dtype, shape) in expected.items():
        wanted = dtype.itemsize * math.prod(sizes.get(size, size) for size in shape)
        # As many resets as there are.
        if lengths[name] > wanted or (lengths[name] < wanted and -2 not in shape):
            raise UnrollError(f'{name}: {lengths[name]} bytes are not the {wanted} of '
                              f'{num_envs} environments')
    return num_envs


def _check_magnitude(name: str, array: NDArray[Any]) -> None:
    if not array.size or array.dtype.itemsize == 1:
        return
    # Both are NaN if any value is.
    low, high = float(array.min()), float(array.max())
    if not math.isfinite(low) or not math.isfinite(high):
        raise UnrollError(f'{name}: not all finite')
    largest = _MAX_BY_NAME.get(name, MAX_NUMBER)
    if max(-low, high) > largest:
        raise UnrollError(f'{name}: {low if -low > high else high:g} is not allowed: '
                          f'from {-largest:g} to {largest:g}')


class UnrollSchema:
    """Names, dtypes and shapes of unrolls of one environment and one unroll length.

    Args:
        frames_per_observation: frames stacked in one observation, or in the image in it.
        state_size: S, size of the policy's state; 0: it has none.
    """

    def __init__(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any],
        unroll_length: int, frames_per_observation: int, state_size: int = 0,
    ) -> None:
        self.frames_per_observation = frames_per_observation
        self.stacked = frames_per_observation > 1
        assert isinstance(observation_space, gymnasium.spaces.Box)
        self.observation_space = observation_space
        self.unroll_length = steps = unroll_length
        self.state_size = state_size
        action_shape = tuple(action_space.shape or ())
        # Of discrete actions the number of each part's values, int64 [A]; [0] of others.
        self.action_sizes: NDArray[np.int64] = np.atleast_1d(getattr(
            action_space, 'nvec', getattr(action_space, 'n', np.zeros(0, np.int64))))
        number, flag = np.dtype(np.float32), np.dtype(np.bool_)
        others: Expected = {
            'is_reset': (flag, (steps + 1, -1)),
            'actions': (np.dtype(np.int64) if self.action_sizes.size else number,
                        (steps, -1, *action_shape)),
            'rewards': (number, (steps, -1)), 'terminated': (flag, (steps, -1)),
            'truncated': (flag, (steps, -1)), 'behaviour_log_probs': (number, (steps, -1))}
        if state_size:
            others['state'] = (number, (-1, state_size))
        dtype, shape = np.dtype(observation_space.dtype), observation_space.shape
        whole: Expected = {'observations': (dtype, (steps + 1, -1, *shape))}
        sent = whole
        mixed = self._mixed = (
            observation_space if isinstance(observation_space, ImageAndVector) else None)
        if mixed is not None:
            dtype, shape = np.dtype(mixed.image.dtype), mixed.image.shape
            sent = {'images': (dtype, (steps + 1, -1, *shape))}
        if self.stacked:
            sent = {
                'frames': (dtype, (steps + shape[0], -1, *shape[1:])),
                'reset_index': (np.dtype(np.int32), (-2, 2)),
                'reset_stacks': (dtype, (-2, *shape))}
        if mixed is not None:
            sent = sent | {'vectors': (number, (steps + 1, -1, mixed.vector_size))}
        # In memory, and in messages.
        self._whole, self._expected = others | whole, others | sent

    def check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Check names, dtypes, shapes and ranges; raise an UnrollError that names the array."""
        check_arrays(with_optional(self._expected, arrays), arrays)
        if self.action_sizes.size:
            actions = arrays['actions'].reshape(-1, self.action_sizes.size)
            low, high = actions.min(axis=0), actions.max(axis=0)
            for part in np.flatnonzero((low < 0) | (high >= self.action_sizes))[:1]:
                raise UnrollError(f'actions: {low[part]} to {high[part]} is not within 0 to '
                                  f'{self.action_sizes[part] - 1}')
        if self.stacked:
            _check_positions(
                arrays['reset_index'], self.unroll_length + 1, arrays['rewards'].shape[1])

    def check_lengths(self, lengths: Mapping[str, int]) -> None:
        """Raise an UnrollError if arrays of so many bytes, by name, cannot be an unroll."""
        self.check_size(check_lengths(
            with_optional(self._expected, lengths), lengths, self.unroll_length,
            self.unroll_length))

    def num_bytes(self, num_envs: int) -> int:
        """Return the size of an unroll of ``num_envs`` environments, observations stacked."""
        return sum(dtype.itemsize * math.prod(num_envs if size < 0 else size for size in shape)
                   for dtype, shape in self._whole.values())

    def check_size(self, num_envs: int) -> None:
        """Raise an UnrollError if an unroll of ``num_envs`` environments is too large."""
        size = self.num_bytes(num_envs)
        if size > _MAX_BYTES:
            raise UnrollError(
                f'unroll_length: {self.unroll_length} steps of {num_envs} environments are '
                f'{size} bytes, which is not allowed: at most {_MAX_BYTES}')

    def empty(self, num_envs: int) -> Arrays:
        """Return empty arrays without ``OPTIONAL``; raise an UnrollError if they are too large."""
        self.check_size(num_envs)
        return {name: np.empty([num_envs if size < 0 else size for size in shape], dtype)
                for name, (dtype, shape) in self._whole.items()}

    def encode(self, observations: NDArray[Any], is_reset: NDArray[np.bool_]) -> Arrays:
        """Return the arrays that encode observations [T + 1, B, ...]."""
        vectors: Arrays = {}
        if self._mixed is not None:
            observations, vectors['vectors'] = self._mixed.split(observations)
        if not self.stacked:
            return {'observations' if self._mixed is None else 'images': observations, **vectors}
        frames, index, stacks = unstack(observations, is_reset)
        return {'frames': frames, 'reset_index': index, 'reset_stacks': stacks, **vectors}

    def decode_into(self, arrays: Mapping[str, NDArray[Any]], out: NDArray[Any]) -> None:
        """Write the observations of a checked unroll into ``out`` [T + 1, B, ...]."""
        if 'observations' in arrays:
            out[...] = arrays['observations']
            return
        if self._mixed is not None:
            out, vectors = self._mixed.split(out)
            vectors[...] = arrays['vectors']
        if self.stacked:
            stack(arrays['frames'], arrays['reset_index'], arrays['reset_stacks'], out)
        else:
            out[...] = arrays['images']


class EndOfBagError(Exception):
    """All unrolls of a bag have been taken."""


class Inbox(Protocol):
    """The source of unrolls."""

    def get(self, timeout: float) -> Unroll:
        """Return the next unroll, whose arrays have passed :meth:`UnrollSchema.check`.

        It raises ``queue.Empty`` after ``timeout`` seconds, EndOfBagError if no more will come.
        """
