"""Worlds of several bodies as vector environments, of one agent or of several."""

import dataclasses

import duel_world
import numpy as np
import pytest

from vdl_ros.envs.checked_vector_env import EnvError, EnvFailedError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make, make_shared
from vdl_ros.rl.acting.actor import EnvStepper
from vdl_ros.rl.data.episode_returns import EpisodeCounter

DUEL = EnvConfig(env_id=duel_world.DUEL, num_envs=2)
TAG = EnvConfig(env_id='mpe2/simple_tag_v3', num_envs=2)


def play(stepper, actions, steps):
    """Step with the same actions; return all steps with is_reset, and the episodes that ended."""
    counter = EpisodeCounter(stepper.envs.num_envs)
    found, episodes = [], []
    for _ in range(steps):
        before = stepper.is_reset
        step = stepper.step(actions)
        found.append(step)
        episodes += counter.add(step.arrays(before))
    return found, episodes


def test_a_body_that_is_gone_waits_for_the_next_episode_of_its_world():
    # B: red_0 in both worlds, then red_1.
    env = make(dataclasses.replace(DUEL, bodies='red_*'), seed=0)
    assert env.num_envs == 4
    actions = np.array([1, 1, 2, 2])
    steps, episodes = play(EnvStepper(env, 0), actions, 12)
    # Each episode of the world has 5 steps, and one step for its reset.
    is_reset = np.array([step.is_reset for step in steps])
    assert is_reset[:, 0].tolist() == [False] * 3 + [True] * 3 + [False] * 3 + [True] * 3
    assert is_reset[:, 2].tolist() == [False] * 5 + [True] + [False] * 5 + [True]
    assert {(each.environment, each.length, each.episode_return) for each in episodes} == {
        (0, 3, 3.0), (1, 3, 3.0), (2, 5, 10.0), (3, 5, 10.0)}
    assert len(episodes) == 8
    assert all(each.terminated and not each.truncated for each in episodes)
    # The step that follows the reset is number 6 of the seed.
    assert steps[6].observation[:, 0].tolist() == [6.0] * 4


def test_a_world_may_reuse_its_arrays_and_what_a_body_may_not_observe_is_named(monkeypatch):
    arrays = {name: np.zeros(2, np.float32) for name in ('red_0', 'red_1')}
    wrong = {}

    def reuse(self):
        for array in arrays.values():
            array[:] = self.steps
        return {name: (arrays | wrong).get(name, np.zeros(3, np.float32)) for name in self.agents}

    monkeypatch.setattr(duel_world.DuelEnv, '_observations', reuse)
    env = make(dataclasses.replace(DUEL, bodies='red_*'), seed=0, num_envs=1)
    steps, _ = play(EnvStepper(env, 0), np.zeros(2, np.int64), 5)
    # One is gone after three steps.
    assert steps[-1].observation[:, 0].tolist() == [3, 5]
    for observation, reason in ((np.zeros(3), ' has the shape (3,), its space has (2,)'),
                                (np.full(2, np.inf), ': inf is not allowed: from -1e+09 to 1e')):
        wrong['red_1'] = observation
        with pytest.raises(EnvFailedError) as caught:
            make(DUEL, 0).reset()
        assert str(caught.value).startswith(
            f'env_id: test/duel: the observation of reset() of red_1{reason}')


def test_success_is_read_in_the_info_of_each_body(monkeypatch):
    step = duel_world.DuelEnv.step

    def succeed(self, actions):
        outcome = step(self, actions)
        outcome[4]['red_1']['is_success'] = self.time == 5
        return outcome

    monkeypatch.setattr(duel_world.DuelEnv, 'step', succeed)
    _, episodes = play(EnvStepper(make(DUEL, 0, num_envs=1), 0), np.zeros(3, np.int64), 5)
    assert [(each.environment, each.success) for each in episodes] == [
        (0, False), (1, True), (2, False)]


def test_a_world_that_keeps_its_bodies_is_reset_when_the_episodes_of_all_have_ended(monkeypatch):
    step = duel_world.DuelEnv.step

    def keep(self, actions):
        outcome, self.agents = step(self, actions), list(self.possible_agents)
        return outcome

    monkeypatch.setattr(duel_world.DuelEnv, 'step', keep)
    _, episodes = play(EnvStepper(make(DUEL, 0, num_envs=1), 0), np.zeros(3, np.int64), 12)
    assert [each.length for each in episodes if each.environment] == [5] * 4


def test_a_time_limit_truncates_all_bodies_that_are_there():
    env = make(dataclasses.replace(DUEL, time_limit=4), seed=0)
    _, episodes = play(EnvStepper(env, 0), np.zeros(6, np.int64), 10)
    # By body: red_0 is gone before.
    assert [(each.length, each.truncated) for each in sorted(
        episodes, key=lambda each: each.environment)] == 4 * [(3, False)] + 8 * [(4, True)]


def test_bodies_of_two_kinds_are_padded_and_named_by_their_kind():
    env = make(DUEL, seed=3)
    observations, _ = env.reset(seed=3)
    assert observations.shape == (6, 5)
    assert observations[:4, 2:].tolist() == [[0, 1, 0]] * 4
    assert observations[4:, 2:].tolist() == [[7, 0, 1]] * 2
    # Two worlds, two seeds; all bodies of a world share it.
    seeds = observations[:, 1].reshape(3, 2)
    assert (seeds == seeds[0]).all()
    assert seeds[0, 0] != seeds[0, 1]


def test_each_agent_acts_for_its_own_bodies_in_one_world():
    shared = make_shared(DUEL, 0, [['red_0', 'blue_0'], ['red_1']])
    first, second = (EnvStepper(view, 5) for view in shared.views)
    # The second reset has not made other worlds.
    assert first.observation[:2, 1].tolist() == second.observation[:, 1].tolist()
    outcomes = shared.step([np.array([1, 1, 2, 3]), np.array([3, 0])])
    assert outcomes[0][1].tolist() == [1.0, 1.0, 2.0, 3.0]
    assert outcomes[1][1].tolist() == [3.0, 0.0]
    assert outcomes[0][0][:, 0].tolist() == [1.0] * 4
    shared.close()


def test_the_same_seed_gives_the_same_world_with_others_at_random():
    def rewards(seed):
        env = make(dataclasses.replace(TAG, bodies='adversary_*'), seed)
        steps, _ = play(EnvStepper(env, seed), np.tile([1, 2], 3), 60)
        env.close()
        return np.stack([step.observation for step in steps])

    first = rewards(1)
    assert first.shape == (60, 6, 16)
    assert (first == rewards(1)).all()
    assert not (first == rewards(2)).all()


def test_what_a_world_cannot_do_is_one_line():
    for config, message in (
            ({'bodies': 'green_0'}, "bodies: 'green_0' is none of the bodies red_0, red_1, blue_"),
            ({'env_id': 'CartPole-v1', 'bodies': 'red_0'}, 'it is no world of several bodies'),
            ({'env_wrappers': 'ClipReward'}, 'wrappers are of environments with one body'),
            ({'env_id': 'mpe2/simple_speaker_listener_v4'}, 'cannot have one policy'),
            ({'env_kwargs': '{"sise": 3}'}, 'unexpected keyword argument')):
        with pytest.raises(EnvError, match=message) as caught:
            make(dataclasses.replace(DUEL, **config), seed=0)
        assert '\n' not in str(caught.value), config
    with pytest.raises(EnvError, match='red_0 is of two agents'):
        make_shared(DUEL, 0, [['red_0'], ['red_0', 'red_1']])
