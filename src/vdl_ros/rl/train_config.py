"""Settings of training, common to all algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['ALGORITHMS', 'NETWORKS', 'TrainConfig']

ALGORITHMS = ('impala', 'a3c', 'ppo', 'reinforce', 'dqn', 'sac', 'bc')
# See networks.py.
NETWORKS = ('mlp', 'impala', 'nature', 'resnet', 'universe')


@dataclass(frozen=True)
class TrainConfig:
    """
    Settings of training; the learner sends them to its actors with every policy.

    Costs are named as in the IMPALA paper (Espeholt et al. 2018, arXiv:1802.01561).
    """

    algorithm: str = setting(
        'impala', 'Learning algorithm.', choices=ALGORITHMS)
    inference: str = setting(
        'actor', 'Actions are chosen by each actor, or by the learner, which then gets every '
        'observation.', choices=('actor', 'learner'))
    compression: str = setting(
        'none', 'Compression of trajectories, for slow networks: images of games become a '
        'hundred times smaller.', choices=('none', 'zstd'))
    synchronous: bool = setting(
        False, 'Every actor waits for the update with its trajectories, batch_size of each; '
        'max_policy_lag is ignored.')
    network: str = setting(
        'auto', 'Policy network; auto: impala for images, else mlp.', choices=('auto', *NETWORKS))
    hidden_size: int = setting(
        64, 'Width of the two hidden layers of mlp.', minimum=1, maximum=4096)
    lstm_size: int = setting(
        0, 'Cells of an LSTM before the heads; 0: none.', minimum=0, maximum=4096)
    last_action_reward: bool = setting(
        False, 'Last action and last reward, clipped to [-1, 1], are inputs of the LSTM or heads.')
    action_distribution: str = setting(
        'gaussian', 'Continuous actions: normal, clipped by the environment, or squashed by '
        'tanh, as always with sac.', choices=('gaussian', 'squashed'))
    initial_std: float = setting(
        1.0, 'First standard deviation of continuous actions; not with sac.', minimum=0.01,
        maximum=7.0)
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
        1e9, 'The run ends once the mean return of the last 100 episodes reaches this.')
    eval_every: int = setting(
        0, 'Period of evaluations by the most likely actions; 0: none.', minimum=0,
        maximum=1_000_000_000_000, unit='steps')
    eval_episodes: int = setting(
        20, 'Episodes of an evaluation.', minimum=2, maximum=10_000)
    eval_patience: int = setting(
        0, 'The run ends after this many evaluations without a new best; 0: never.', minimum=0,
        maximum=1_000_000)
    unroll_length: int = setting(
        20, 'Length of a trajectory, T.', minimum=1, maximum=10_000, unit='steps')
    batch_size: int = setting(
        2, 'Trajectories in one update.', minimum=1, maximum=1024)
    max_policy_lag: int = setting(
        4, 'Unused trajectories that an actor may have sent.', minimum=1, maximum=1024)
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
    entropy_cost: float = setting(
        0.01, 'Weight of the entropy bonus.', minimum=0.0, maximum=10.0)
    baseline_cost: float = setting(
        0.5, 'Weight of the value loss.', minimum=0.0, maximum=10.0)
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
        choices=('none', 'abs_one', 'soft_asymmetric'))
    freeze: bool = setting(
        False, 'Do not learn, only act and report; with init, to measure a policy.')
    record_episodes: bool = setting(
        False, 'Write episodes.csv, as attacked and frozen runs always do.')
    seed: int = setting(1, 'Seed of weights, environments and sampling.',
                        minimum=0, maximum=2**31 - 1)

    @property
    def credit(self) -> int:
        """Trajectories that an actor may have under way."""
        return self.batch_size if self.synchronous else self.max_policy_lag
