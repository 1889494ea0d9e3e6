"""What an actor says of its own actions is what the learner finds, to the bit or nearly."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import make_algorithm_config


class Walk(gymnasium.vector.VectorEnv):
    """Five episodes of random length side by side, with observations of any size."""

    num_envs = 5
    single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, action_space):
        self.single_action_space = action_space

    def reset(self, *, seed=None, options=None):
        self.rng, self.done = np.random.default_rng(seed), np.zeros(5, np.bool_)
        return self._observe(), {}

    def _observe(self):
        return (40 + 30 * self.rng.normal(size=(5, 3))).astype(np.float32)

    def step(self, actions):
        self.done = ~self.done & (self.rng.random(5) < 0.3)
        by_task = self.rng.random(5) < 0.5
        return (self._observe(), self.rng.normal(size=5).astype(np.float32),
                self.done & by_task, self.done & ~by_task, {})


SPACES = {'discrete': gymnasium.spaces.Discrete(4),
          'continuous': gymnasium.spaces.Box(-2.0, 1.0, (2,), np.float32)}


@pytest.mark.parametrize(('name', 'actions', 'changes', 'normalize'), [
    ('ppo', 'discrete', {'lstm_size': 6}, False),
    ('ppo', 'continuous', {'action_distribution': 'squashed'}, True),
    ('impala', 'continuous', {'lstm_size': 6}, True), ('impala', 'discrete', {}, True)], ids=str)
def test_ratios_are_1_before_the_first_step(
        config, monkeypatch, name, actions, changes, normalize):
    """Though observations are normalised: their statistics change after the update, not within."""
    settings = config(name, synchronous=True, batch_size=1, normalize_observations=normalize,
                      learning_rate=0.01, **changes)
    algorithm_config = make_algorithm_config(
        settings, {'ppo_epochs': 2, 'ppo_minibatches': 2, 'ppo_kl_target': 10.0})
    envs = Walk(SPACES[actions])
    learner = Learner(settings, envs.single_observation_space, envs.single_action_space,
                      algorithm_config=algorithm_config)
    policy, log_ratios, seen = learner.policy, [], []
    loss = learner.algorithm.loss

    def spy(batch, *targets):
        steps = len(batch.rewards)
        with torch.no_grad():
            parameters = policy(
                batch.observations[:steps], batch.is_reset[:steps], batch.state).parameters
        found = policy.distribution.log_prob(parameters, batch.actions)
        log_ratios.append((found - batch.behaviour_log_probs)[batch.valid].abs().max())
        seen.append(float(policy.normalizer.count) if normalize else 0.0)
        return loss(batch, *targets)

    monkeypatch.setattr(learner.algorithm, 'loss', spy)
    actor = TorchActor(envs, learner.copy_policy(), learner.schema, 3)
    per_update = 4 if name == 'ppo' else 1
    for number in range(4):
        actor.load(learner.weights(), learner.version, learner.agent_steps)
        steps = learner.agent_steps
        learner.update([Unroll(actor.unroll()[0], 'a', 0, number, learner.version)])
        assert len(log_ratios) == per_update * (number + 1)
        assert log_ratios[-per_update] < 2e-5
        assert seen[-per_update:] == [steps if normalize else 0.0] * per_update
    if name == 'ppo':
        # It is not that nothing was learned.
        assert max(log_ratios) > 1e-3
    if normalize:
        assert float(policy.normalizer.count) == learner.agent_steps > steps
