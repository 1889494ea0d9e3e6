"""What learning can be told, and the one place where settings are checked against each other."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.settings import SettingError, setting

__all__ = ['ActorConfig', 'EvaluateConfig', 'RunConfig', 'TrainConfig', 'verify']


@dataclass(frozen=True)
class TrainConfig:
    """
    Settings of the learning itself; the learner sends them to its actors with every policy.

    Costs and clips carry the names of the IMPALA paper (Espeholt et al. 2018,
    arXiv:1802.01561).
    """

    algorithm: str = setting(
        'impala', 'Learning algorithm.', choices=('impala',))
    inference: str = setting(
        'actor', 'Where actions are chosen: by each actor with a copy of the policy, or by the '
        'learner, which then sees every observation.', choices=('actor', 'learner'))
    network: str = setting(
        'auto', 'Policy network: auto takes impala for images and mlp for the rest.',
        choices=('auto', 'mlp', 'impala', 'nature'))
    hidden_size: int = setting(
        64, 'Width of the two hidden layers of the mlp.', minimum=1, maximum=4096)
    precision: str = setting(
        'auto', 'What networks of images compute in; auto: bfloat16 where trying it shows that '
        'the processor is faster with it. All else is float32.',
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
    publish_every: int = setting(
        1, 'Updates from one published policy to the next.', minimum=1, maximum=1024)
    discount: float = setting(0.99, 'Discount factor, gamma.', minimum=0.0, maximum=1.0)
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
    rho_clip: float = setting(
        1.0, 'Clip of the importance weights, rho-bar.', minimum=0.0, maximum=1e6)
    c_clip: float = setting(
        1.0, 'Clip of the trace coefficients, c-bar.', minimum=0.0, maximum=1e6)
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
    learner_threads: int = setting(
        1, 'Threads of the learner\'s network.', minimum=1, maximum=256)


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
    episodes: int = setting(20, 'Episodes to play.', minimum=1, maximum=1_000_000)
    deterministic: bool = setting(
        True, 'Take the most likely action; false: draw from the policy.')
    num_envs: int = setting(
        8, 'Environments played at the same time.', minimum=1, maximum=4096)
    seed: int = setting(1000, 'Seed of the environments.', minimum=0, maximum=2**31 - 1)
    video: str = setting('', 'Also record one episode to this .mp4 file.')


def verify(train: TrainConfig) -> None:
    """
    Check settings against each other.

    Raises:
        SettingError: names both settings, their values and what to change.
    """
    needed = train.batch_size * train.publish_every
    if needed > train.max_policy_lag:
        # Otherwise one actor alone would wait for a policy that waits for its trajectories.
        raise SettingError(
            f'max_policy_lag: {train.max_policy_lag} is not allowed: at least batch_size * '
            f'publish_every = {train.batch_size} * {train.publish_every} = {needed}, '
            f'or a single actor would wait for ever')
