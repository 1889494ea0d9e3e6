"""The policy of an mlp without PyTorch: the same outputs, samples and weights as with it."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector, is_image
from vdl_ros.common.quoting import quoted
from vdl_ros.rl.settings import ALGORITHMS, AlgorithmConfig, DqnConfig, SacConfig, TrainConfig

#: Dtype and shape by name.
ExpectedWeights = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
Array = NDArray[Any]
LOG_2PI = math.log(2 * math.pi)
#: A logit whose probability is 0. It is finite: infinity times 0 is NaN.
NEVER = -1e9
#: Limits that keep a policy from collapsing to a point or overflowing float32.
LOG_STD = (-5.0, 2.0)
# Some environments write infinity as the largest number of their type.
_MAX_BOUND = 1e9
_SATURATED = 1.0 - 1e-6
#: Limit of normalized numbers: statistics of few numbers are unreliable.
CLIP = 10.0
_TINY = np.finfo(np.float32).tiny
# Algorithms that learn by acting, in every space, in words.
_OF_ALL_SPACES = ', '.join(each for each in ALGORITHMS if each not in ('dqn', 'sac', 'bc'))


def check_weights(expected: ExpectedWeights, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Check names, dtypes, shapes and that all is finite; a ValueError names the array."""
    if expected.keys() != arrays.keys():
        names = quoted(sorted(expected.keys() ^ arrays.keys()))
        raise ValueError(f'weights: names {names} are missing or unknown')
    for name, (dtype, shape) in expected.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f'weights: {name}: {array.dtype} {array.shape} is not '
                             f'{dtype} {shape}')
        if dtype.kind == 'f' and not np.isfinite(array).all():
            raise ValueError(f'weights: {name}: not all finite')


class BoxActions:
    """Actions of A numbers, which a policy has in units of its own.

    In a component of the Box with finite bounds, -1 is the low and 1 the high one; in others, and
    if they are not ``scaled``, the unit is the environment's. tanh comes before that if the
    family ``squashes``.

    Attributes:
        center, scale: an action for the environment is center + scale * action, [A] each.
        unscaled: the components in units of the environment.
    """

    squashes = False

    def __init__(self, space: Any, scaled: bool = True) -> None:
        self.size, self.num_inputs = 2 * len(space.low), len(space.low)
        bounded = scaled & is_finite(space)
        self.unscaled: list[int] = np.flatnonzero(~bounded).tolist()
        bounded &= space.low < space.high
        low, high = (np.where(bounded, bound.astype(float), own)
                     for bound, own in ((space.low, -1.0), (space.high, 1.0)))
        self.center, self.scale = (
            (each / 2).astype(space.dtype) for each in (high + low, high - low))

    @property
    def is_scaled(self) -> bool:
        return bool((self.center != 0).any() or (self.scale != 1).any())

    def to_environment(self, actions: Array) -> Array:
        if self.squashes:
            actions = np.tanh(actions)
        found: Array = (self.center + self.scale * actions).astype(self.center.dtype)
        return found

    def from_environment(self, actions: Array) -> Array:
        """Return actions of the environment in units of the policy, before tanh."""
        found: Array = ((actions - self.center) / self.scale).astype(np.float32)
        # The sample of a limit could be any.
        return np.arctanh(found.clip(-_SATURATED, _SATURATED)) if self.squashes else found


def is_finite(space: Any) -> Array:
    """Return which components of a Box have two finite bounds, bool [A]."""
    low, high = (np.abs(each.astype(np.float64)) for each in (space.low, space.high))
    finite: Array = (low <= _MAX_BOUND) & (high <= _MAX_BOUND)
    return finite


