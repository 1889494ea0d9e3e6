"""What learning, runs, actors and evaluations are told; algorithms' own: algorithm_config.py."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.settings import SettingError, setting

__all__ = [
    'ALGORITHMS', 'ActorConfig', 'EvaluateConfig', 'NETWORKS', 'RunConfig', 'TrainConfig',
    'host_and_port', 'verify_run',
]

ALGORITHMS = ('impala', 'a3c', 'ppo', 'reinforce', 'dqn')
# See networks.py.
NETWORKS = ('mlp', 'impala', 'nature', 'resnet', 'universe')


@dataclass(frozen=True)
class TrainConfig:
    """
    Settings of the learning itself; the learner sends them to its actors with every policy.

    Costs and clips carry the names of the IMPALA paper (Espeholt et al. 2018,
    arXiv:1802.01561).
    """

    algorithm: str = setting(
        'impala', 'Learning algorithm.', choices=ALGORITHMS)
    inference: str = setting(
        'actor', 'Where actions are chosen: by each actor with a copy of the policy, or by the '
        'learner, which then sees every observation.', choices=('actor', 'learner'))
    synchronous: bool = setting(
        False, 'Every actor waits for the update that its trajectories are part of: an update '
        'takes batch_size of each actor, and max_policy_lag means nothing.')
    network: str = setting(
        'auto', 'Policy network: auto takes impala for images and mlp for the rest.',
        choices=('auto', *NETWORKS))
    hidden_size: int = setting(
        64, 'Width of the two hidden layers of the mlp.', minimum=1, maximum=4096)
    lstm_size: int = setting(
        0, 'Cells of an LSTM between the network and its heads; 0: none.',
        minimum=0, maximum=4096)
    last_action_reward: bool = setting(
        False, 'Give the last action, and the last reward clipped to [-1, 1], to the LSTM, or '
        'without one to the heads, beside what the network sees, as the agents of IMPALA do.')
    action_distribution: str = setting(
        'gaussian', 'Of continuous actions: a normal distribution whose actions the environment '
        'clips, or one squashed by tanh into the range of actions.',
        choices=('gaussian', 'squashed'))
    normalize_observations: bool = setting(
        False, 'Give observations mean 0 and deviation 1, by statistics that the learner keeps '
        'and sends to all actors with its weights. Not of images.')
    precision: str = setting(
        'auto', 'What networks of images compute in; auto: bfloat16 where trying it shows that '
        'the processor is faster with it, and on GPUs that have it. All else is float32.',
        choices=('auto', 'float32', 'bfloat16'))
    total_steps: int = setting(
        1_500_000, 'Agent steps to learn from before the run ends.', minimum=1, unit='steps')
    stop_at_return: float = setting(
        1e9, 'End the run early once the mean return of the last 100 episodes reaches this.')
    unroll_length: int = setting(
        20, 'Steps in one trajectory, T.', minimum=1, maximum=10_000, unit='steps')
    batch_size: int = setting(
        2, 'Trajectories in one update.', minimum=1, maximum=1024)
    max_policy_lag: int = setting(
        4, 'Trajectories an actor may have under way that the learner has not used yet.',
        minimum=1, maximum=1024)
    max_version_lag: int = setting(
        1_000_000, 'A trajectory acted by a policy older than this is not learned from.',
        minimum=0, maximum=1_000_000, unit='versions')
    publish_every: int = setting(
        1, 'Updates from one published policy to the next.', minimum=1, maximum=1024)
    discount: float = setting(0.99, 'Discount factor, gamma.', minimum=0.0, maximum=1.0)
    gae_lambda: float = setting(
        0.95, 'Lambda of advantages where actions are the policy\'s own (a3c, ppo): 1 sums '
        'rewards to the end of the trajectory, 0 looks one step ahead.',
        minimum=0.0, maximum=1.0)
    learning_rate: float = setting(6e-4, 'Step size of the optimiser.', minimum=0.0, maximum=1.0)
    learning_rate_schedule: str = setting(
        'constant', 'Over total_steps, keep the learning rate or let it fall to zero.',
        choices=('constant', 'linear'))
    optimizer: str = setting('adam', 'Optimiser.', choices=('adam', 'rmsprop'))
    rmsprop_epsilon: float = setting(
        0.01, 'Epsilon of rmsprop; adam has its own, 1e-5.', minimum=1e-12, maximum=1.0)
    entropy_cost: float = setting(
        0.01, 'Weight of the entropy bonus.', minimum=0.0, maximum=10.0)
    baseline_cost: float = setting(
        0.5, 'Weight of the value loss.', minimum=0.0, maximum=10.0)
    reward_scale: float = setting(
        1.0, 'What the loss multiplies rewards with: values of about one are learned fastest.',
        minimum=1e-9, maximum=1e9)
    normalize_advantages: bool = setting(
        False, 'Give the advantages of each batch mean 0 and deviation 1, so that the size of '
        'returns does not set the size of steps.')
    max_grad_norm: float = setting(
        0.5, 'Largest norm of the gradient of the mean loss; longer ones are scaled down.',
        minimum=1e-6, maximum=1e6)
    reward_transform: str = setting(
        'none', 'What the loss sees of a reward; returns are always counted unchanged.',
        choices=('none', 'abs_one', 'soft_asymmetric'))
    seed: int = setting(1, 'Seed of weights, environments and sampling.',
                        minimum=0, maximum=2**31 - 1)

    @property
    def credit(self) -> int:
        """Trajectories that an actor may have under way."""
        return self.batch_size if self.synchronous else self.max_policy_lag


@dataclass(frozen=True)
class RunConfig:
    """Settings of the learner's process: where a run is written and what it goes on from."""

    run_dir: str = setting(
        '', 'Folder to write the run to; empty: runs/<environment>-<time>.')
    resume: str = setting(
        '', 'Folder of a run to go on with: its steps, optimiser, random state and settings.')
    num_actors: int = setting(
        2, 'Actors that are expected.', minimum=1, maximum=256)
    checkpoint_period: float = setting(
        60.0, 'Time from one checkpoint to the next.', minimum=0.1, maximum=1e6, unit='s')
    status_period: float = setting(
        1.0, 'Time from one line of progress to the next.', minimum=0.1, maximum=1e4, unit='s')
    device: str = setting(
        'auto', 'What the learners compute on; auto: a CUDA device if PyTorch finds one.',
        choices=('auto', 'cpu', 'cuda'))
    learner_threads: int = setting(
        1, 'Threads of the learner\'s network, on the CPU.', minimum=1, maximum=256)
    num_learners: int = setting(
        1, 'Learners that share the work, each with a share of the actors: an update takes '
        'batch_size of each.', minimum=1, maximum=64)
    learner_rank: int = setting(
        0, 'Which of them this one is; 0 has the settings, publishes the policy and writes the '
        'run.', minimum=0, maximum=63)
    group_address: str = setting(
        '', 'Where the learners meet, host:port: an address of learner 0; empty: a free port of '
        'this host, if train.launch.py starts them all.')
    group_timeout: float = setting(
        60.0, 'A learner that waits so long for another leaves the group, and is started again.',
        minimum=1.0, maximum=1e5, unit='s')

    @property
    def own_actors(self) -> int:
        """Actors of this learner: they are shared out in turn."""
        return len(range(self.learner_rank, self.num_actors, self.num_learners))


