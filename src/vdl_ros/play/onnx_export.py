"""Writes the policy of a checkpoint as an ONNX file, if onnxruntime agrees with PyTorch."""

import copy
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import msgspec
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.common.files import atomic_file
from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.common.onnx_file import OnnxFileError, serialize_onnx
from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.canonical_spaces import Column
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import ROBOT, EnvConfig
from vdl_ros.envs.registration import REACH
from vdl_ros.play.onnx_policy import FORMAT, ActionError, OnnxPolicy
from vdl_ros.play.plain_spaces import to_plain
from vdl_ros.play.saved_policy import SavedPolicy, load_policy
from vdl_ros.rl.acting.actor import EnvStepper
from vdl_ros.rl.policy.distributions import EpsilonGreedy
from vdl_ros.rl.policy.numpy_policy import BoxActions
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.runs.checkpoint import load_checkpoint

# What the value of an observation is, by algorithm.
_RETURN = 'expected discounted return, of rewards as the training scales them'
_NORMALIZED = ', normalised as normalize_returns does'
_VALUES = dict.fromkeys(('bc', 'sac'), 'not learned') | {'dqn': 'the largest action value'}
# What the parameters of a distribution are, by the name of its class.
_MEANINGS = {
    'Categorical': 'logits',
    'MultiCategorical': 'logits of each part, one after the other',
    'DiagonalGaussian': 'means, then logarithms of standard deviations, which are kept within -5 '
                        'to 2; center + scale * a sample is clipped to the range of actions',
    'SquashedGaussian': 'means, then logarithms of standard deviations, which are kept within -5 '
                        'to 2; center + scale * tanh of a sample is clipped to the range of '
                        'actions',
    'EpsilonGreedy': 'action values', 'Boltzmann': 'action values',
}


def _inputs_of(space: gymnasium.spaces.Box) -> list[dict[str, Any]]:
    """Return name, shape (without the batch) and dtype of each input for an observation."""
    if not isinstance(space, ImageAndVector):
        return [_input('observation', space.shape, space.dtype)]
    return [_input('image', space.image.shape, space.image.dtype),
            _input('numbers', (space.vector_size,), np.float32)]


def _describe(
    saved: SavedPolicy, space: gymnasium.spaces.Box, columns: list[Column], starts: list[int],
    raw: list[Any] | None,
) -> dict[str, Any]:
    """Return the metadata, plain values in SI units."""
    policy, described = saved.policy, saved.described
    defaults = as_dict(EnvConfig())
    environment = {
        name: value for name, value in as_dict(saved.env).items()
        if name == 'env_id' or (value != defaults[name] and name != 'num_envs')}
    rate = described.get('rate', saved.env.realtime_fps or None)
    family = type(policy.distribution).__name__
    return {
        'format': FORMAT,
        'algorithm': saved.train.algorithm, 'network': saved.train.network,
        'agent_steps': saved.agent_steps, 'updates': saved.version,
        'environment': environment, 'description': described,
        'rate': rate, 'rate_unit': '1/s',
        'observation': {
            'inputs': _inputs_of(space), 'columns': [each._asdict() for each in columns]},
        'normalization': {
            'in_graph': True, 'statistics': policy.normalizer is not None,
            'images_scaled': policy.of_images,
            'smoothing_pixels': saved.train.observation_smoothing},
        'precision': 'float32',
        'parameters': {'distribution': family, 'meaning': _MEANINGS[family]},
        'action': _action(saved, starts),
        'value': _VALUES.get(saved.train.algorithm, _RETURN) + (
            _NORMALIZED if saved.of_normalized_returns else ''),
        'state': _state(saved),
        'spaces': raw,
    }


def _raw_spaces(envs: VectorEnv) -> list[Any] | None:
    """Return the spaces of one environment as plain values; None if the policy needs more."""
    try:
        return [msgspec.to_builtins(to_plain(each)) for each in factory.raw_spaces(envs)]
    except EnvError:
        return None


