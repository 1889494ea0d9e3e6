"""Environments of SAME_STEP give the unrolls and episodes that those of NEXT_STEP give."""

import gymnasium
import numpy as np
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.actor import SameStepColumns, Step
from vdl_ros.rl.acting.evaluation import evaluate
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.episode_returns import EpisodeCounter
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.settings import TrainConfig

BATCH, STEPS = 3, 32
MODES = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP


class Walk(gymnasium.Env):
    """A random walk that ends beyond 3, with success, or after 9 steps."""

    observation_space = gymnasium.spaces.Dict({
        'place': gymnasium.spaces.Box(-9, 9, (2,), np.float32),
        'last': gymnasium.spaces.Discrete(2)})
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place, self._steps = self.np_random.normal(size=2).astype(np.float32), 0
        return {'place': self._place, 'last': 0}, {'is_success': False}

    def step(self, action):
        self._place = self._place + self.np_random.normal(size=2).astype(np.float32) + action - 0.5
        self._steps += 1
        far = bool(np.abs(self._place).max() > 3)
        return ({'place': self._place, 'last': action}, float(self._place[0]), far,
                self._steps == 9, {'is_success': far})


VECTORS = {
    'sync': lambda number, mode: SyncVectorEnv([Walk] * number, autoreset_mode=mode),
    'ale': lambda number, mode: AtariVectorEnv(
        'breakout', number, img_height=36, img_width=36, max_num_frames_per_episode=200,
        num_threads=1, autoreset_mode=mode),
}


@pytest.fixture
def made(monkeypatch):
    """Return a function that makes an environment of one of the vector forms and its config."""
    def made(kind, mode, number):
        monkeypatch.setitem(gymnasium.registry, 'test/V-v0', EnvSpec(
            'test/V-v0', vector_entry_point=lambda num_envs: VECTORS[kind](num_envs, mode)))
        config = EnvConfig(env_id='test/V-v0')
        return factory.make(config, 5, num_envs=number, same_step=True)
    return made


class Greedy(TorchActor):
    """Takes the likeliest actions: sampled ones would also differ in the ignored steps."""

    def choose(self, observations, is_reset):
        with torch.inference_mode():
            parameters, _, self.state = self.policy(
                torch.from_numpy(observations)[None], torch.from_numpy(is_reset)[None], self.state)
            actions = self.policy.distribution.mode(parameters[0])
            return actions.numpy(), self.policy.distribution.log_prob(
                parameters[0], actions).numpy()


def policy_of(envs):
    torch.manual_seed(0)
    spaces = envs.single_observation_space, envs.single_action_space
    return make_policy(TrainConfig(
        network='mlp', hidden_size=8, lstm_size=4, last_action_reward=True), *spaces), spaces


@pytest.mark.parametrize(('kind', 'number'), [('sync', BATCH), ('ale', BATCH), ('sync', 1)])
def test_unrolls_and_episodes_are_the_same_to_the_bit(made, same, kind, number):
    found = []
    for mode in MODES:
        envs = made(kind, mode, number)
        policy, spaces = policy_of(envs)
        actor = Greedy(envs, policy, UnrollSchema(*spaces, STEPS, 1, policy.state_size), seed=5)
        episodes, unrolls = [[] for _ in range(number)], []
        for _ in range(8):
            arrays, finished = actor.unroll()
            ignored = arrays['is_reset'][1:]
            # What the policy says of an observation after which the action is ignored.
            for name in ('actions', 'behaviour_log_probs'):
                arrays[name] = np.where(ignored, 0, arrays[name])
            arrays['state'] = np.where(arrays['is_reset'][0][:, None], 0, arrays['state'])
            unrolls.append(arrays)
            for each in finished:
                episodes[each.environment].append(each)
        assert any(each['truncated'].any() for each in unrolls), 'no episode was cut'
        assert kind == 'ale' or any(each['terminated'].any() for each in unrolls)
        actor.close()
        found.append((unrolls, episodes))
    (unrolls, episodes), (other_unrolls, other_episodes) = found
    assert same(unrolls, other_unrolls)
    assert episodes == other_episodes
    assert all(episodes)


def test_an_evaluation_is_the_same_to_the_bit(made):
    found = []
    for mode in MODES:
        envs = made('sync', mode, BATCH)
        policy, spaces = policy_of(envs)
        result = evaluate(envs, Act(policy, spaces[1], deterministic=True), 20, seed=5)
        found.append(sorted(result.episodes, key=lambda each: each.environment))
        envs.close()
    assert found[0] == found[1]
    assert {each.success for each in found[0]} == {False, True}


@pytest.mark.parametrize('length', [1, 2, 5])
def test_an_environment_that_is_an_unroll_ahead_is_left_out_until_its_next_episode(length):
    """Observations are the numbers of the episode and the step; rewards are 1."""
    spaces = gymnasium.spaces.Box(-9, 9, (2,), np.float32), gymnasium.spaces.Discrete(2)
    columns = SameStepColumns(
        UnrollSchema(*spaces, length, 1), np.zeros((BATCH, 2), np.float32), np.empty((BATCH, 0)))
    random, most = np.random.default_rng(length), np.array([2, 9, 60])
    seen, ends = np.zeros((BATCH, 2), np.float32), random.integers(1, 1 + most)
    before, recorded, counter = seen, np.zeros(BATCH, int), EpisodeCounter(BATCH)
    real, counted = [[] for _ in most], [[] for _ in most]
    for _ in range(600):
        columns.choose(np.zeros(BATCH, np.int64), np.zeros(BATCH, np.float32))
        final = seen + [0, 1]
        ended = final[:, 1] == ends
        for index in np.flatnonzero(ended):
            real[index].append(ends[index])
        ends = np.where(ended, random.integers(1, 1 + most), ends)
        seen = np.where(ended[:, None], seen * [1, 0] + [1, 0], final).astype(np.float32)
        if not columns.add(Step(seen, np.ones(BATCH), ended, ~ended & ended, ended,
                                final=final if ended.any() else None), np.empty((BATCH, 0))):
            continue
        arrays, _ = columns.take()
        valid, rows = ~arrays['is_reset'][1:], arrays['observations']
        assert np.array_equal(rows[0], before)
        before = rows[-1]
        assert (np.diff(rows, axis=0)[valid] == [0, 1]).all()
        recorded += valid.sum(0)
        for each in counter.add(arrays):
            counted[each.environment].append(each.length)
    for found, lengths in zip(counted, real, strict=True):
        remaining = iter(lengths)
        assert all(each in remaining for each in found), 'an episode that was none was counted'
    # With a step into each episode 600 / (1 + 1 / 1.5) and 600 / (1 + 1 / 30) would be.
    assert recorded[0] > 250
    assert recorded[2] > 560


def test_the_mode_of_an_environment_is_not_that_of_others(made):
    env = made('ale', AutoresetMode.SAME_STEP, 2)
    assert env.metadata['autoreset_mode'] is AutoresetMode.SAME_STEP
    assert VectorEnv.metadata == {}
    env.close()