def verify_run(run: RunConfig) -> None:
    """
    Check settings against each other.

    Raises:
        SettingError: names both settings, their values and what to change.
    """
    if run.learner_rank >= run.num_learners:
        raise SettingError(f'learner_rank: {run.learner_rank} is not allowed: less than '
                           f'num_learners, {run.num_learners}')
    # The others hear from learner 0 how many there are.
    if run.learner_rank == 0 and run.num_learners > run.num_actors:
        raise SettingError(
            f'num_learners: {run.num_learners} is not allowed: at most num_actors, '
            f'{run.num_actors}, or a learner without actors would hold up the others')
    if run.num_learners > 1 and not run.group_address:
        raise SettingError("group_address: '' is not allowed with num_learners "
                           f'{run.num_learners}: host:port, where learner 0 is')
    if run.num_learners > 1:
        host_and_port(run.group_address)


def host_and_port(address: str) -> tuple[str, int]:
    """
    Return the parts of a ``group_address``.

    Raises:
        SettingError: it has others.
    """
    host, _, port = address.rpartition(':')
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingError(f'group_address: {address!r} is not allowed: host:port, with a port '
                           'from 1 to 65535')
    return host, int(port)


@dataclass(frozen=True)
class ActorConfig:
    """Settings of one actor; everything else it hears from the learner."""

    actor_id: str = setting(
        '', 'Name of this actor, unique in the graph; empty: made of host, node and process.')
    env_id: str = setting(
        '', 'Act only in this environment; empty: in the one the learner trains on.')
    num_envs: int = setting(
        0, 'Environments of this actor; 0: as many as the learner says.',
        minimum=0, maximum=4096)
    actor_threads: int = setting(
        1, 'Threads of the actor\'s network.', minimum=1, maximum=256)
    credit_timeout: float = setting(
        10.0, 'Wait for the learner before a trajectory under way is given up as lost.',
        minimum=0.1, maximum=1e6, unit='s')


@dataclass(frozen=True)
class EvaluateConfig:
    """Settings of an evaluation."""

    checkpoint: str = setting('', 'File of the policy: runs/<name>/checkpoint.pt.')
    env_id: str = setting('', 'Refuse a policy that learned in another environment; empty: any.')
    algorithm: str = setting('', 'Refuse a policy of another algorithm; empty: any.')
    episodes: int = setting(20, 'Episodes to play.', minimum=1, maximum=1_000_000)
    deterministic: bool = setting(
        True, 'Take the most likely action; false: draw from the policy.')
    num_envs: int = setting(
        8, 'Environments played at the same time.', minimum=1, maximum=4096)
    seed: int = setting(1000, 'Seed of the environments.', minimum=0, maximum=2**31 - 1)
    video: str = setting('', 'Also record one episode to this .mp4 file.')
