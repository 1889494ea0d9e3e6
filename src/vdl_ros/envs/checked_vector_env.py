"""The common behaviour of all vector environments that the factory creates.

Gymnasium does not specify the seeding of sub-environments, the dtype of rewards and the step after
the end of an episode. :class:`CheckedVectorEnv` wraps an environment and fixes them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.quoting import cause, in_one_line
from vdl_ros.envs.canonical_spaces import Actions, Column, Observations

VectorEnvironment: TypeAlias = VectorEnv[Any, Any, Any]
Seeds: TypeAlias = Callable[[list[int]], Any]
#: Observations and info.
ResetResult: TypeAlias = tuple[Any, dict[str, Any]]
#: Observations, rewards, terminated, truncated and info of a step of B environments, and of one.
StepResult: TypeAlias = tuple[
    NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
SingleStepResult: TypeAlias = tuple[Any, Any, bool, bool, dict[str, Any]]
if TYPE_CHECKING:
    Wrapper: TypeAlias = VectorWrapper[Any, Any, Any, Any, Any]
else:
    # At run time its number of type parameters depends on the version of Gymnasium.
    Wrapper = VectorWrapper

# Bytes; settings come over the network.
_MAX_OBSERVATION_BYTES = 1 << 30


class EnvError(ValueError):
    """An environment that cannot be created or stepped; the message is one line."""


class EnvFailedError(EnvError):
    """An error of the environment's own in a call, or an observation that its space has not."""


class EnvStopped(Exception):  # noqa: N818
    """The process ends while an environment waits for something, such as a robot."""


def check_memory(num_envs: int, size: int) -> None:
    """Refuse settings, each allowed, whose observations of ``size`` bytes fill the memory."""
    if num_envs * size > _MAX_OBSERVATION_BYTES:
        raise EnvError(f'num_envs: {num_envs} observations of {size} bytes are not allowed: at '
                       f'most {_MAX_OBSERVATION_BYTES} bytes together')


def seeds_for(seed: int, num_envs: int) -> list[int]:
    """Return one seed per sub-environment, each in [0, 2^31).

    They come from :class:`numpy.random.SeedSequence`, since Gymnasium's ``seed, seed + 1, ...``
    would give actors with neighbouring seeds nearly the same episodes.
    """
    if seed < 0:
        raise EnvError(f'seed: {seed} is not allowed: a whole number, at least 0')
    # The emulator takes a signed 32 bit seed and reads a negative one as "none".
    words = np.random.SeedSequence(seed).generate_state(num_envs, np.uint32) >> np.uint32(1)
    return [int(word) for word in words]


