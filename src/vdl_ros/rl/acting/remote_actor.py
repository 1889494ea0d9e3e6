"""The actor of central inference: it sends observations and receives actions.

As in SEED RL (Espeholt et al. 2019, arXiv:1910.06591). Arrays of one step in a message:

======================  ===========  ============================================================
name                    shape        meaning
======================  ===========  ============================================================
observations            [B, ...]
images, vectors         [B, ...],    instead of observations that are an image and numbers;
                        [B, V]       ``vectors`` float32
frames                  [B, H, W]    uint8; this and the next two instead of observations, or
                                     images, that are stacks of frames: the newest frames, and the
                                     stacks that do not continue
whole_index             [n] int32    environments whose stack is sent whole
whole_stacks            [n, S, H, W] uint8
is_reset                [B] bool     the observation is the first of an episode
rewards                 [B] float32  of the last step; 0 before the first
terminated, truncated   [B] bool     of the last step
success, reaction_time, [B], [B, 4], of the last step, as in ``unroll.py``; absent if the
late_actions            [B]          environment lacks them
======================  ===========  ============================================================
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.rl.acting.actor import EnvStepper, Step
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode
from vdl_ros.rl.data.unroll import (
    Arrays,
    Expected,
    UnrollError,
    check_arrays,
    check_lengths,
    with_optional,
)


class StepSchema:
    """Names, dtypes and shapes of the arrays of one step in a message."""

    def __init__(
        self, observation_space: gymnasium.spaces.Box, frames_per_observation: int,
    ) -> None:
        self.stacked = frames_per_observation > 1
        mixed = self._mixed = (
            observation_space if isinstance(observation_space, ImageAndVector) else None)
        space = observation_space if mixed is None else mixed.image
        dtype, shape = np.dtype(space.dtype), space.shape
        flag = np.dtype(np.bool_), (-1,)
        self._expected: Expected = {
            'is_reset': flag, 'rewards': (np.dtype(np.float32), (-1,)), 'terminated': flag,
            'truncated': flag}
        if self.stacked:
            self._expected |= {
                'frames': (dtype, (-1, *shape[1:])),
                'whole_index': (np.dtype(np.int32), (-2,)),
                'whole_stacks': (dtype, (-2, *shape))}
        else:
            self._expected['observations' if mixed is None else 'images'] = dtype, (-1, *shape)
        if mixed is not None:
            self._expected['vectors'] = (np.dtype(np.float32), (-1, mixed.vector_size))

    def check(self, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Check one step; return B, or raise an UnrollError that names the array."""
        num_envs = check_arrays(with_optional(self._expected, arrays), arrays)
        index = arrays.get('whole_index')
        if index is not None and index.size and not (
                int(index.min()) >= 0 and int(index.max()) < num_envs):
            raise UnrollError(f'whole_index: {index.min()} to {index.max()} is not within '
                              f'0 to {num_envs - 1}')
        return num_envs

    def check_lengths(self, lengths: Mapping[str, int]) -> None:
        """Raise an UnrollError if arrays of so many bytes, by name, cannot be a step."""
        check_lengths(with_optional(self._expected, lengths), lengths, 1, 1)

    def encode(self, observation: NDArray[Any], whole: NDArray[np.bool_]) -> Arrays:
        """Return the arrays that encode an observation; ``whole`` [B]: send the whole stack."""
        vectors: Arrays = {}
        if self._mixed is not None:
            observation, vectors['vectors'] = self._mixed.split(observation)
        if not self.stacked:
            return {'observations' if self._mixed is None else 'images': observation, **vectors}
        index = np.flatnonzero(whole).astype(np.int32)
        return {'frames': np.ascontiguousarray(observation[:, -1]), 'whole_index': index,
                'whole_stacks': observation[index], **vectors}

    def decode(
        self, arrays: Mapping[str, NDArray[Any]], before: NDArray[Any] | None, out: NDArray[Any],
    ) -> None:
        """Write the observation in checked arrays, after ``before``, into ``out`` [B, ...].

        UnrollError: a stack continues one that was not received.
        """
        if self._mixed is not None:
            out, vectors = self._mixed.split(out)
            vectors[...] = arrays['vectors']
            before = None if before is None else self._mixed.split(before)[0]
        if not self.stacked:
            out[...] = arrays['observations' if self._mixed is None else 'images']
            return
        index = arrays['whole_index']
        if before is not None:
            out[:, :-1] = before[:, 1:]
        elif len(np.unique(index)) < len(out):
            raise UnrollError(f'whole_index: {len(np.unique(index))} of {len(out)} stacks are '
                              'whole, and there is no previous observation to continue')
        out[:, -1] = arrays['frames']
        out[index] = arrays['whole_stacks']


class RemoteActor:
    """B environments whose actions come from the learner; ``step`` is the number of the next."""

    def __init__(self, envs: VectorEnv, schema: StepSchema, seed: int, step: int = 0) -> None:
        self.envs, self.step = envs, step
        self._schema = schema
        self._stepper = EnvStepper(envs, seed)
        batch = envs.num_envs
        self._last = Step(
            self._stepper.observation, np.zeros(batch, np.float32), np.zeros(batch, np.bool_),
            np.zeros(batch, np.bool_), np.ones(batch, np.bool_))
        self._start = self._last.is_reset
        self._episodes = EpisodeCounter(batch)

    def observe(self, *, whole: bool) -> Arrays:
        """Return the arrays of the current step; ``whole``: the reader lacks the previous one."""
        last = self._last
        stacks = np.ones_like(last.is_reset) if whole else last.is_reset
        return {'is_reset': last.is_reset, 'rewards': last.reward,
                'terminated': last.terminated, 'truncated': last.truncated, **last.extras,
                **self._schema.encode(last.observation, stacks)}

    @property
    def extras(self) -> Mapping[str, NDArray[Any]]:
        return self._last.extras

    def take(self, actions: NDArray[Any]) -> list[FinishedEpisode]:
        """Step with ``actions`` [B] or [B, A]; return the episodes that ended."""
        first = self._last.is_reset
        self._last = self._stepper.step(actions)
        self.step += 1
        return self._episodes.add(self._last.arrays(first))
