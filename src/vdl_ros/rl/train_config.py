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
        'actor', 'Where actions are chosen: by each actor with a copy of the policy, or by the '
        'learner, to which actors then send every observation.', choices=('actor', 'learner'))
    compression: str = setting(
        'none', 'Compression of what actors send in trajectories: images of games become a '
        'hundred times smaller, for slow networks; policies and other messages stay as they are.',
        choices=('none', 'zstd'))
    synchronous: bool = setting(
        False, 'Every actor waits for the update that its trajectories are part of: an update '
        'takes batch_size of each actor, and max_policy_lag is ignored.')
    network: str = setting(
        'auto', 'Policy network; auto: impala for images, else mlp.',
        choices=('auto', *NETWORKS))
    hidden_size: int = setting(
        64, 'Width of the two hidden layers of the mlp.', minimum=1, maximum=4096)
    lstm_size: int = setting(
        0, 'Cells of an LSTM between the network and its heads; 0: none.',
        minimum=0, maximum=4096)
    last_action_reward: bool = setting(
        False, 'Add the last action, and the last reward clipped to [-1, 1], to the input of the '
        'LSTM, or without one of the heads, as in IMPALA.')
    action_distribution: str = setting(
        'gaussian', 'Distribution of continuous actions: a normal distribution whose samples the '
        'environment clips, or one squashed by tanh into the range of actions, which sac always '
        'uses.',
        choices=('gaussian', 'squashed'))
    initial_std: float = setting(
        1.0, 'Standard deviation of continuous actions at the start, where it is one parameter '
        'for all observations: not of sac.', minimum=0.01, maximum=7.0)
    normalize_observations: bool = setting(
        False, 'Normalise observations, except images, to mean 0 and deviation 1, by running '
        'statistics that the learner sends with its weights.')
    observation_smoothing: float = setting(
        0.0, 'Standard deviation of a Gaussian that smooths images before the network sees them, '
        'a defence against attacks; 0: none.', minimum=0.0, maximum=10.0, unit='pixels')
    precision: str = setting(
        'auto', 'Precision of networks of images; auto: bfloat16 where a trial shows that the '
        'processor is faster with it, and on GPUs that have it. All else is float32.',
        choices=('auto', 'float32', 'bfloat16'))
    total_steps: int = setting(
        1_500_000, 'Agent steps after which the run ends.', minimum=1,
        maximum=1_000_000_000_000, unit='steps')
    stop_at_return: float = setting(
        1e9, 'End the run early once the mean return of the last 100 episodes reaches this.')
    eval_every: int = setting(
        0, 'Agent steps between evaluations of the policy in environments of their own, by its '
        'most likely actions; 0: none.', minimum=0, maximum=1_000_000_000_000, unit='steps')
    eval_episodes: int = setting(
        20, 'Episodes of an evaluation.', minimum=2, maximum=10_000)
    eval_patience: int = setting(
        0, 'End the run early after this many evaluations in a row that are not better than the '
        'best one; 0: never.', minimum=0, maximum=1_000_000)
    unroll_length: int = setting(
        20, 'Steps in one trajectory, T.', minimum=1, maximum=10_000, unit='steps')
    batch_size: int = setting(
        2, 'Trajectories in one update.', minimum=1, maximum=1024)
    max_policy_lag: int = setting(
        4, 'Trajectories that an actor may have sent that the learner has not used yet.',
        minimum=1, maximum=1024)
    max_version_lag: int = setting(
        1_000_000, 'Trajectories of a policy older than this are not learned from.',
        minimum=0, maximum=1_000_000, unit='versions')
    publish_every: int = setting(
        1, 'Updates between published policies.', minimum=1, maximum=1024)
    discount: float = setting(0.99, 'Discount factor, gamma.', minimum=0.0, maximum=1.0)
    gae_lambda: float = setting(
        0.95, 'Lambda of generalised advantage estimation (a3c, ppo): 1 sums rewards to the end '
        'of the trajectory, 0 looks one step ahead.',
        minimum=0.0, maximum=1.0)
    learning_rate: float = setting(6e-4, 'Learning rate.', minimum=0.0, maximum=1.0)
    learning_rate_schedule: str = setting(
        'constant', 'Constant learning rate, or linear decay to zero over total_steps.',
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
        False, 'Normalise the advantages of each batch to mean 0 and deviation 1, so that the '
        'size of returns does not set the size of steps.')
    max_grad_norm: float = setting(
        0.5, 'Gradient clipping: largest norm of the gradient of the mean loss.',
        minimum=1e-6, maximum=1e6)
    exchange: str = setting(
        'gradients', 'What several learners exchange: gradients in every optimizer step, so that '
        'they are one learner with all their trajectories; or delta, the changes of their weights '
        'since the last exchange, whose mean all add.', choices=('gradients', 'delta'))
    exchange_period: int = setting(
        10, 'Updates from one exchange of delta to the next.', minimum=1, maximum=10_000,
        unit='updates')
    reward_transform: str = setting(
        'none', 'Transform of the rewards in the loss; reported returns are never transformed.',
        choices=('none', 'abs_one', 'soft_asymmetric'))
    freeze: bool = setting(
        False, 'Act, count steps and report, but do not learn; with init, to measure the policy '
        'of another run.')
    record_episodes: bool = setting(
        False, 'Write episodes.csv, a row for each episode; attacked and frozen runs always '
        'write it.')
    seed: int = setting(1, 'Seed of weights, environments and sampling.',
                        minimum=0, maximum=2**31 - 1)

    @property
    def credit(self) -> int:
        """Trajectories that an actor may have under way."""
        return self.batch_size if self.synchronous else self.max_policy_lag