def _action(saved: SavedPolicy, starts: list[int]) -> dict[str, Any]:
    space, described, distribution = (
        saved.action_space, saved.described, saved.policy.distribution)
    found: dict[str, Any] = {
        'kind': type(space).__name__, 'shape': list(space.shape or ()), 'sizes': [],
        'names': described.get('motors', []), 'choices': described.get('actions', [])}
    if isinstance(space, gymnasium.spaces.Box):
        assert isinstance(distribution, BoxActions)
        # JSON has no infinity.
        return found | {name: [float(each) if math.isfinite(each) else None for each in values]
                        for name, values in (
                            ('low', space.low), ('high', space.high),
                            ('center', distribution.center), ('scale', distribution.scale))}
    sizes = np.atleast_1d(getattr(space, 'nvec', getattr(space, 'n', 0)))
    return found | {'sizes': sizes.tolist(), 'starts': starts}


def _state(saved: SavedPolicy) -> dict[str, Any] | None:
    """Return what a program has to do with the state; None without one."""
    policy = saved.policy
    if not policy.state_size:
        return None
    last = policy.last_action_reward
    first = policy.state_size - policy.distribution.num_inputs - 1
    return {
        'input': 'state', 'output': 'next_state', 'size': policy.state_size, 'initial': 0.0,
        'reset': 'the initial value at the first observation of an episode',
        'last_reward_index': policy.state_size - 1 if last else None,
        'last_reward': 'before the next observation, the reward of the action, within -1 to 1'
                       if last else '',
        'last_action_columns': [first, policy.state_size - 1] if last else None,
        'last_action': 'next_state has the most likely action, one-hot or as it is among the '
                       'parameters; overwrite it if another one was taken' if last else '',
    }


def _input(name: str, shape: tuple[int, ...], dtype: Any) -> dict[str, Any]:
    return {'name': name, 'shape': list(shape), 'dtype': np.dtype(dtype).name}


