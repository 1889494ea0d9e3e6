"""Settings of learning, of each algorithm, of actors and of evaluations."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, as_dict, select, setting, settings_of

ALGORITHMS = ('impala', 'a3c', 'ppo', 'reinforce', 'dqn', 'sac', 'bc')
#: Newer settings, as they were in what was saved without them.
BEFORE: Mapping[str, object] = {'scale_actions': False}
# See networks.py.
#: Of ``stop_at_return``.
NO_THRESHOLD = 1e9
#: Settings of a policy that knows what was before, and the algorithms that learn none: a replay
#: holds no state of the critics to start from, and demonstrations are drawn step by step.
MEMORY, WITHOUT_MEMORY = ('lstm_size', 'last_action_reward'), ('sac', 'bc')
NETWORKS = ('mlp', 'impala', 'nature', 'resnet', 'universe')


@dataclass(frozen=True)
class TrainConfig:
    """Settings of training; the learner sends them to its actors with every policy.

    Costs are named as in the IMPALA paper (Espeholt et al. 2018, arXiv:1802.01561).
    """

    algorithm: str = setting('impala', 'Learning algorithm.', choices=ALGORITHMS)
    inference: str = setting(
        'actor', 'Actions are chosen by each actor, or by the learner, which then gets every '
        'observation.', choices=('actor', 'learner'))
    compression: str = setting(
        'none', 'Compression of trajectories, for slow networks: images of games become a '
        'hundred times smaller.', choices=('none', 'zstd'))
    synchronous: bool = setting(
        False, 'Every actor waits for the update with its trajectories, batch_size of each; '
        'max_in_flight is ignored.')
    network: str = setting(
        'auto', 'Policy network; auto: impala for images, else mlp.', choices=('auto', *NETWORKS))
    hidden_size: int = setting(
        64, 'Width of the two hidden layers of mlp.', minimum=1, maximum=4096)
    lstm_size: int = setting(
        0, 'Cells of an LSTM before the heads; 0: none.', minimum=0, maximum=4096)
    last_action_reward: bool = setting(
        False, 'Last action and last reward, clipped to [-1, 1], are inputs of the LSTM or heads.')
    action_distribution: str = setting(
        'gaussian', 'Continuous actions: normal, clipped to the range of the environment, or '
        'squashed into it by tanh, as always with sac.', choices=('gaussian', 'squashed'))
    scale_actions: bool = setting(
        True, 'Actions of gaussian are scaled: -1 to 1 is the range of the environment; false: '
        'they have its units.')
    initial_std: float = setting(
        1.0, 'First standard deviation of continuous actions, before they are scaled; not with '
        'sac.', minimum=0.01, maximum=7.0)
    normalize_observations: bool = setting(
        False, 'Normalise observations, except images, to mean 0 and deviation 1 by running '
        'statistics.')
    observation_smoothing: float = setting(
        0.0, 'Deviation of a Gaussian that smooths images, a defence against attacks; 0: none.',
        minimum=0.0, maximum=10.0, unit='pixels')
    precision: str = setting(
        'auto', 'Precision of networks of images; auto: bfloat16 if the GPU has it, or a trial '
        'finds the processor faster with it.', choices=('auto', 'float32', 'bfloat16'))
    total_steps: int = setting(
        1_500_000, 'Agent steps after which the run ends.', minimum=1, maximum=1_000_000_000_000,
        unit='steps')
    stop_at_return: float = setting(
        NO_THRESHOLD, 'The run ends once the mean return of the last 100 episodes reaches this.',
        word='never')
    eval_every: int = setting(
        0, 'Period of evaluations by the most likely actions; 0: none.', minimum=0,
        maximum=1_000_000_000_000, unit='steps')
    eval_episodes: int = setting(20, 'Episodes of an evaluation.', minimum=2, maximum=10_000)
    eval_patience: int = setting(
        0, 'The run ends after this many evaluations without a new best; 0: never.', minimum=0,
        maximum=1_000_000)
    unroll_length: int = setting(
        20, 'Length of a trajectory, T.', minimum=1, maximum=10_000, unit='steps')
    batch_size: int = setting(2, 'Trajectories in one update.', minimum=1, maximum=1024)
    max_in_flight: int = setting(
        4, 'Trajectories of an actor in flight: sent, and not learned from yet.', minimum=1,
        maximum=1024)
    max_version_lag: int = setting(
        1_000_000, 'Trajectories of older policies are not learned from.', minimum=0,
        maximum=1_000_000, unit='versions')
    publish_every: int = setting(
        1, 'Updates from one published policy to the next.', minimum=1, maximum=1024)
    discount: float = setting(0.99, 'Discount factor, gamma.', minimum=0.0, maximum=1.0)
    gae_lambda: float = setting(
        0.95, 'Lambda of generalised advantage estimation (a3c, ppo).', minimum=0.0, maximum=1.0)
    learning_rate: float = setting(6e-4, 'Learning rate.', minimum=0.0, maximum=1.0)
    learning_rate_schedule: str = setting(
        'constant', 'Constant, or linear to zero over total_steps.',
        choices=('constant', 'linear'))
    optimizer: str = setting('adam', 'Optimizer.', choices=('adam', 'rmsprop'))
    rmsprop_epsilon: float = setting(
        0.01, 'Epsilon of rmsprop; that of adam is 1e-5.', minimum=1e-12, maximum=1.0)
    entropy_cost: float = setting(0.01, 'Weight of the entropy bonus.', minimum=0.0, maximum=10.0)
    baseline_cost: float = setting(0.5, 'Weight of the value loss.', minimum=0.0, maximum=10.0)
    reward_scale: float = setting(
        1.0, 'Factor of the rewards in the loss: values of about one are learned fastest.',
        minimum=1e-9, maximum=1e9)
    normalize_advantages: bool = setting(
        False, 'Normalise the advantages of each batch to mean 0 and deviation 1.')
    max_grad_norm: float = setting(
        0.5, 'Gradients are clipped to this norm.', minimum=1e-6, maximum=1e6)
    exchange: str = setting(
        'gradients', 'Several learners exchange gradients in every optimizer step, as one '
        'learner, or the mean change of their weights (delta).', choices=('gradients', 'delta'))
    exchange_period: int = setting(
        10, 'Updates from one exchange of delta to the next.', minimum=1, maximum=10_000,
        unit='updates')
    reward_transform: str = setting(
        'none', 'Transform of rewards in the loss, not of reported returns.',
        choices=('none', 'abs_one'))
    freeze: bool = setting(
        False, 'Do not learn, only act and report; with init, to measure a policy.')
    init_encoder: bool = setting(
        False, 'Of init take only the network of images up to its features; numbers, actions and '
        'algorithm may be others.')
    record_episodes: bool = setting(
        False, 'Write episodes.csv, as attacked and frozen runs always do.')
    seed: int = setting(1, 'Seed of weights, environments and sampling.',
                        minimum=0, maximum=2**31 - 1)

    @property
    def credit(self) -> int:
        """Trajectories that an actor may have under way."""
        return self.batch_size if self.synchronous else self.max_in_flight


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
        0.2, 'Clip range of the probability ratio, epsilon.', minimum=0.0, maximum=10.0)
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
        0.02, 'Epsilon or temperature after exploration_steps.', minimum=1e-9, maximum=1e6)
    exploration_steps: int = setting(
        50_000, 'Length of the linear change from start to end.', minimum=1,
        maximum=1_000_000_000_000, unit='steps')
    exploration_spread: float = setting(
        0.0, 'Actors raise epsilon to powers (divide the temperature) from 1 to 1 + this; 0: all '
        'alike.', minimum=0.0, maximum=100.0)


@dataclass(frozen=True)
class DemonstrationsConfig:
    """Settings of the algorithms that learn from demonstrations, ``sac`` and ``bc``."""

    demonstrations: str = setting(
        '', 'Folder of record_episodes, or a LeRobot data set, on the host of the learner.')


@dataclass(frozen=True)
class SacConfig(ReplayConfig, DemonstrationsConfig):
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
    critics: int = setting(2, 'Number of critics.', minimum=1, maximum=20)
    target_critics: int = setting(
        2, 'Critics, drawn anew for each step, whose least value is the target. The policy takes '
        'the least of all critics if these are all, else the mean.', minimum=1, maximum=20)
    critic_layer_norm: bool = setting(False, 'Layer normalisation in the critics.')
    random_shift: float = setting(
        0.05, 'Largest random shift of images in each optimizer step, as a share of their size '
        '(DrQ: 4 of 84 pixels); 0: none.', minimum=0.0, maximum=0.5)
    demonstration_share: float = setting(
        0.5, 'Share of demonstrations in each optimizer step (Ball et al. 2023, '
        'arXiv:2302.02948).', minimum=0.01, maximum=0.9)
    cloning_cost: float = setting(
        0.0, 'Weight of the likelihood of demonstrated actions in the loss of the policy (Nair et '
        'al. 2018, arXiv:1709.10089), which keeps the temperature from rising; 0: none.',
        minimum=0.0, maximum=1e6)


@dataclass(frozen=True)
class BcConfig(DemonstrationsConfig):
    """Settings of ``bc``, behaviour cloning (docs/demonstrations.md)."""

    bc_batch: int = setting(
        256, 'Steps of an update, in whole unrolls.', minimum=1, maximum=1_000_000, unit='steps')
    chunk: int = setting(
        1, 'Actions that the policy gives at each step, for it and the next ones. What was given '
        'for a step is averaged (temporal ensembling, Zhao et al. 2023, arXiv:2304.13705).',
        minimum=1, maximum=100, unit='steps')


AlgorithmConfig = (
    ImpalaConfig | A3cConfig | PpoConfig | ReinforceConfig | DqnConfig | SacConfig | BcConfig)
ALGORITHM_SETTINGS: Mapping[str, type[AlgorithmConfig]] = {
    'impala': ImpalaConfig, 'a3c': A3cConfig, 'ppo': PpoConfig, 'reinforce': ReinforceConfig,
    'dqn': DqnConfig, 'sac': SacConfig, 'bc': BcConfig}


def make_algorithm_config(train: TrainConfig, values: Mapping[str, object]) -> AlgorithmConfig:
    """Return the settings of the chosen algorithm from ``values``, which may contain others."""
    return select(ALGORITHM_SETTINGS[train.algorithm], values)


def reject_other_algorithm_settings(given: Mapping[str, object], algorithm: str) -> None:
    """Raise a SettingError if the user has given a setting of another algorithm."""
    allowed = {name for own, settings in ALGORITHM_SETTINGS.items() if own == algorithm
               for name in settings_of(settings)}
    for name in settings_of(*ALGORITHM_SETTINGS.values()):
        if name in given and name not in allowed:
            others = ' and '.join(repr(other) for other, settings in ALGORITHM_SETTINGS.items()
                                  if name in settings_of(settings))
            raise SettingError(
                f'{name}: {quoted(given[name])} is of algorithm {others}, and algorithm is '
                f'{algorithm!r}')


def verify(train: TrainConfig, algorithm_config: AlgorithmConfig, num_learners: int = 1) -> None:
    """Check settings against each other.

    Raises:
        SettingError: names both settings, their values and what is allowed.
    """
    needed = train.batch_size * train.publish_every
    if not train.synchronous and needed > train.max_in_flight:
        # Otherwise a single actor would wait for a policy that waits for its trajectories.
        raise SettingError(
            f'max_in_flight: {train.max_in_flight} is not allowed: at least batch_size * '
            f'publish_every = {train.batch_size} * {train.publish_every} = {needed}, '
            f'or a single actor would wait for ever')
    if train.synchronous and train.publish_every != 1:
        raise SettingError(
            f'publish_every: {train.publish_every} is not allowed with synchronous true: 1, or '
            'actors would wait for ever')
    if train.eval_patience and not train.eval_every:
        raise SettingError(f'eval_patience: {train.eval_patience} is not allowed with eval_every '
                           '0: 0, as there are no evaluations')
    if train.record_episodes and num_learners > 1:
        raise SettingError(f'record_episodes: true is not allowed with num_learners '
                           f'{num_learners}: a learner has the episodes of its own actors only')
    if train.exchange == 'delta' and num_learners > 1:
        _verify_delta(train, algorithm_config)
    if isinstance(algorithm_config, PpoConfig):
        _verify_ppo(train, algorithm_config)
    if isinstance(algorithm_config, ReplayConfig):
        _verify_replay(train, algorithm_config, num_learners)
    if isinstance(algorithm_config, DqnConfig) and algorithm_config.exploration == 'epsilon':
        for name in ('exploration_start', 'exploration_end'):
            if (epsilon := getattr(algorithm_config, name)) > 1.0:
                raise SettingError(f"{name}: {epsilon:g} is not allowed with exploration "
                                   "'epsilon': at most 1")
    if train.algorithm in WITHOUT_MEMORY and (train.lstm_size or train.last_action_reward):
        name, allowed = ('lstm_size', '0') if train.lstm_size else ('last_action_reward', 'false')
        raise SettingError(f'{name}: {getattr(train, name)} is not allowed with algorithm '
                           f'{train.algorithm!r}: {allowed}')
    if isinstance(algorithm_config, BcConfig):
        for name, value, only in (
                ('inference', train.inference, 'actor'), ('num_learners', num_learners, 1),
                # The sample before tanh is not known.
                ('action_distribution', train.action_distribution, 'gaussian')):
            if value != only:
                raise SettingError(
                    f"{name}: {value!r} is not allowed with algorithm 'bc': {only!r}")


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


@dataclass(frozen=True)
class ActingConfig:
    """What every actor has for itself."""

    actor_id: str = setting('', 'Unique name; empty: made of host, node and process.')
    credit_timeout: float = setting(
        10.0, 'Without a policy, or credit while a learner goes on, the oldest trajectory counts '
        'as lost after this.', minimum=0.1, maximum=1e6, unit='s')


@dataclass(frozen=True)
class ActorConfig(ActingConfig):
    """Settings of one actor; it receives all others from the learner."""

    num_envs: int = setting(
        0, 'Environments of this actor; 0: as the learner sets.', minimum=0, maximum=4096)
    await_recorder: bool = setting(
        False, 'Start to send once a recorder subscribes; the argument record of a launch sets '
        'it.')


@dataclass(frozen=True)
class EvaluateConfig:
    """Settings of an evaluation."""

    checkpoint: str = setting(
        '', 'Checkpoint, or folder of a run: its best.pt, else checkpoint.pt; it has the '
        'environment, env_kwargs and env_wrappers of its training.')
    episodes: int = setting(20, 'Episodes to play.', minimum=1, maximum=1_000_000)
    deterministic: bool = setting(True, 'Take the most likely action; false: sample.')
    num_envs: int = setting(8, 'Environments that are stepped together.', minimum=1, maximum=4096)
    seed: int = setting(1000, 'Seed of the environments.', minimum=0, maximum=2**31 - 1)
    time_limit: int = setting(
        0, "An episode is truncated after this; 0: the training's limit.", minimum=0,
        maximum=1_000_000_000, unit='steps')
    video: str = setting('', 'Also record one episode to this .mp4 file.')
    against: str = setting(
        '', 'Also play another checkpoint, with the same seeds, and compare the two.')
    json: str = setting('', 'Also write the figures to this file.')


def exploration_schedule(
    algorithm_config: AlgorithmConfig, actor_id: str, frozen: bool = False,
) -> Callable[[int], float]:
    """Return a function from the learner's agent steps to an actor's epsilon or temperature.

    Actors differ as in Ape-X (Horgan et al. 2018, arXiv:1803.00933): with u from 0 to 1 by the
    actor's name and k = 1 + u * ``exploration_spread``, an actor has epsilon to the power k, or
    the temperature divided by k. For other algorithms the function returns 0. A ``frozen`` policy,
    which does not learn, explores as little as at the end.
    """
    config = algorithm_config
    if not isinstance(config, DqnConfig):
        return lambda agent_steps: 0.0
    spread = 1.0 + config.exploration_spread * zlib.crc32(actor_id.encode()) / 2**32

    def explore(agent_steps: int) -> float:
        start, end = config.exploration_start, config.exploration_end
        share = 1.0 if frozen else min(agent_steps / config.exploration_steps, 1.0)
        value = start + share * (end - start)
        return value ** spread if config.exploration == 'epsilon' else value / spread

    return explore
