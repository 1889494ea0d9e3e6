"""
What every vector environment made here promises, whatever library it comes from.

Gymnasium leaves open how sub-environments are seeded, in which dtype rewards come and what happens
after the last step of an episode. An actor that records unrolls needs one answer, so
:class:`CheckedVectorEnv` wraps the environment and gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

__all__ = ['CheckedVectorEnv', 'EnvError', 'Seeds', 'VectorEnvironment', 'Wrapper', 'seeds_for']

VectorEnvironment: TypeAlias = VectorEnv[Any, Any, Any]
Seeds: TypeAlias = Callable[[list[int]], Any]
if TYPE_CHECKING:
    Wrapper: TypeAlias = VectorWrapper[Any, Any, Any, Any, Any]
else:
    # Its number of type parameters, at run time, depends on the version of Gymnasium.
    Wrapper = VectorWrapper

OBSERVATIONS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
ACTIONS = (spaces.Discrete, spaces.Box)


class EnvError(ValueError):
    """An environment that cannot be made or stepped; the message is one line for the user."""


def seeds_for(seed: int, num_envs: int) -> list[int]:
    """
    Return one seed per sub-environment, each in [0, 2^31).

    Gymnasium's own ``seed, seed + 1, ...`` would give actor 1 nearly the episodes of actor 0, so
    the seeds are drawn from :class:`numpy.random.SeedSequence`.

    Raises:
        EnvError: ``seed`` is negative.
    """
    if seed < 0:
        raise EnvError(f'seed: {seed} is not allowed: a whole number, at least 0')
    # The emulator takes a signed 32 bit seed and reads a negative one as "none".
    words = np.random.SeedSequence(seed).generate_state(num_envs, np.uint32) >> np.uint32(1)
    return [int(word) for word in words]


class CheckedVectorEnv(Wrapper):
    """
    A vector environment of B copies that an actor can rely on.

    * Autoreset is NEXT_STEP: the step that ends an episode returns its last observation, and the
      following step ignores the action, returns the first observation of the next episode and
      reward 0.
    * ``terminated`` and ``truncated`` bool [B] are as the environment says. Both may be true in
      one step (a pole that falls at the time limit); then nothing follows, so do not bootstrap.
    * Rewards are float32 [B], never clipped.
    * Observations are the caller's: no later step writes to them.
    * The first ``reset()`` uses the seed given at construction, so the same seed gives the same
      episodes; a later ``reset()`` goes on with the same random streams. ``reset(seed=...)``
      starts again from another one.
    * Actions of the wrong shape, kind or range are refused before they reach the environment.
      Box actions beyond the bounds are passed on: clipping is the caller's choice.

    Raises:
        EnvError: the environment has another autoreset mode, or observations or actions that are
            not one array.
    """

    def __init__(self, env: VectorEnvironment, seed: int, seeds: Seeds = list) -> None:
        """
        Wrap ``env``.

        ``seeds`` turns a list of B seeds into what the ``reset`` of this ``env`` takes.
        """
        super().__init__(env)
        mode = env.metadata.get('autoreset_mode')
        if mode is not AutoresetMode.NEXT_STEP:
            env.close()
            raise EnvError(
                f'{type(env).__name__}: autoreset mode {mode} is not supported: NEXT_STEP is')
        for what, space, kinds in (
                ('observations', env.single_observation_space, OBSERVATIONS),
                ('actions', env.single_action_space, ACTIONS)):
            if not isinstance(space, kinds):
                env.close()
                raise EnvError(
                    f'{what}: {type(space).__name__} is not supported: '
                    + ', '.join(kind.__name__ for kind in kinds))
        self._seeds = seeds
        self._first_seed: int | None = seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """
        Start an episode in every sub-environment.

        Returns:
            Observations [B, ...] and the environment's info.
        """
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        else:
            self._first_seed = None
        each = None if seed is None else self._seeds(seeds_for(seed, self.num_envs))
        observations, info = self.env.reset(seed=each, options=options)
        return observations, info

    def step(
        self, actions: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_],
               dict[str, Any]]:
        """
        Step every sub-environment once.

        Returns:
            Observations [B, ...], rewards float32 [B], terminated bool [B], truncated bool [B]
            and the environment's info.

        Raises:
            EnvError: ``actions`` do not fit the action space.
        """
        observations, rewards, terminated, truncated, info = self.env.step(self._checked(actions))
        return observations, np.asarray(rewards, np.float32), terminated, truncated, info

    def render(self) -> tuple[Any, ...] | None:
        """
        Return a picture uint8 [H, W, 3] of each sub-environment, None without rendering.

        Raises:
            EnvError: a library that draws is not installed.
        """
        try:
            pictures = self.env.render()
        except DependencyNotInstalled as error:
            raise EnvError(f'rendering: {error}') from error
        return None if pictures is None else tuple(pictures)

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        space = self.single_action_space
        shape = (self.num_envs, *(space.shape or ()))
        if not isinstance(actions, np.ndarray) or actions.shape != shape:
            raise EnvError(f'actions: shape {np.shape(actions)} is not {shape}')
        if isinstance(space, spaces.Discrete):
            if actions.dtype.kind not in 'iu':
                raise EnvError(f'actions: {actions.dtype} is not an integer type')
            low, high = int(space.start), int(space.start + space.n - 1)
            # Not left to the environment: in AtariVectorEnv an action out of range ends a worker's
            # step without a result, and the caller waits for ever.
            if actions.min() < low or actions.max() > high:
                raise EnvError(
                    f'actions: {actions.min()} to {actions.max()} are not within {low} to {high}')
            return actions.astype(np.int64, copy=False)
        if isinstance(space, spaces.Box) and not np.isfinite(actions).all():
            raise EnvError('actions: not all are finite')
        return actions
