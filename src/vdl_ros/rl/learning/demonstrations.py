"""Demonstrations as arrays, checked against the spaces of an environment."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.rl.data.unroll import Unroll, UnrollSchema
from vdl_ros.rl.learning.flow_stats import FlowStats

# As of unrolls.
_MAX_OBSERVATION, _MAX_ACTION = 1e9, 1e6
# Share of the range of an action by which a number may lie outside: it was rounded.
_ROUNDED = 1e-4
# Source of these unrolls.
_ACTOR = 'demonstrations'


@dataclass(frozen=True)
class Outcomes:
    """What followed N steps.

    Attributes:
        observations: those after the steps, [N, ...].
        rewards: float [N].
        terminated: bool [N].
        ends: whether the next step does not go on from there, bool [N].
    """

    observations: NDArray[Any]
    rewards: NDArray[Any]
    terminated: NDArray[np.bool_]
    ends: NDArray[np.bool_]


@dataclass(frozen=True)
class Demonstrations:
    """Observations [N, ...] and what was done then, [N] or [N, A], as the environment takes it."""

    observations: NDArray[Any]
    actions: NDArray[Any]
    episodes: int
    source: str
    outcomes: Outcomes | None = None

    def fitted(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any],
        first: ArrayLike = 0,
    ) -> 'Demonstrations':
        """Return the same with the dtypes of the spaces; ValueError: they do not fit them.

        ``first`` are the least numbers of discrete actions here; the result counts from 0.
        """
        mixed = isinstance(observation_space, ImageAndVector)
        if not isinstance(observation_space, gymnasium.spaces.Box) or (
                observation_space.dtype != self.observations.dtype if mixed
                else observation_space.dtype.kind != 'f') or (
                len(observation_space.shape) != 1):
            raise ValueError(
                f'{self.source}: observations of the space {observation_space} cannot be learned '
                'from demonstrations: numbers, and images of a robot that was recorded in bags')
        found = np.asarray(self.observations, observation_space.dtype)
        if found.shape[1:] != observation_space.shape:
            raise ValueError(
                f'{self.source}: observations of shape {list(found.shape[1:])} do not fit the '
                f'environment: {list(observation_space.shape)}')
        outcomes = self.outcomes

        def numbers(rows: NDArray[Any]) -> NDArray[Any]:
            return observation_space.split(rows)[1] if isinstance(
                observation_space, ImageAndVector) else rows

        for name, values, largest in (
                ('observations', numbers(found), _MAX_OBSERVATION),
                ('actions', self.actions, _MAX_ACTION),
                *((('observations', numbers(outcomes.observations), _MAX_OBSERVATION),
                   ('rewards', outcomes.rewards, _MAX_OBSERVATION)) if outcomes else ())):
            # NaN is not within any bounds.
            if not (np.abs(values) <= largest).all():
                raise ValueError(
                    f'{self.source}: {name} that are not finite, or beyond {largest:g}')
        actions = self.actions.reshape(len(found), -1)
        shape = tuple(action_space.shape or ())
        if actions.shape[1] != max(1, int(np.prod(shape))):
            raise ValueError(f'{self.source}: {actions.shape[1]} numbers in an action do not fit '
                             f'the actions of the environment: {action_space}')
        low, high = _range(action_space, first)
        spare = _ROUNDED * np.where(np.isfinite(high - low), high - low, 0.0)
        outside = (actions < low - spare) | (actions > high + spare)
        is_discrete = not isinstance(action_space, gymnasium.spaces.Box)
        if is_discrete:
            outside |= actions != np.round(actions)
        if outside.any():
            row, part = np.argwhere(outside)[0]
            raise ValueError(
                f'{self.source}: action {actions[row, part]:g} of row {row}, part {part}, does '
                f'not fit the actions of the environment: {action_space}'
                + (f' from {low.astype(int).tolist()}' if np.any(first) else ''))
        if is_discrete:
            actions = actions - low
        return replace(self, observations=found, actions=actions.reshape(
            len(found), *shape).astype(np.int64 if is_discrete else np.float32))

    def as_unroll(self, schema: UnrollSchema) -> Unroll:
        """Return the steps with their outcomes, each episode in columns of its own."""
        outcomes, length = self.outcomes, schema.unroll_length
        assert outcomes is not None
        stops = np.flatnonzero(outcomes.ends) + 1
        pieces = [np.arange(first, min(first + length, stop))
                  for start, stop in zip([0, *stops], [*stops, len(self.actions)], strict=False)
                  for first in range(start, stop, length)]
        arrays = {name: np.zeros_like(each)
                  for name, each in schema.empty(len(pieces)).items()}
        for column, rows in enumerate(pieces):
            count = len(rows)
            arrays['observations'][:count, column] = self.observations[rows]
            arrays['observations'][count:, column] = outcomes.observations[rows[-1]]
            arrays['is_reset'][count + 1:, column] = True
            for name, values in (('actions', self.actions), ('rewards', outcomes.rewards),
                                 ('terminated', outcomes.terminated)):
                arrays[name][:count, column] = values[rows]
        return Unroll(arrays, _ACTOR, 0, 0, 0)


def _range(
    space: gymnasium.Space[Any], first: ArrayLike,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the largest number of each part of an action, float64 [A]."""
    if isinstance(space, gymnasium.spaces.Box):
        return space.low.reshape(-1).astype(float), space.high.reshape(-1).astype(float)
    sizes = np.atleast_1d(getattr(space, 'nvec', getattr(space, 'n', 0))).reshape(-1)
    low = np.broadcast_to(np.asarray(first, float), sizes.shape)
    return low, low + sizes - 1.0