class PolicyGraph(nn.Module):
    """One step of a policy, from observations to the most likely actions, in float32.

    Normalization, scaling of images and smoothing are part of it.
    """

    def __init__(
        self, policy: Policy, action_space: gymnasium.Space[Any], starts: list[int],
    ) -> None:
        super().__init__()
        self.policy = policy = copy.deepcopy(policy).eval()
        policy.precision = torch.float32
        if policy.lstm is not None:
            policy.lstm = _Cell.like(policy.lstm)
        self._greedy = isinstance(policy.distribution, EpsilonGreedy)
        box = action_space if isinstance(action_space, gymnasium.spaces.Box) else None
        self._bounds = None if box is None else (
            torch.from_numpy(box.low).float(), torch.from_numpy(box.high).float())
        self._starts = torch.tensor(starts if action_space.shape else sum(starts))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return parameters [B, P], actions [B] or [B, A], values [B] and any state.

        ``inputs`` are observations [B, ...], or images and numbers [B, V]; then any state [B, S].
        """
        policy = self.policy
        state = inputs[-1] if policy.state_size else None
        observations = inputs[:len(inputs) - (state is not None)]
        is_reset = observations[0].new_zeros((1, observations[0].shape[0]), dtype=torch.bool)
        output = policy(observations[0][None], is_reset, state,
                        numbers=observations[1] if len(observations) > 1 else None)
        parameters = output.parameters[0]
        chosen = policy.distribution.mode(parameters)
        # Exploration is no property of the most likely action.
        found = (parameters[:, :-1] if self._greedy else parameters, self._to_environment(chosen),
                 output.values[0])
        if state is None:
            return found
        return (*found, policy.append_last_action(
            output.state, chosen, torch.zeros_like(output.values[0])))

    def _to_environment(self, actions: Tensor) -> Tensor:
        distribution = self.policy.distribution
        if self._bounds is None or not isinstance(distribution, BoxActions):
            return actions + self._starts if self._starts.any() else actions
        if distribution.squashes:
            actions = torch.tanh(actions)
        center, scale = (torch.from_numpy(each).float()
                         for each in (distribution.center, distribution.scale))
        low, high = self._bounds
        return torch.minimum(torch.maximum(center + scale * actions, low), high)


class _Cell(nn.LSTMCell):
    """An LSTM cell of operators that the exporter knows; it cannot export PyTorch's."""

    @classmethod
    def like(cls, cell: nn.LSTMCell) -> '_Cell':
        made = cls(cell.input_size, cell.hidden_size)
        made.load_state_dict(cell.state_dict())
        return made

    def forward(
        self, inputs: Tensor, state: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return hidden and cell state, [B, H] each, for inputs [B, F]."""
        assert state is not None
        hidden, cell = state
        gates = functional.linear(inputs, self.weight_ih, self.bias_ih) + functional.linear(
            hidden, self.weight_hh, self.bias_hh)
        enter, forget, new, leave = torch.split(gates, self.hidden_size, -1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell


#: Largest difference, of numbers above 1 relative to them.
TOLERANCE = 1e-5
_STEPS = 64
_BATCH = 4


class Parity(NamedTuple):
    """Largest difference from PyTorch, as of ``TOLERANCE``, of a number of observations."""

    difference: float
    observations: int


def _is_robot(saved: SavedPolicy) -> bool:
    return saved.env.env_id.startswith(ROBOT)


def _seen(envs: Any) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """Yield what environments show at random actions, and where an episode begins, [B]."""
    stepper = EnvStepper(envs, seed=0)
    envs.action_space.seed(0)
    while True:
        yield stepper.observation, stepper.is_reset
        stepper.step(envs.action_space.sample())


def _numbers(
    envs: Any, random: np.random.Generator,
) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """Yield random observations of a robot, which is not here, as :func:`_seen`."""
    space = envs.single_observation_space
    while True:
        rows = np.empty((_BATCH, *space.shape), space.dtype)
        numbers = rows
        if isinstance(space, ImageAndVector):
            images, numbers = space.split(rows)
            images[...] = random.integers(0, 256, images.shape)
        numbers[...] = random.uniform(-1.0, 1.0, numbers.shape)
        yield rows, np.zeros(_BATCH, np.bool_)


@torch.inference_mode()
def check_parity(saved: SavedPolicy, exported: OnnxPolicy, envs: Any) -> Parity:
    """Compare a policy by PyTorch and by onnxruntime, as of :func:`_seen`."""
    batch = _BATCH if _is_robot(saved) else envs.num_envs
    random = np.random.default_rng(0)
    policy = copy.deepcopy(saved.policy)
    policy.precision = torch.float32
    distribution, is_greedy = policy.distribution, isinstance(policy.distribution, EpsilonGreedy)
    state, chosen, largest = policy.initial_state(batch), torch.empty(0), 0.0
    seen = _numbers(envs, random) if _is_robot(saved) else _seen(envs)
    for step, (observations, begins) in enumerate(itertools.islice(seen, _STEPS)):
        is_reset = begins | (random.random(batch) < 0.1)
        rewards = random.normal(size=batch).astype(np.float32)
        if step:
            state = policy.append_last_action(state, chosen, torch.from_numpy(rewards))
        parameters, values, state = policy(
            torch.from_numpy(np.ascontiguousarray(observations))[None],
            torch.from_numpy(is_reset)[None], state)
        try:
            found = exported.step(observations, is_reset, rewards)
        except ActionError as error:
            raise OnnxFileError(str(error)) from None
        # By its own parameters: of two likely actions either may be the likeliest.
        own = torch.from_numpy(found.parameters)
        chosen = distribution.mode(
            torch.cat([own, parameters[0, :, -1:]], -1) if is_greedy else own)
        actions = distribution.to_environment(chosen.numpy())
        if isinstance(saved.action_space, gymnasium.spaces.Box):
            actions = np.clip(actions, saved.action_space.low, saved.action_space.high)
        elif starts := exported.metadata.action.starts:
            actions = actions + (starts if saved.action_space.shape else starts[0])
        pairs = {'parameters': (parameters[0, :, :-1] if is_greedy else parameters[0],
                                found.parameters),
                 'value': (values[0], found.values), 'action': (actions, found.actions)}
        if policy.state_size:
            pairs['next_state'] = (
                policy.append_last_action(state, chosen, torch.zeros(batch)), found.state)
        for name, (expected, other) in pairs.items():
            wanted = np.asarray(expected)
            if wanted.shape != other.shape:
                raise OnnxFileError(f'{name}: {list(other.shape)} is not {list(wanted.shape)}')
            away = np.abs(wanted - other) / np.maximum(np.abs(wanted), 1.0)
            largest = max(largest, float(away.max(initial=0.0)))
            # Not the other way round: NaN is no agreement.
            if not largest <= TOLERANCE:
                raise OnnxFileError(f'{name}: differs from PyTorch by {largest:.2g}, more than '
                                    f'{TOLERANCE:g}')
    return Parity(largest, _STEPS * batch)


class ExportError(ValueError):
    """A policy that cannot be exported; the message is one line."""


class Report(NamedTuple):
    """What was exported: the policy, the size of its file in bytes, how it equals PyTorch."""

    saved: SavedPolicy
    size: int
    parity: Parity


def export_policy(checkpoint: Path, output: Path) -> Report:
    """Export the policy of a checkpoint; nothing is written if it does not equal PyTorch's.

    Raises:
        CheckpointError: not a readable checkpoint.
        EnvError: its environment cannot be made here.
        ExportError: the policy cannot be exported.
    """
    if output.suffix != '.onnx':
        raise ExportError(f'--output: {output} does not end in .onnx')
    described = load_checkpoint(checkpoint)['config'].get('environment')
    # Of a robot with the task reach: this host need not have its contract.
    is_reach = isinstance(described, dict) and described.get('task') == REACH
    saved = load_policy(checkpoint, env_id=REACH if is_reach else '')
    envs: Any = factory.make(
        # Of some only as many as in its training can be created.
        saved.env, seed=0, num_envs=1 if _is_robot(saved) else min(_BATCH, saved.env.num_envs),
        same_step=True)
    try:
        outer = envs
        # The outermost environment that makes the vector of numbers.
        while not hasattr(outer, 'observation_columns'):
            outer = outer.env
        try:
            data = _serialize(saved, envs.single_observation_space, outer.observation_columns,
                              np.ravel(factory.first_actions(envs)).tolist(),
                              _raw_spaces(envs))
            found = check_parity(saved, OnnxPolicy(data), envs)
        except (OnnxFileError, ExportError) as error:
            raise ExportError(f'{checkpoint}: cannot be exported: {error}') from None
    finally:
        envs.close()
    with atomic_file(output) as partial:
        partial.write_bytes(data)
    return Report(saved, len(data), found)


def _serialize(
    saved: SavedPolicy, space: gymnasium.spaces.Box, columns: list[Column], starts: list[int],
    raw: list[Any] | None,
) -> bytes:
    """Return the bytes of the file."""
    inputs = {each['name']: torch.zeros((2, *each['shape']), dtype=getattr(torch, each['dtype']))
              for each in _inputs_of(space)}
    outputs = ['parameters', 'action', 'value']
    if saved.policy.state_size:
        inputs['state'] = torch.zeros(2, saved.policy.state_size)
        outputs.append('next_state')
    return serialize_onnx(PolicyGraph(saved.policy, saved.action_space, starts), inputs, outputs,
                          _describe(saved, space, columns, starts, raw))
