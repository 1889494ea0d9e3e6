"""Settings of each algorithm, and the checks of settings against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vdl_ros.common.settings import SettingError, as_dict, select, setting, settings_of
from vdl_ros.rl.train_config import TrainConfig

__all__ = [
    'ALGORITHM_SETTINGS', 'A3cConfig', 'AlgorithmConfig', 'BcConfig', 'DqnConfig',
    'ImpalaConfig', 'PpoConfig', 'ReinforceConfig', 'ReplayConfig', 'SacConfig',
    'make_algorithm_config', 'reject_other_algorithm_settings', 'verify',
]


@dataclass(frozen=True)
class ImpalaConfig:
    """Settings of ``impala``, named as in Espeholt et al. 2018."""

    rho_clip: float = setting(
        1.0, 'Clip of the importance weights, rho-bar.', minimum=0.0, maximum=1e6)
    c_clip: float = setting(
        1.0, 'Clip of the trace coefficients, c-bar.', minimum=0.0, maximum=1e6)
    vtrace_lambda: float = setting(
        1.0, 'Factor of the trace coefficients, lambda.', minimum=0.0, maximum=1.0)


@dataclass(frozen=True)
class A3cConfig:
    """``a3c`` has no settings of its own; ``synchronous`` makes it A2C."""


@dataclass(frozen=True)
class PpoConfig:
    """Settings of ``ppo`` (Schulman et al. 2017, arXiv:1707.06347)."""

    ppo_form: str = setting(
        'clip', 'What keeps the policy near the behaviour policy: a clipped ratio, an adaptive '
        'KL penalty, or a hinge with an adaptive learning rate (WALL-E).',
        choices=('clip', 'kl', 'hinge'))
    ppo_clip: float = setting(
        0.2, 'Clip range of the probability ratio, epsilon.',
        minimum=0.0, maximum=10.0)
    ppo_kl_target: float = setting(
        0.01, 'Target KL divergence of kl and hinge; a batch ends early at four times this.',
        minimum=1e-6, maximum=10.0, unit='nats')
    ppo_epochs: int = setting(10, 'Passes over each batch.', minimum=1, maximum=1000)
    ppo_minibatches: int = setting(
        4, 'Minibatches of a batch; with an LSTM or last_action_reward of whole columns, and at '
        'most as many.', minimum=1, maximum=4096)
    normalize_returns: bool = setting(
        False, 'Normalise value targets to mean 0 and deviation 1 by running statistics.')


@dataclass(frozen=True)
class ReinforceConfig:
    """Settings of ``reinforce``."""

    reinforce_episodes: int = setting(
        8, 'Fewest whole episodes in one optimizer step.', minimum=1, maximum=100_000)
    reinforce_baseline: bool = setting(
        True, 'Subtract a learned value from returns, for less variance.')
    longest_episode: int = setting(
        10_000, 'Longer episodes are cut after this many steps.', minimum=1, maximum=10_000_000,
        unit='steps')


@dataclass(frozen=True)
class ReplayConfig:
    """Settings of the algorithms that learn from a replay, ``dqn`` and ``sac``."""

    n_step: int = setting(
        1, 'Rewards summed before the bootstrap, n.', minimum=1, maximum=10_000, unit='steps')
    replay_size: int = setting(
        50_000, 'Capacity of the replay buffer.', minimum=1, maximum=1_000_000_000, unit='steps')
    replay_start: int = setting(
        1000, 'Each learner starts to learn after this, or with a full replay buffer.', minimum=1,
        maximum=1_000_000_000, unit='steps')
    replay_ratio: float = setting(
        4.0, 'How often each step is sampled, on average.', minimum=1e-6, maximum=1e4)
    replay_batch: int = setting(
        128, 'Samples in one optimizer step; with an LSTM or last_action_reward whole columns of '
        'unroll_length, at least one.', minimum=1, maximum=1_000_000, unit='steps')


@dataclass(frozen=True)
class DqnConfig(ReplayConfig):
    """Settings of ``dqn`` (Mnih et al. 2015) and its extensions."""

    double_q: bool = setting(
        True, 'Double DQN: the online network selects, the target network evaluates.')
    prioritized: bool = setting(False, 'Prioritised replay: sample large TD errors more often.')
    priority_exponent: float = setting(
        0.6, 'Prioritisation exponent, alpha.', minimum=0.0, maximum=10.0)
    importance_exponent: float = setting(
        0.4, 'Importance-sampling exponent, beta; not with an LSTM or last_action_reward.',
        minimum=0.0, maximum=1.0)
    target_period: int = setting(
        200, 'Optimizer steps between updates of the target network.',
        minimum=1, maximum=1_000_000_000)
    exploration: str = setting(
        'epsilon', 'Random actions with probability epsilon, or probabilities proportional to '
        'exp(Q / temperature).', choices=('epsilon', 'boltzmann'))
    exploration_start: float = setting(
        1.0, 'Epsilon or temperature at the start.', minimum=1e-9, maximum=1e6)
    exploration_end: float = setting(
        0.02, 'Epsilon or temperature after exploration_steps.',
        minimum=1e-9, maximum=1e6)
    exploration_steps: int = setting(
        50_000, 'Length of the linear change from start to end.', minimum=1,
        maximum=1_000_000_000_000, unit='steps')
    exploration_spread: float = setting(
        0.0, 'Actors raise epsilon to powers (divide the temperature) from 1 to 1 + this; 0: all '
        'alike.', minimum=0.0, maximum=100.0)


@dataclass(frozen=True)
class SacConfig(ReplayConfig):
    """Settings of ``sac`` (Haarnoja et al. 2018, arXiv:1812.05905)."""

    target_smoothing: float = setting(
        0.005, 'Share of the critics in each update of the target critics, tau.', minimum=1e-9,
        maximum=1.0)
    automatic_temperature: bool = setting(True, 'Learn the temperature for the target entropy.')
    temperature: float = setting(
        1.0, 'Weight of the entropy, alpha; with automatic_temperature the first one.',
        minimum=1e-9, maximum=1e6)
    target_entropy: float = setting(
        -1.0, 'Target entropy for each dimension of continuous actions, scaled to -1 to 1.',
        minimum=-100.0, maximum=100.0, unit='nats')
    target_entropy_share: float = setting(
        0.5, 'Target entropy of discrete actions, as a share of the largest one.', minimum=0.0,
        maximum=1.0)


@dataclass(frozen=True)
class BcConfig:
    """Settings of ``bc``, behaviour cloning (docs/demonstrations.md)."""

    demonstrations: str = setting(
        '', 'Folder of record_episodes, or a LeRobot data set, on the host of the learner.')
    bc_batch: int = setting(
        256, 'Steps of an update, in whole unrolls.', minimum=1, maximum=1_000_000, unit='steps')


AlgorithmConfig = (
    ImpalaConfig | A3cConfig | PpoConfig | ReinforceConfig | DqnConfig | SacConfig | BcConfig)
ALGORITHM_SETTINGS: Mapping[str, type[AlgorithmConfig]] = {
    'impala': ImpalaConfig, 'a3c': A3cConfig, 'ppo': PpoConfig, 'reinforce': ReinforceConfig,
    'dqn': DqnConfig, 'sac': SacConfig, 'bc': BcConfig}


def make_algorithm_config(train: TrainConfig, values: Mapping[str, object]) -> AlgorithmConfig:
    """
    Return the settings of the chosen algorithm from ``values``, which may contain others.

    Raises:
        SettingError: a value that is not allowed.
    """
    return select(ALGORITHM_SETTINGS[train.algorithm], values)


def reject_other_algorithm_settings(given: Mapping[str, object], algorithm: str) -> None:
    """
    Raise an error for a setting of another algorithm than the chosen one.

    Args:
        given: settings by the user.
        algorithm: the chosen algorithm.

    Raises:
        SettingError: names the setting and both algorithms.
    """
    allowed = {name for own, settings in ALGORITHM_SETTINGS.items() if own == algorithm
               for name in settings_of(settings)}
    for name in settings_of(*ALGORITHM_SETTINGS.values()):
        if name in given and name not in allowed:
            others = ' and '.join(repr(other) for other, settings in ALGORITHM_SETTINGS.items()
                                  if name in settings_of(settings))
            raise SettingError(
                f'{name}: {given[name]!r} is of algorithm {others}, and algorithm is '
                f'{algorithm!r}')


def verify(train: TrainConfig, algorithm_config: AlgorithmConfig, num_learners: int = 1) -> None:
    """
    Check settings against each other.

    Args:
        train: settings of every algorithm.
        algorithm_config: settings of the chosen algorithm.
        num_learners: learners that share the work.

    Raises:
        SettingError: names both settings, their values and what is allowed.
    """
    needed = train.batch_size * train.publish_every
    if not train.synchronous and needed > train.max_policy_lag:
        # Otherwise a single actor would wait for a policy that waits for its trajectories.
        raise SettingError(
            f'max_policy_lag: {train.max_policy_lag} is not allowed: at least batch_size * '
            f'publish_every = {train.batch_size} * {train.publish_every} = {needed}, '
            f'or a single actor would wait for ever')
    if train.synchronous and train.publish_every != 1:
        raise SettingError(
            f'publish_every: {train.publish_every} is not allowed with synchronous true: 1, or '
            'actors would wait for ever')
    if train.eval_patience and not train.eval_every:
        raise SettingError(f'eval_patience: {train.eval_patience} is not allowed with eval_every '
                           '0: 0, as there are no evaluations')
    if train.exchange == 'delta' and num_learners > 1:
        _verify_delta(train, algorithm_config)
    if isinstance(algorithm_config, PpoConfig):
        _verify_ppo(train, algorithm_config)
    if isinstance(algorithm_config, ReplayConfig):
        _verify_replay(train, algorithm_config, num_learners)
    if isinstance(algorithm_config, DqnConfig):
        _verify_dqn(algorithm_config)
    if isinstance(algorithm_config, SacConfig):
        _verify_sac(train)
    if isinstance(algorithm_config, BcConfig):
        _verify_bc(train, num_learners)


def _verify_delta(train: TrainConfig, algorithm_config: AlgorithmConfig) -> None:
    if train.algorithm not in ('impala', 'a3c', 'ppo'):
        raise SettingError(f"exchange: 'delta' is not allowed with algorithm {train.algorithm!r}: "
                           'one of impala, a3c, ppo')
    # Running statistics are sums over all learners in every update.
    for name, given in (('normalize_observations', train.normalize_observations),
                        ('normalize_returns', getattr(algorithm_config, 'normalize_returns',
                                                      False))):
        if given:
            raise SettingError(f"exchange: 'delta' is not allowed with {name} true: gradients")


def _verify_ppo(train: TrainConfig, ppo: PpoConfig) -> None:
    steps = train.batch_size * train.unroll_length
    if ppo.ppo_minibatches > steps:
        raise SettingError(
            f'ppo_minibatches: {ppo.ppo_minibatches} is not allowed: at most batch_size * '
            f'unroll_length = {train.batch_size} * {train.unroll_length} = {steps}')
    if ppo.ppo_form != 'clip' and ppo.ppo_epochs * ppo.ppo_minibatches == 1:
        # The divergence is measured before each step, so before the first it is 0.
        raise SettingError(
            f"ppo_epochs: {ppo.ppo_epochs} is not allowed with ppo_form {ppo.ppo_form!r} and "
            f'ppo_minibatches {ppo.ppo_minibatches}: one step cannot show how far it goes')


def _verify_replay(train: TrainConfig, replay: ReplayConfig, num_learners: int) -> None:
    values = as_dict(train, replay)
    for smaller, larger in (
            ('n_step', 'unroll_length'), ('unroll_length', 'replay_size'),
            ('replay_batch', 'replay_size'), ('replay_start', 'replay_size')):
        if values[smaller] > values[larger]:  # type: ignore[operator]
            raise SettingError(
                f'{smaller}: {values[smaller]} is not allowed: at most {larger}, '
                f'{values[larger]}')
    # Each learner has its own replay, and all wait until every learner has replay_start steps.
    share = train.total_steps // num_learners
    if replay.replay_start > share:
        of_one = '' if num_learners == 1 else (
            f' / num_learners = {train.total_steps} / {num_learners} =')
        raise SettingError(
            f'replay_start: {replay.replay_start} is not allowed: at most total_steps'
            f'{of_one or ","} {share}, or nothing would be learned')


def _verify_dqn(dqn: DqnConfig) -> None:
    for name in ('exploration_start', 'exploration_end'):
        if dqn.exploration == 'epsilon' and getattr(dqn, name) > 1.0:
            raise SettingError(
                f"{name}: {getattr(dqn, name):g} is not allowed with exploration 'epsilon': at "
                'most 1')


def _verify_sac(train: TrainConfig) -> None:
    # The replay holds no state of the critics to start from.
    _reject_state(train)


def _verify_bc(train: TrainConfig, num_learners: int) -> None:
    # Steps of demonstrations are drawn one by one, without what was before them.
    _reject_state(train)
    for name, value, allowed in (
            ('inference', train.inference, 'actor'), ('num_learners', num_learners, 1),
            # The sample before tanh is not known.
            ('action_distribution', train.action_distribution, 'gaussian')):
        if value != allowed:
            raise SettingError(
                f"{name}: {value!r} is not allowed with algorithm 'bc': {allowed!r}")


def _reject_state(train: TrainConfig) -> None:
    """Raise a SettingError if the policy has a state."""
    if train.lstm_size or train.last_action_reward:
        name, allowed = ('lstm_size', '0') if train.lstm_size else ('last_action_reward', 'false')
        raise SettingError(f'{name}: {getattr(train, name)} is not allowed with algorithm '
                           f'{train.algorithm!r}: {allowed}')
