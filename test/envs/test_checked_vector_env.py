"""CheckedVectorEnv: the same behaviour for environments of different libraries."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError, seeds_for
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make

IDS = ['CartPole-v1', 'Pendulum-v1', 'vdl/Counter-v0', 'vdl/PixelCounter-v0',
       'vdl/MixedCounter-v0', 'vdl_ros/OWI535Reach-v0', 'ALE/Pong-v5']


def roll(env, steps, rng):
    """Return what ``steps`` random steps gave: observations [T + 1], rewards, ends [T]."""
    observations = [env.reset()[0]]
    rewards, ends, kept = [], [], [observations[0].copy()]
    space = env.single_action_space
    shape = (env.num_envs, *space.shape)
    for _ in range(steps):
        if isinstance(space, gymnasium.spaces.Box):
            actions = rng.uniform(-1, 1, shape).astype(np.float32)
        else:
            actions = rng.integers(0, getattr(space, 'nvec', getattr(space, 'n', 0)), shape)
        observation, reward, terminated, truncated, _ = env.step(actions)
        observations.append(observation)
        kept.append(observation.copy())
        rewards.append(reward)
        ends.append(terminated | truncated)
    # An environment that wrote into an array it had handed out would differ from the copies.
    assert all(np.array_equal(a, b) for a, b in zip(observations, kept, strict=True))
    return np.stack(observations), np.stack(rewards), np.stack(ends)


@pytest.mark.parametrize('env_id', IDS)
def test_step_after_the_end_is_a_reset_step_without_reward(env_id):
    config = EnvConfig(env_id=env_id, time_limit=7)
    env = make(config, seed=3, num_envs=4)
    observations, rewards, ends = roll(env, 40, np.random.default_rng(0))
    env.close()
    assert env.metadata['autoreset_mode'] is AutoresetMode.NEXT_STEP
    assert observations.shape == (41, 4, *env.single_observation_space.shape)
    assert observations.dtype == env.single_observation_space.dtype
    assert rewards.dtype == np.float32
    assert ends.dtype == np.bool_
    assert ends.sum() >= 4 * 4
    after = np.zeros_like(ends)
    after[1:] = ends[:-1]
    assert not rewards[after].any()
    assert not ends[after].any()
    # No episode is longer than the limit: ends of one copy are at most 7 steps and a reset apart.
    for column in ends.T:
        gaps = np.diff(np.flatnonzero(column))
        assert gaps.max() <= 8


@pytest.mark.parametrize('env_id', IDS)
def test_seed_decides_the_episodes(env_id):
    def first(seed):
        env = make(EnvConfig(env_id=env_id), seed=seed, num_envs=3)
        # Pong's first frames are alike, whatever the seed.
        result = roll(env, 12, np.random.default_rng(0))[0]
        env.close()
        return result

    one = first(1)
    assert np.array_equal(one, first(1))
    assert not np.array_equal(one, first(2))
    assert not np.array_equal(one[:, 0], one[:, 1])


@pytest.mark.parametrize('env_id', ['CartPole-v1', 'vdl/Counter-v0', 'ALE/Pong-v5'])
def test_reset_can_take_a_seed_and_goes_on_without_one(env_id):
    env = make(EnvConfig(env_id=env_id), seed=1, num_envs=2)

    def episode(seed=None):
        observations = [env.reset(seed=seed)[0]]
        observations += [env.step(np.zeros(2, np.int64))[0] for _ in range(20)]
        return np.stack(observations)

    first, second, again = episode(), episode(), episode(seed=1)
    env.close()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_seeds_are_distinct_and_not_shared_between_neighbours():
    drawn = [seed for actor in range(50) for seed in seeds_for(actor, 16)]
    assert len(set(drawn)) == 800
    assert min(drawn) >= 0
    assert max(drawn) < 2**31
    assert seeds_for(4, 2) == seeds_for(4, 16)[:2]
    with pytest.raises(EnvError, match='seed: -1'):
        seeds_for(-1, 1)


@pytest.mark.parametrize('mode', [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_another_autoreset_mode_is_refused(mode):
    env = SyncVectorEnv([lambda: gymnasium.make('CartPole-v1')], autoreset_mode=mode)
    with pytest.raises(EnvError, match='SyncVectorEnv: autoreset mode .* NEXT_STEP'):
        CheckedVectorEnv(env, seed=0)
    assert env.closed


def test_an_environment_that_cannot_be_served_is_closed_and_named():
    def endless():
        env = gymnasium.make('CartPole-v1')
        env.observation_space = gymnasium.spaces.Text(5)
        return env

    env = SyncVectorEnv([endless])
    with pytest.raises(EnvError, match='^observations: Text is not supported: Box, '):
        CheckedVectorEnv(env, seed=0)
    assert env.closed


def test_observations_of_several_parts_are_one_vector():
    env = make(EnvConfig(env_id='Blackjack-v1'), seed=0, num_envs=2)
    observations, _ = env.reset()
    assert observations.shape == (2, 32 + 11 + 2)
    assert (observations.reshape(2, -1).sum(1) == 3).all()
    env.close()


def test_converted_observations_that_fill_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(
        'vdl_ros.envs.checked_vector_env._LARGEST_OBSERVATIONS', 2 * 45 * 4)
    make(EnvConfig(env_id='Blackjack-v1'), seed=0, num_envs=2).close()
    with pytest.raises(EnvError, match='^num_envs: 3 observations of 180 bytes are not allowed'):
        make(EnvConfig(env_id='Blackjack-v1'), seed=0, num_envs=3)


@pytest.mark.parametrize('env_id', ['CartPole-v1', 'ALE/Pong-v5'])
@pytest.mark.parametrize('actions', [
    np.array([0, 6]), np.array([-1, 0]), np.array([0]), np.array([0.0, 1.0]), [0, 1],
    np.array([[0, 1]]),
])
def test_wrong_actions_are_refused_before_they_can_hang_a_worker(monkeypatch, env_id, actions):
    env = make(EnvConfig(env_id=env_id), seed=0, num_envs=2)
    env.reset()
    with monkeypatch.context() as patch:
        patch.setattr(env.env, 'step', lambda _: pytest.fail('reached the environment'))
        with pytest.raises(EnvError, match='actions: '):
            env.step(actions)
    env.step(np.array([0, 1]))
    env.close()


def test_box_actions_must_be_finite_but_may_be_large():
    env = make(EnvConfig(env_id='vdl/Reach1D-v0'), seed=0, num_envs=2)
    env.reset()
    env.step(np.array([[9.0], [-9.0]], np.float32))
    with pytest.raises(EnvError, match='finite'):
        env.step(np.array([[np.nan], [0.0]], np.float32))
    env.close()
