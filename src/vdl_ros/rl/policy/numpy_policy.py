"""
The policy of ``policy.py`` without PyTorch, for actors: networks ``mlp``, also with an LSTM.

An actor with it starts in a quarter of the time and a third of the memory, and for few numbers
and environments NumPy has the actions sooner. Weights, states and probabilities are those of
``policy.py``; values are not computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector, is_image
from vdl_ros.rl.algorithm_config import AlgorithmConfig, DqnConfig, SacConfig
from vdl_ros.rl.policy.numpy_distributions import (
    DiagonalGaussian,
    NumpyDistribution,
    make_distribution,
)
from vdl_ros.rl.policy.weight_check import ExpectedWeights, check_weights
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['NumpyPolicy', 'make_numpy_policy']

Array = NDArray[Any]
# As in normalizer.py.
_CLIP = 10.0


def make_numpy_policy(
    config: TrainConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    algorithm_config: AlgorithmConfig | None = None,
) -> NumpyPolicy | None:
    """
    Return a policy for the spaces of one environment; None where it needs ``factory.py``.

    Arguments are as of :func:`factory.make_policy`.
    """
    if not isinstance(observation_space, gymnasium.spaces.Box) \
            or isinstance(observation_space, ImageAndVector) \
            or config.network not in ('auto', 'mlp') \
            or (config.network == 'auto' and is_image(observation_space)):
        return None
    distribution = make_distribution(action_space, config.action_distribution, algorithm_config)
    if distribution is None:
        return None
    return NumpyPolicy(
        math.prod(observation_space.shape), distribution, hidden_size=config.hidden_size,
        lstm_size=config.lstm_size, last_action_reward=config.last_action_reward,
        normalize=config.normalize_observations,
        of_values=isinstance(algorithm_config, DqnConfig),
        of_sac=isinstance(algorithm_config, SacConfig))


class NumpyPolicy:
    """
    Two layers, optional LSTM, action head; attributes are those of ``policy.Policy``.

    Attributes:
        distribution: action distribution of the head's outputs.
        state_size: S, size of the state.
        expected: dtype and shape of each of the weights, those of the values too.
        exploration: with action values, epsilon or temperature.
    """

    def __init__(
        self, inputs: int, distribution: NumpyDistribution, *, hidden_size: int, lstm_size: int,
        last_action_reward: bool, normalize: bool, of_values: bool, of_sac: bool,
    ) -> None:
        """
        Make a policy that cannot act before :meth:`load`.

        Args:
            inputs: numbers of one observation.
            distribution: of the actions.
            hidden_size: units of each of the two layers.
            lstm_size: cells of the LSTM; 0: none.
            last_action_reward: whether the last action and reward are inputs.
            normalize: whether observations are normalized.
            of_values: whether the head is of action values.
            of_sac: whether there is no value head, and the network computes log-stds.
        """
        self.distribution = distribution
        self.exploration = 0.0
        self._lstm_size, self._of_values = lstm_size, of_values
        self._last_size = distribution.num_inputs + 1 if last_action_reward else 0
        self.state_size = 2 * lstm_size + self._last_size
        own_log_std = isinstance(distribution, DiagonalGaussian) and not of_sac
        outputs = distribution.size // 2 if own_log_std else distribution.size - of_values
        shapes: dict[str, tuple[int, ...]] = {}

        def add(name: str, sizes: tuple[int, int], *parts: str) -> None:
            shapes.update({f'{name}{part}': sizes[:axes] for part, axes in zip(
                parts or ('.weight', '.bias'), (2, 1), strict=True)})

        if own_log_std:
            shapes['log_std'] = (outputs,)
        has_value = not of_values and not of_sac
        for torso in ('policy_torso', 'value_torso')[:1 + (has_value and not lstm_size)]:
            add(f'{torso}.0', (hidden_size, inputs))
            add(f'{torso}.2', (hidden_size, hidden_size))
        features = hidden_size + self._last_size
        if lstm_size:
            add('lstm', (4 * lstm_size, features), '.weight_ih', '.bias_ih')
            add('lstm', (4 * lstm_size, lstm_size), '.weight_hh', '.bias_hh')
            features = lstm_size
        add('policy_head', (outputs, features))
        if has_value:
            add('value_head', (1, features))
        if normalize:
            shapes |= {'normalizer.count': (1,), 'normalizer.mean': (inputs,),
                       'normalizer.variance': (inputs,)}
        self.expected: ExpectedWeights = {
            name: (np.dtype('float64' if name.startswith('normalizer') else 'float32'), shape)
            for name, shape in shapes.items()}
        self._normalize = normalize
        self._arrays: dict[str, Array] = {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """
        Copy the weights.

        Raises:
            ValueError: names, shapes or dtypes differ from this policy's, or not all are finite.
        """
        check_weights(self.expected, arrays)
        # Matrices as they are multiplied.
        found = {name: np.array(each.T if each.ndim == 2 else each, np.float32, order='C')
                 for name, each in arrays.items() if not name.startswith('value')}
        if self._normalize:
            found['deviation'] = np.sqrt(arrays['normalizer.variance'] + 1e-8).astype(np.float32)
        self._arrays = found

    def initial_state(self, batch: int) -> Array:
        """Return the state before the first observation, float32 [batch, S]."""
        return np.zeros((batch, self.state_size), np.float32)

    def append_last_action(self, state: Array, actions: Array, rewards: Array) -> Array:
        """
        Return the state with the last action and reward, if they are inputs of the policy.

        Args:
            state: float32 [B, S].
            actions: [B] or [B, A].
            rewards: float32 [B].
        """
        if not self._last_size:
            return state
        return np.concatenate([
            state[:, :2 * self._lstm_size], self.distribution.to_network(actions),
            rewards.clip(-1.0, 1.0)[:, None]], -1)

    def forward(self, observations: Array, is_reset: Array, state: Array) -> tuple[Array, Array]:
        """
        Return action parameters, float32 [B, P], and the state, float32 [B, S].

        Args:
            observations: [B, *observation_shape].
            is_reset: [B] bool, true where an episode starts: the state is reset there.
            state: float32 [B, S].
        """
        features = self._features(observations)
        if self.state_size:
            kept = ~is_reset[:, None]
            recurrent, last = np.split(state, [2 * self._lstm_size], -1)
            if self._last_size:
                features = np.concatenate([features, last * kept], -1)
            if self._lstm_size:
                features, recurrent = self._run_lstm(features, recurrent * kept)
            state = np.concatenate([recurrent, last], -1)
        arrays = self._arrays
        parameters = features @ arrays['policy_head.weight'] + arrays['policy_head.bias']
        more = arrays.get('log_std')
        if self._of_values:
            more = np.array([self.exploration], np.float32)
        if more is not None:
            rows = np.broadcast_to(more, (len(parameters), len(more)))
            parameters = np.concatenate([parameters, rows], -1)
        return parameters, state

    def _features(self, observations: Array) -> Array:
        """Return the features of the two layers, float32 [B, hidden_size]."""
        arrays = self._arrays
        x = observations.reshape(len(observations), -1).astype(np.float32)
        if self._normalize:
            x = ((x - arrays['normalizer.mean']) / arrays['deviation']).clip(-_CLIP, _CLIP)
        elif observations.dtype == np.uint8:
            x *= np.float32(1 / 255)
        for layer in ('policy_torso.0', 'policy_torso.2'):
            x = np.tanh(x @ arrays[f'{layer}.weight'] + arrays[f'{layer}.bias'])
        return x

    def _run_lstm(self, features: Array, state: Array) -> tuple[Array, Array]:
        """Return outputs, [B, H], and the state after them, [B, 2 H], as ``torch.nn.LSTMCell``."""
        arrays = self._arrays
        hidden, cell = np.split(state, 2, -1)
        gates = (features @ arrays['lstm.weight_ih'] + arrays['lstm.bias_ih']
                 + hidden @ arrays['lstm.weight_hh'] + arrays['lstm.bias_hh'])
        inputs, forgets, new, outputs = np.split(gates, 4, -1)
        cell = _sigmoid(forgets) * cell + _sigmoid(inputs) * np.tanh(new)
        hidden = _sigmoid(outputs) * np.tanh(cell)
        return hidden, np.concatenate([hidden, cell], -1)


def _sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow."""
    found: Array = np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1.0))
    return found