class CheckedVectorEnv(Wrapper):
    """A vector environment of B copies with fixed seeding, dtypes and autoreset.

    * Autoreset is NEXT_STEP: the step that ends an episode returns its last observation, and the
      following step ignores the action, returns the first observation of the next episode and
      reward 0.
    * ``terminated`` and ``truncated`` bool [B] are those of the environment. Both may be true in
      one step (a pole that falls at the time limit); then do not bootstrap.
    * Rewards are float32 [B], never clipped.
    * Later steps do not write to returned observations.
    * The first ``reset()`` uses the seed given at construction, so the same seed gives the same
      episodes; a later ``reset()`` continues the same random streams. ``reset(seed=...)`` starts
      new ones.
    * Observations are one array [B, ...], and actions [B] or [B, A]; the spaces are those of
      ``envs/canonical_spaces.py``.
    * Actions of the wrong shape, dtype or range raise an error before they reach the environment.
      Box actions beyond the bounds are not clipped.
    * Whatever the environment raises becomes an EnvFailedError of one line, except in ``close``,
      which warns of it.

    ``seeds`` converts a list of B seeds to the seed argument of this ``env``.
    """

    def __init__(self, env: VectorEnvironment, seed: int, seeds: Seeds = list) -> None:
        super().__init__(env)
        mode = env.metadata.get('autoreset_mode')
        if mode is not AutoresetMode.NEXT_STEP:
            self.close()
            raise EnvError(
                f'{type(env).__name__}: autoreset mode {mode} is not supported: NEXT_STEP is')
        try:
            self._observations = Observations(env.single_observation_space)
            self._actions = Actions(env.single_action_space)
            space = self._observations.space
            check_memory(self.num_envs, math.prod(space.shape) * space.dtype.itemsize)
        except Exception as error:
            self.close()
            raise EnvError(in_one_line(error)) from error
        if space is not env.single_observation_space:
            self.single_observation_space = space
            self.observation_space = batch_space(space, self.num_envs)
        if self._actions.space is not env.single_action_space:
            self.single_action_space = self._actions.space
            self.action_space = batch_space(self._actions.space, self.num_envs)
        space = self._actions.space
        # Of discrete actions, the largest of each part.
        self._largest: Any = getattr(space, 'nvec', getattr(space, 'n', 0)) - 1
        self._action_shape = (self.num_envs, *(space.shape or ()))
        self._seeds = seeds
        self._first_seed: int | None = seed

    @property
    def observation_columns(self) -> list[Column]:
        return self._observations.columns

    @property
    def first_actions(self) -> NDArray[np.int64]:
        """What the environment adds to actions, which count from 0; files have its numbers."""
        return self._actions.first

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        else:
            self._first_seed = None
        each = None if seed is None else self._seeds(seeds_for(seed, self.num_envs))
        try:
            observations, info = self.env.reset(seed=each, options=options)
            return self._observations.convert(observations), info
        except (EnvError, EnvStopped):
            raise
        except Exception as error:
            raise self.failure('reset', error) from error

    def step(self, actions: NDArray[Any]) -> StepResult:
        chosen = self.to_environment(actions)
        try:
            return self.from_environment(self.env.step(chosen))
        except (EnvError, EnvStopped):
            raise
        except Exception as error:
            raise self.failure('step', error) from error

    def failure(self, call: str, error: Exception) -> EnvFailedError:
        """Return what to raise for an error of the environment's own."""
        spec = self.env.spec
        name = spec.id if spec is not None else type(self.env.unwrapped).__name__
        return EnvFailedError(f'env_id: {name}: {call}(): {cause(error)}')

    def close(self, **kwargs: Any) -> None:
        try:
            super().close(**kwargs)
        except Exception as error:
            # What follows still has to be closed.
            warnings.warn(str(self.failure('close', error)), stacklevel=2)

    def to_environment(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return actions as the environment takes them."""
        return self._actions.convert(self._checked(actions))

    def from_environment(self, outcome: tuple[Any, ...]) -> StepResult:
        """Return what a step of the environment returned, as :meth:`step`."""
        observations, rewards, terminated, truncated, info = outcome
        return (self._observations.convert(observations), np.asarray(rewards, np.float32),
                terminated, truncated, info)

    def render(self) -> tuple[Any, ...] | None:
        """Return an image uint8 [H, W, 3] of each sub-environment, None without rendering."""
        try:
            images = self.env.render()
        except DependencyNotInstalled as error:
            raise EnvError(f'rendering: {error}') from error
        except Exception as error:
            raise self.failure('render', error) from error
        return None if images is None else tuple(images)

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        shape = self._action_shape
        if not isinstance(actions, np.ndarray) or actions.shape != shape:
            raise EnvError(f'actions: shape {np.shape(actions)} is not {shape}')
        if isinstance(self.single_action_space, spaces.Box):
            if not np.isfinite(actions).all():
                raise EnvError('actions: not all are finite')
            return actions
        if actions.dtype.kind not in 'iu':
            raise EnvError(f'actions: {actions.dtype} is not an integer type')
        # In AtariVectorEnv an action out of range would make the caller wait forever.
        wrong = (actions < 0) | (actions > self._largest)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise EnvError(f'actions: {actions[at]} is not within 0 to '
                           f'{np.broadcast_to(self._largest, shape)[at]}')
        return actions.astype(np.int64, copy=False)


class CheckedObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Compares each observation with its space, which the batch would not name.

    Bounds are not compared, because many environments leave theirs by a rounding error.
    """

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        observation, info = self.env.reset(seed=seed, options=options)
        self._check(observation, 'reset')
        return observation, info

    def step(self, action: Any) -> SingleStepResult:
        outcome = self.env.step(action)
        self._check(outcome[0], 'step')
        return outcome

    def _check(self, observation: Any, source: str) -> None:
        space = self.env.observation_space
        # The usual case first: this is done in every step.
        if isinstance(observation, np.ndarray) and observation.shape == space.shape:
            return
        if reason := _difference(space, observation, ''):
            name = self.env.spec.id if self.env.spec else type(self.env.unwrapped).__name__
            raise EnvFailedError(f'env_id: {name}: the observation of {source}(){reason}')


def _difference(space: spaces.Space[Any], observation: Any, part: str) -> str:
    """Return how an observation's structure differs from its space, or ''; ``part`` is its key."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        wanted = list(space.spaces) if isinstance(space, spaces.Dict) else [*range(len(space))]
        if not isinstance(observation, dict | tuple):
            return f'{part} is of {type(observation).__name__}, its space is '\
                   f'{type(space).__name__}'
        keys = list(observation) if isinstance(observation, dict) else [*range(len(observation))]
        if set(keys) != set(wanted):
            return f'{part} has the parts {keys}, its space has {wanted}'
        spaces_by_key: Any = space
        observations: Any = observation
        return next((reason for key in wanted if (reason := _difference(
            spaces_by_key[key], observations[key], f'{part}[{key!r}]'))), '')
    if space.shape is None:
        return ''
    try:
        shape = np.shape(observation)
    except ValueError:
        return f'{part} is a {type(observation).__name__} of unequal parts, its space has the ' \
               f'shape {space.shape}'
    return '' if shape == space.shape else (
        f'{part} has the shape {shape}, its space has {space.shape}')
