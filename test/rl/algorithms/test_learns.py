"""Each algorithm learns what can be learned in a second, and a memory what needs one."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import TrainConfig, exploration_schedule, make_algorithm_config


class Recall(gymnasium.vector.VectorEnv):
    """Episodes of ``steps`` steps, whose last action is worth 1 if it is the one that was shown.

    Shown it is with the first observation only: (-1 or 1 for action 0 or 1, 0 later; whether the
    next action is the one that counts). With one step there is nothing to remember.
    """

    single_observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, steps, num_envs=16):
        self.steps, self.num_envs = steps, num_envs

    def reset(self, *, seed=None, options=None):
        self.rng, self.time = np.random.default_rng(seed), 0
        return self._observe(), {}

    def _observe(self):
        if self.time == 0:
            self.shown = self.rng.integers(0, 2, self.num_envs)
        cue = (self.time == 0) * (2.0 * self.shown - 1.0)
        return np.stack([cue, np.full_like(cue, self.time == self.steps - 1)], 1).astype(
            np.float32)

    def step(self, actions):
        rewards = ((self.time == self.steps - 1) * (actions == self.shown)).astype(np.float32)
        # After the last step comes one in which the environments reset themselves.
        self.time = (self.time + 1) % (self.steps + 1)
        return (self._observe(), rewards, np.full(self.num_envs, self.time == self.steps),
                np.zeros(self.num_envs, np.bool_), {})


OWN = {
    'impala': {}, 'a3c': {}, 'ppo': {'ppo_epochs': 4, 'ppo_minibatches': 2, 'ppo_kl_target': 0.1},
    'reinforce': {'reinforce_episodes': 16},
    'dqn': {'replay_size': 4000, 'replay_start': 100, 'replay_batch': 64, 'replay_ratio': 2.0,
            'target_period': 20, 'exploration_start': 0.3, 'exploration_end': 0.3},
    'sac': {'replay_size': 4000, 'replay_start': 100, 'replay_batch': 64, 'replay_ratio': 4.0,
            'target_smoothing': 0.05, 'temperature': 0.1, 'target_entropy_share': 0.2}}


def cases(names, always, *others):
    """Mark all but one case as slow: each guarantee is always checked, each algorithm once."""
    return pytest.mark.parametrize(names, [
        always, *(pytest.param(*(each if isinstance(each, tuple) else (each,)),
                               marks=pytest.mark.slow) for each in others)], ids=str)


def train(name, envs, updates, **changes):
    """Return the policy after ``updates``, of actors that always have the newest."""
    torch.manual_seed(0)
    config = TrainConfig(**{
        'algorithm': name, 'unroll_length': 8, 'hidden_size': 16, 'learning_rate': 0.01,
        'discount': 0.9, 'seed': 3, **changes})
    algorithm_config = make_algorithm_config(config, OWN[name])
    learner = Learner(config, envs.single_observation_space, envs.single_action_space,
                      algorithm_config=algorithm_config)
    actor = TorchActor(envs, learner.copy_policy(), learner.schema, 3,
                       exploration=exploration_schedule(algorithm_config, 'a'))
    for number in range(updates):
        actor.load(learner.weights(), learner.version, learner.agent_steps)
        learner.update([Unroll(actor.unroll()[0], 'a', 1, number, learner.version)])
    return learner.policy


def play(policy, steps, episodes=20):
    """Return the share of episodes whose last action was right, of 100 side by side."""
    envs = Recall(steps, 100)
    act = Act(policy, envs.single_action_space, deterministic=True)
    observations, _ = envs.reset(seed=9)
    total = 0.0
    for _ in range(episodes * (steps + 1)):
        actions = act(observations, np.full(100, envs.time == 0))
        observations, rewards, *_ = envs.step(actions)
        total += float(rewards.sum())
    return total / (100 * episodes)


@cases('name', 'dqn', 'impala', 'a3c', 'ppo', 'reinforce', 'sac')
def test_what_is_shown_is_done(name):
    assert play(train(name, Recall(1), 30), 1) > 0.99


@cases('name', 'ppo', 'impala', 'a3c', 'reinforce', 'dqn')
def test_what_was_shown_three_steps_ago_is_remembered(name):
    """Unrolls of eight steps cut episodes of five anywhere: the state goes along."""
    updates = 30 if name == 'ppo' else 60
    assert play(train(name, Recall(4), updates, lstm_size=8), 4) > 0.99
    if name == 'ppo':
        # Without a memory it is a guess: of 2000 a half, within four deviations.
        assert abs(play(train(name, Recall(4), updates), 4) - 0.5) < 0.045


class Aim(gymnasium.vector.VectorEnv):
    """Episodes of one step: an action of -300 to 100 is worth less the further from -150 it is."""

    num_envs = 32
    single_observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    single_action_space = gymnasium.spaces.Box(-300.0, 100.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.acted = False
        return np.ones((32, 1), np.float32), {}

    def step(self, actions):
        rewards = -np.square(actions[:, 0] / 100 + 1.5).astype(np.float32) * (not self.acted)
        self.acted = not self.acted
        return (np.ones((32, 1), np.float32), rewards, np.full(32, self.acted),
                np.zeros(32, np.bool_), {})


@cases(('name', 'updates', 'kind'), ('sac', 60, 'squashed'), ('impala', 100, 'gaussian'),
       ('ppo', 50, 'squashed'))
def test_the_best_of_a_range_is_found(name, updates, kind):
    policy = train(name, Aim(), updates, action_distribution=kind,
                   normalize_advantages=True, entropy_cost=0.0)
    act = Act(policy, Aim.single_action_space, deterministic=True)
    assert float(act(np.ones((1, 1), np.float32))[0, 0]) == pytest.approx(-150, abs=20)
