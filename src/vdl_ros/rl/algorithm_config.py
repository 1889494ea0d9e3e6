"""What each algorithm alone can be told, and the one place where settings are checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vdl_ros.common.settings import SettingError, as_dict, select, setting, settings_of
from vdl_ros.rl.train_config import TrainConfig

__all__ = [
    'ALGORITHM_SETTINGS', 'A3cConfig', 'AlgorithmConfig', 'DqnConfig', 'ImpalaConfig',
    'PpoConfig', 'ReinforceConfig', 'make_algorithm_config', 'reject_other_algorithm_settings',
    'verify',
]


@dataclass(frozen=True)
class ImpalaConfig:
    """Settings of ``impala``, with the names of its paper (Espeholt et al. 2018)."""

    rho_clip: float = setting(
        1.0, 'Clip of the importance weights, rho-bar.', minimum=0.0, maximum=1e6)
    c_clip: float = setting(
        1.0, 'Clip of the trace coefficients, c-bar.', minimum=0.0, maximum=1e6)
    vtrace_lambda: float = setting(
        1.0, 'Factor of the trace coefficients, lambda.', minimum=0.0, maximum=1.0)


@dataclass(frozen=True)
class A3cConfig:
    """``a3c`` has no settings of its own: ``synchronous`` and ``gae_lambda`` make its forms."""


@dataclass(frozen=True)
class PpoConfig:
    """Settings of ``ppo`` (Schulman et al. 2017, arXiv:1707.06347)."""

    ppo_form: str = setting(
        'clip', 'What keeps the policy near the one that acted: the clipped ratio, or a penalty '
        'on the divergence whose weight adapts.', choices=('clip', 'kl'))
    ppo_clip: float = setting(
        0.2, 'How far the ratio of probabilities counts from 1, epsilon.',
        minimum=0.0, maximum=10.0)
    ppo_kl_target: float = setting(
        0.01, 'With ppo_form kl, the divergence aimed at; learning from a batch ends early, in '
        'either form, at four times this.', minimum=1e-6, maximum=10.0, unit='nats')
    ppo_epochs: int = setting(
        10, 'Times a batch is gone through.', minimum=1, maximum=1000)
    ppo_minibatches: int = setting(
        4, 'Parts of a batch, a step of the optimiser each; with an LSTM or last_action_reward '
        'parts are whole columns, and at most as many.', minimum=1, maximum=4096)
    normalize_returns: bool = setting(
        False, 'The value network learns returns of mean 0 and deviation 1, by statistics that '
        'the learner keeps.')


@dataclass(frozen=True)
class ReinforceConfig:
    """Settings of ``reinforce``."""

    reinforce_episodes: int = setting(
        8, 'Whole episodes in one step of the optimiser, at least.', minimum=1, maximum=100_000)
    reinforce_baseline: bool = setting(
        True, 'Subtract a learned value from returns: the same gradient on average, with less '
        'variance.')
    longest_episode: int = setting(
        10_000, 'An episode that goes on longer is cut there.', minimum=1, maximum=10_000_000,
        unit='steps')


@dataclass(frozen=True)
class DqnConfig:
    """Settings of ``dqn`` (Mnih et al. 2015) and its extensions."""

    n_step: int = setting(
        1, 'Rewards summed before the bootstrap, n.', minimum=1, maximum=10_000, unit='steps')
    double_q: bool = setting(
        True, 'The online network chooses the action that the target network values.')
    replay_size: int = setting(
        50_000, 'Steps kept to learn from again.', minimum=1, maximum=1_000_000_000, unit='steps')
    replay_start: int = setting(
        1000, 'Steps that each learner collects before learning begins, which it does at the '
        'latest when the replay is full.', minimum=1, maximum=1_000_000_000, unit='steps')
    replay_ratio: float = setting(
        4.0, 'How often each step is learned from on average.', minimum=1e-6, maximum=1e4)
    replay_batch: int = setting(
        128, 'Steps in one step of the optimiser; with an LSTM or last_action_reward as many '
        'whole columns of unroll_length as fit in it, at least one.', minimum=1,
        maximum=1_000_000, unit='steps')
    prioritized: bool = setting(
        False, 'Draw steps with a large error more often.')
    priority_exponent: float = setting(
        0.6, 'How strongly errors set the odds, alpha.', minimum=0.0, maximum=10.0)
    importance_exponent: float = setting(
        0.4, 'How far the loss makes up for the odds, beta; not at all with an LSTM or '
        'last_action_reward.', minimum=0.0, maximum=1.0)
    target_period: int = setting(
        200, 'Steps of the optimiser from one copy of the target network to the next.',
        minimum=1, maximum=1_000_000_000)
    exploration: str = setting(
        'epsilon', 'A random action with probability epsilon, or actions with odds exp(Q / '
        'temperature).', choices=('epsilon', 'boltzmann'))
    exploration_start: float = setting(
        1.0, 'Epsilon or temperature at the start.', minimum=1e-9, maximum=1e6)
    exploration_end: float = setting(
        0.02, 'Epsilon or temperature once exploration_steps are over.',
        minimum=1e-9, maximum=1e6)
    exploration_steps: int = setting(
        50_000, 'Agent steps over which the one becomes the other.', minimum=1, unit='steps')
    exploration_spread: float = setting(
        0.0, 'Actors explore differently: at most this power of epsilon or temperature more; 0: '
        'all alike.', minimum=0.0, maximum=100.0)


AlgorithmConfig = ImpalaConfig | A3cConfig | PpoConfig | ReinforceConfig | DqnConfig
ALGORITHM_SETTINGS: Mapping[str, type[AlgorithmConfig]] = {
    'impala': ImpalaConfig, 'a3c': A3cConfig, 'ppo': PpoConfig, 'reinforce': ReinforceConfig,
    'dqn': DqnConfig}


def make_algorithm_config(train: TrainConfig, values: Mapping[str, object]) -> AlgorithmConfig:
    """
    Return the settings of the chosen algorithm from ``values``, which may hold others.

    Raises:
        SettingError: a value that is not allowed.
    """
    return select(ALGORITHM_SETTINGS[train.algorithm], values)


def reject_other_algorithm_settings(given: Mapping[str, object], algorithm: str) -> None:
    """
    Refuse a setting of another algorithm than the chosen one.

    Args:
        given: what the user says.
        algorithm: the chosen one.

    Raises:
        SettingError: names the setting, and both algorithms.
    """
    for other, settings in ALGORITHM_SETTINGS.items():
        for name in settings_of(settings):
            if other != algorithm and name in given:
                raise SettingError(
                    f'{name}: {given[name]!r} is of algorithm {other!r}, and algorithm is '
                    f'{algorithm!r}')


def verify(train: TrainConfig, own: AlgorithmConfig, num_learners: int = 1) -> None:
    """
    Check settings against each other.

    Args:
        train: of every algorithm.
        own: of the one.
        num_learners: that share the work.

    Raises:
        SettingError: names both settings, their values and what to change.
    """
    needed = train.batch_size * train.publish_every
    if not train.synchronous and needed > train.max_policy_lag:
        # Otherwise one actor alone would wait for a policy that waits for its trajectories.
        raise SettingError(
            f'max_policy_lag: {train.max_policy_lag} is not allowed: at least batch_size * '
            f'publish_every = {train.batch_size} * {train.publish_every} = {needed}, '
            f'or a single actor would wait for ever')
    if train.synchronous and train.publish_every != 1:
        raise SettingError(
            f'publish_every: {train.publish_every} is not allowed with synchronous true: 1, or '
            'actors would wait for ever')
    if isinstance(own, PpoConfig):
        steps = train.batch_size * train.unroll_length
        if own.ppo_minibatches > steps:
            raise SettingError(
                f'ppo_minibatches: {own.ppo_minibatches} is not allowed: at most batch_size * '
                f'unroll_length = {train.batch_size} * {train.unroll_length} = {steps}')
        if own.ppo_form == 'kl' and own.ppo_epochs * own.ppo_minibatches == 1:
            # The divergence is measured before each step: of the first it is always 0.
            raise SettingError(
                f"ppo_epochs: {own.ppo_epochs} is not allowed with ppo_form 'kl' and "
                f'ppo_minibatches {own.ppo_minibatches}: one step cannot show how far it goes')
    if isinstance(own, DqnConfig):
        _verify_dqn(train, own, num_learners)


def _verify_dqn(train: TrainConfig, own: DqnConfig, num_learners: int) -> None:
    values = as_dict(train, own)
    for smaller, larger in (
            ('n_step', 'unroll_length'), ('unroll_length', 'replay_size'),
            ('replay_batch', 'replay_size'), ('replay_start', 'replay_size')):
        if values[smaller] > values[larger]:  # type: ignore[operator]
            raise SettingError(
                f'{smaller}: {values[smaller]} is not allowed: at most {larger}, '
                f'{values[larger]}')
    # Each learner has a replay of its own, and all wait until the last has begun.
    share = train.total_steps // num_learners
    if own.replay_start > share:
        of_one = '' if num_learners == 1 else (
            f' / num_learners = {train.total_steps} / {num_learners} =')
        raise SettingError(
            f'replay_start: {own.replay_start} is not allowed: at most total_steps'
            f'{of_one or ","} {share}, or nothing would be learned')
    for name in ('exploration_start', 'exploration_end'):
        if own.exploration == 'epsilon' and getattr(own, name) > 1.0:
            raise SettingError(
                f"{name}: {getattr(own, name):g} is not allowed with exploration 'epsilon': at "
                'most 1')