def family_of(
    space: Any, config: TrainConfig, algorithm_config: AlgorithmConfig | None,
) -> tuple[str, tuple[Any, ...]]:
    """Return the name of the family of action distributions for a space, and its arguments.

    ValueError: a space in which the algorithm cannot act.
    """
    kind = config.action_distribution
    spaces = gymnasium.spaces
    discrete = isinstance(space, spaces.Discrete) and space.start == 0
    box, parts = isinstance(space, spaces.Box), isinstance(space, spaces.MultiDiscrete)
    if isinstance(algorithm_config, DqnConfig):
        if discrete:
            return algorithm_config.exploration, (int(space.n),)
        # sac acts in a Box too, if it has bounds.
        others = _OF_ALL_SPACES + (', sac' if box or parts else '')
        raise ValueError(f"algorithm: 'dqn' cannot act in {space}: Discrete from 0; for other "
                         f'spaces one of {others}')
    if isinstance(algorithm_config, SacConfig):
        kind = 'squashed'
        if box and not is_finite(space).all():
            raise ValueError(
                f"algorithm: 'sac' cannot act in {space}: Discrete or MultiDiscrete from 0, or a "
                f'Box with bounds from -1e9 to 1e9; for other spaces one of {_OF_ALL_SPACES}')
    if discrete:
        return 'categorical', (int(space.n),)
    if parts and len(space.shape) == 1 and not space.start.any():
        return 'parts', (space.nvec.tolist(),)
    if box and len(space.shape) == 1 and space.dtype.kind == 'f':
        if kind == 'gaussian':
            return kind, (space, config.scale_actions)
        if not is_finite(space).all():
            raise ValueError(f"action_distribution: 'squashed' is not allowed for {space}, whose "
                             "bounds are not all from -1e9 to 1e9: 'gaussian'")
        return kind, (space,)
    raise ValueError(
        f'action space {space} is not supported: Discrete or MultiDiscrete of shape [A], from 0, '
        'or a Box of floats of shape [A]')


def _one_hot(actions: Array, size: int) -> Array:
    rows = np.zeros((len(actions), size), np.float32)
    rows[np.arange(len(actions)), actions] = 1.0
    return rows


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logs


def _sample(logits: Array, random: np.random.Generator) -> tuple[Array, Array]:
    """Return int64 [...] by the Gumbel-max trick, and the log-probabilities, float32 [...]."""
    # One draw of ten million is 0, whose logarithm would choose an action of probability 0.
    noise = random.standard_exponential(logits.shape, np.float32)
    actions = (logits - np.log(np.maximum(noise, _TINY))).argmax(-1)
    chosen = np.take_along_axis(_log_softmax(logits), actions[..., None], -1)[..., 0]
    return actions, chosen


class Categorical:
    """One of ``size`` actions; the parameters are logits."""

    def __init__(self, size: int) -> None:
        self.size = self.num_inputs = size

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        return _sample(parameters, random)

    def to_environment(self, actions: Array) -> Array:
        return actions

    from_environment = to_environment

    def to_network(self, actions: Array) -> Array:
        return _one_hot(actions, self.num_inputs)


class MultiCategorical(Categorical):
    """A parts, each one of its actions, independently; the parameters are their logits."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(sum(sizes))
        self._sizes = list(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        parts = np.full((len(parameters), len(self._sizes), max(self._sizes)), NEVER, np.float32)
        for part, (start, size) in enumerate(zip(self._starts, self._sizes, strict=True)):
            parts[:, part, :size] = parameters[:, start:start + size]
        actions, log_probs = _sample(parts, random)
        return actions, log_probs.sum(-1)

    def to_network(self, actions: Array) -> Array:
        inputs = np.zeros((len(actions), self.num_inputs), np.float32)
        np.put_along_axis(inputs, actions + self._starts, 1.0, -1)
        return inputs


class ActionValues(Categorical):
    """The parameters are action values, then epsilon, or the temperature of a softmax of them.

    See EpsilonGreedy and Boltzmann in ``distributions.py``.
    """

    def __init__(self, actions: int, boltzmann: bool = False) -> None:
        super().__init__(actions + 1)
        self.num_inputs, self._boltzmann = actions, boltzmann

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        values, last = parameters[:, :-1], parameters[:, -1:]
        if self._boltzmann:
            return _sample(values / np.maximum(last, np.float32(1e-9)), random)
        best = _one_hot(values.argmax(-1), self.num_inputs)
        with np.errstate(divide='ignore'):
            # With epsilon 0 all others have probability 0.
            logits = np.log(last / self.num_inputs + (1 - last) * best)
        return _sample(logits, random)


class DiagonalGaussian(BoxActions):
    """A normal distribution in each dimension; the parameters are means, then log-stds."""

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        mean, log_std = np.split(parameters, 2, -1)
        log_std = log_std.clip(*LOG_STD)
        noise = random.standard_normal(mean.shape, np.float32)
        actions = mean + np.exp(log_std) * noise
        return actions, (-0.5 * (np.square(noise) + np.float32(LOG_2PI)) - log_std).sum(-1)

    def to_network(self, actions: Array) -> Array:
        return actions


class SquashedGaussian(DiagonalGaussian):
    """A normal distribution whose samples tanh squashes into the environment's range."""

    squashes = True