def repeated(space: gymnasium.Space[Any], chunk: int) -> gymnasium.Space[Any]:
    """Return the space of the actions of so many steps, one after the other."""
    spaces = gymnasium.spaces
    if chunk == 1 or not isinstance(space, spaces.Box):
        sizes = np.ravel(getattr(space, 'nvec', getattr(space, 'n', 0)))
        return space if chunk == 1 else spaces.MultiDiscrete(np.tile(sizes, chunk))
    return spaces.Box(np.tile(space.low, chunk), np.tile(space.high, chunk), dtype=np.float32)


def chunks(actions: NDArray[Any], chunk: int) -> NDArray[Any]:
    """Return for each step of an episode its action and the next ones, [N, chunk * A].

    ``actions`` are [N] or [N, A]; after the last one come copies of it.
    """
    places = np.arange(len(actions))[:, None] + np.arange(chunk)
    found: NDArray[Any] = actions[np.minimum(places, len(actions) - 1)]
    return found.reshape(len(actions), -1)


class DemonstrationInbox:
    """An inbox whose unrolls, of at least ``batch`` steps, are those of one update.

    Their steps are drawn in a random order, each once before any comes again. What does
    not belong to demonstrations, such as rewards, is 0.
    """

    #: Unrolls that wait.
    waiting = 0

    def __init__(
        self, demonstrations: Demonstrations, schema: UnrollSchema, batch: int, seed: int,
        version: Callable[[], int], flow_stats: FlowStats,
    ) -> None:
        self._demonstrations, self._schema = demonstrations, schema
        self._columns = -(-batch // schema.unroll_length)
        self._random = np.random.default_rng(seed)
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._version, self._flow_stats = version, flow_stats
        self._sequence = 0

    def get(self, timeout: float) -> Unroll:
        steps, columns = self._schema.unroll_length, self._columns
        rows = self._draw(steps * columns).reshape(steps, columns)
        observations = self._demonstrations.observations[rows]
        none, flags = np.zeros((steps, columns), np.float32), np.zeros((steps, columns), np.bool_)
        arrays = {
            # What follows an action is not used.
            'observations': np.concatenate([observations, observations[-1:]]),
            'actions': self._demonstrations.actions[rows], 'rewards': none,
            'behaviour_log_probs': none, 'terminated': flags, 'truncated': flags,
            'is_reset': np.zeros((steps + 1, columns), np.bool_)}
        unroll = Unroll(arrays, _ACTOR, 0, self._sequence, self._version())
        self._flow_stats.arrive(_ACTOR, 0, self._sequence)
        self._sequence += 1
        return unroll

    def _draw(self, count: int) -> NDArray[np.int64]:
        """Return the next rows of the demonstrations, int64 [count]."""
        while len(self._order) < count:
            more = self._random.permutation(len(self._demonstrations.observations))
            self._order = np.concatenate([self._order, more])
        drawn, self._order = self._order[:count], self._order[count:]
        return drawn
