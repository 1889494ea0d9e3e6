"""A policy as a plain function: what an environment shows, in; what it takes, out.

For a checkpoint it needs PyTorch and the environment; a file of ``export_policy`` needs neither.
"""

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.common.files import checkpoint_file
from vdl_ros.common.onnx_file import OnnxFileError
from vdl_ros.envs.canonical_spaces import Actions, ObservationError, Observations
from vdl_ros.play.onnx_policy import OnnxPolicy, load_onnx_policy
from vdl_ros.play.plain_spaces import from_plain


class Predictor(ABC):
    """A policy of an environment with these spaces.

    Attributes:
        observation_space, action_space: of the environment, with its wrappers.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._observations, self._actions = Observations(observation_space), Actions(action_space)

    def predict(
        self, observation: Any, state: NDArray[np.float32] | None = None, reward: float = 0.0,
    ) -> tuple[Any, NDArray[np.float32]]:
        """Return the most likely action, as the environment takes it, and the next state.

        Args:
            observation: as the environment returns it: an array, a dict of arrays, ...
            state: what the call before returned; None: an episode begins.
            reward: of the action before; only a policy with ``last_action_reward`` uses it.

        Raises:
            ValueError: an observation that the environment does not have; one line.
        """
        batched = _batched(self.observation_space, observation)
        try:
            row = self._observations.convert(batched)
        except ObservationError as error:
            raise ValueError(f'observation{error}') from None
        chosen, after = self._step(row, state, float(np.clip(reward, -1.0, 1.0)))
        action = self._actions.convert(chosen)[0]
        return int(action) if isinstance(self.action_space, spaces.Discrete) else action, after

    @abstractmethod
    def _step(
        self, row: NDArray[Any], state: NDArray[np.float32] | None, reward: float,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return actions [1, ...] of the space of :class:`Actions`, and the state [1, S]."""


class _TorchPredictor(Predictor):
    def __init__(self, path: Path) -> None:
        from vdl_ros.envs import factory
        from vdl_ros.play.saved_policy import load_policy as load_saved
        saved = load_saved(path)
        with contextlib.closing(factory.make(saved.env, seed=0, num_envs=1)) as envs:
            super().__init__(*factory.raw_spaces(envs))
        self._policy = saved.policy
        self._box = saved.action_space if isinstance(saved.action_space, spaces.Box) else None

    def _step(
        self, row: NDArray[Any], state: NDArray[np.float32] | None, reward: float,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        import torch
        policy = self._policy
        with torch.inference_mode():
            before = policy.initial_state(1) if state is None else torch.from_numpy(
                _with_reward(state, reward, -1 if policy.last_action_reward else None))
            parameters, _, after = policy(
                torch.from_numpy(row)[None], torch.zeros((1, 1), dtype=torch.bool), before)
            chosen = policy.distribution.mode(parameters[0])
            after = policy.append_last_action(after, chosen, torch.zeros(1))
        actions = policy.distribution.to_environment(chosen.numpy())
        return (actions if self._box is None
                else np.clip(actions, self._box.low, self._box.high)), after.numpy()


class _OnnxPredictor(Predictor):
    def __init__(self, path: Path) -> None:
        self._policy: OnnxPolicy = load_onnx_policy(path)
        plain = self._policy.metadata.spaces
        if plain is None:
            raise OnnxFileError(f'{path}: it does not have the spaces of its environment: export '
                                'the policy again')
        super().__init__(*map(from_plain, plain))
        starts = self._policy.metadata.action.starts
        self._starts: Any = np.array(starts) if self._policy.metadata.action.shape else sum(starts)

    def _step(
        self, row: NDArray[Any], state: NDArray[np.float32] | None, reward: float,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        found = self._policy.metadata
        state = np.zeros((1, found.state_size), np.float32) if state is None else _with_reward(
            state, reward, found.last_reward)
        outputs = self._policy.advance(row, state)
        actions = outputs.actions
        return actions - self._starts if found.action.starts else actions, outputs.state


def load_policy(path: str | Path) -> Predictor:
    """Return the policy of a checkpoint, of a run's folder, or of an ONNX file.

    ValueError: it cannot be read; one line that names the file.
    """
    path = Path(path)
    if path.suffix == '.onnx':
        return _OnnxPredictor(path)
    return _TorchPredictor(checkpoint_file(path))


def _with_reward(
    state: NDArray[np.float32], reward: float, index: int | None,
) -> NDArray[np.float32]:
    if index is None:
        return state
    state = state.copy()
    state[:, index] = reward
    return state


def _batched(space: spaces.Space[Any], observation: Any, place: str = 'observation') -> Any:
    """Return an observation with a first axis of 1 in each part; ValueError: of another space."""
    try:
        if isinstance(space, spaces.Dict):
            return {key: _batched(each, observation[key], f'{place}[{key!r}]')
                    for key, each in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(_batched(each, observation[index], f'{place}[{index}]')
                         for index, each in enumerate(space.spaces))
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f'{place}: no part {error} in {type(observation).__name__}') from None
    found = np.asarray(observation)
    if found.shape != space.shape:
        raise ValueError(f'{place}: shape {list(found.shape)} is not allowed: '
                         f'{list(space.shape or ())}')
    return found[None]