#: See ``ActionDistribution``; :meth:`sample` returns log-probabilities, float32 [B], too.
NumpyDistribution = Categorical | DiagonalGaussian
_FAMILIES: Mapping[str, Callable[..., NumpyDistribution]] = {
    'categorical': Categorical, 'parts': MultiCategorical, 'gaussian': DiagonalGaussian,
    'squashed': SquashedGaussian, 'epsilon': ActionValues,
    'boltzmann': partial(ActionValues, boltzmann=True)}


def make_numpy_policy(
    config: TrainConfig, observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any], algorithm_config: AlgorithmConfig | None = None,
) -> 'NumpyPolicy | None':
    """Return a policy as :func:`make_policy`; None if only PyTorch has it."""
    if not isinstance(observation_space, gymnasium.spaces.Box) \
            or isinstance(observation_space, ImageAndVector) \
            or config.network not in ('auto', 'mlp') \
            or (config.network == 'auto' and is_image(observation_space)):
        return None
    name, arguments = family_of(action_space, config, algorithm_config)
    return NumpyPolicy(
        config, math.prod(observation_space.shape), _FAMILIES[name](*arguments),
        of_sac=isinstance(algorithm_config, SacConfig))


class NumpyPolicy:
    """Two layers, optional LSTM, action head; arguments and attributes as of ``policy.Policy``.

    ``expected`` has dtype and shape of each of the weights, of the value's too.
    """

    def __init__(
        self, config: TrainConfig, inputs: int, distribution: NumpyDistribution, *, of_sac: bool,
    ) -> None:
        hidden_size, lstm_size = config.hidden_size, config.lstm_size
        of_values = isinstance(distribution, ActionValues)
        self.distribution = distribution
        self.exploration = 0.0
        self._lstm_size, self._of_values = lstm_size, of_values
        self._last_size = distribution.num_inputs + 1 if config.last_action_reward else 0
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
        if config.normalize_observations:
            shapes |= {'normalizer.count': (1,), 'normalizer.mean': (inputs,),
                       'normalizer.variance': (inputs,)}
        self.expected: ExpectedWeights = {
            name: (np.dtype('float64' if name.startswith('normalizer') else 'float32'), shape)
            for name, shape in shapes.items()}
        self._normalize = config.normalize_observations
        self._arrays: dict[str, Array] = {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        check_weights(self.expected, arrays)
        # Matrices as they are multiplied.
        found = {name: np.array(each.T if each.ndim == 2 else each, np.float32, order='C')
                 for name, each in arrays.items() if not name.startswith('value')}
        if self._normalize:
            found['deviation'] = np.sqrt(arrays['normalizer.variance'] + 1e-8).astype(np.float32)
        self._arrays = found

    def initial_state(self, batch: int) -> Array:
        return np.zeros((batch, self.state_size), np.float32)

    def append_last_action(self, state: Array, actions: Array, rewards: Array) -> Array:
        """Return the state with the last action and reward, if they are inputs of the policy."""
        if not self._last_size:
            return state
        return np.concatenate([
            state[:, :2 * self._lstm_size], self.distribution.to_network(actions),
            rewards.clip(-1.0, 1.0)[:, None]], -1)

    def forward(self, observations: Array, is_reset: Array, state: Array) -> tuple[Array, Array]:
        """Return action parameters, float32 [B, P], and the state, float32 [B, S].

        The state is reset where ``is_reset``, [B] bool: an episode starts.
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
        arrays = self._arrays
        x = observations.reshape(len(observations), -1).astype(np.float32)
        if self._normalize:
            x = ((x - arrays['normalizer.mean']) / arrays['deviation']).clip(-CLIP, CLIP)
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
##### src/vdl_ros/rl/policy/policy.py
