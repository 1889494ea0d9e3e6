"""Delays, last actions and their settings, in environments of all kinds."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import frames_per_observation, make
from vdl_ros.envs.realtime import Delay, DelayedVectorEnv, LastActionsVectorEnv
from vdl_ros.envs.registration import REACH


class Echo(VectorEnv):
    """Shows what was applied: an observation is (steps since the reset, action); ends after 6."""

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP, 'render_fps': 10}

    def __init__(self, num_envs=3, action_space=None):
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-99, 99, (2,), np.float32)
        self.single_action_space = action_space or spaces.Discrete(100)
        self.observation_space = spaces.Box(-99, 99, (num_envs, 2), np.float32)
        self.time = 0

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions):
        over = self.time == 6
        self.time = 0 if over else self.time + 1
        shown = np.full((self.num_envs, 2), self.time, np.float32)
        shown[:, 1] = 0 if over else actions.reshape(self.num_envs, -1)[:, 0]
        nothing = np.zeros(self.num_envs, np.bool_)
        return shown, shown[:, 0], nothing, nothing | (self.time == 6), {}


def delayed(observations=0.0, actions=0.0, most=0.0, seed=1, num_envs=3):
    env = CheckedVectorEnv(Echo(num_envs), seed=0)
    return DelayedVectorEnv(env, 10.0, observations=Delay(observations, observations),
                            actions=Delay(actions, actions + most), seed=seed)


def roll(env):
    """Return observations of a reset and 13 steps with the actions 1, 2, ..., and the ends."""
    env.reset()
    found = [env.step(np.full(env.num_envs, action)) for action in range(1, 14)]
    return np.array([each[0] for each in found]), np.array([each[3] for each in found])


def test_actions_are_applied_and_observations_shown_later():
    observations, ends = roll(delayed(actions=0.2))
    assert observations[:, 0, 0].tolist() == [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6]
    # None before the first; the action of the reset, 7, is never applied.
    assert observations[:, 0, 1].tolist() == [0, 0, 1, 2, 3, 4, 0, 0, 0, 8, 9, 10, 11]
    assert ends[:, 0].nonzero()[0].tolist() == [5, 12]
    observations, ends = roll(delayed(observations=0.3))
    assert observations[:, 0, 0].tolist() == [0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 1, 2, 3]
    # Ends and rewards are not late.
    assert ends[:, 0].nonzero()[0].tolist() == [5, 12]


def test_a_delay_between_two_steps_is_the_mean_over_episodes_and_constant_in_each():
    env = delayed(actions=0.06, num_envs=500)
    env.reset()
    late = []
    for action in range(1, 40):
        info = env.step(np.full(500, action))[4]
        late.append(info['action_delay'])
        assert not info['observation_delay'].any()
    late = np.array(late)
    assert set(np.unique(late)) == {0.0, 0.1}
    # An episode is seven steps with its reset.
    assert (late[7:13] == late[7]).all()
    assert (late[7] != late[5]).any()
    assert late.mean() == pytest.approx(0.06, abs=0.01)


def test_random_delays_are_drawn_for_each_episode_by_the_seed():
    def found(seed):
        return roll(delayed(actions=0.1, most=0.4, seed=seed, num_envs=50))[0]

    assert np.array_equal(found(1), found(1))
    assert not np.array_equal(found(1), found(2))
    env = delayed(actions=0.1, most=0.4, num_envs=500)
    info = env.reset()[1]
    assert info['action_delay'].mean() == pytest.approx(0.3, abs=0.02)
    assert set(np.round(info['action_delay'], 6)) >= {0.1, 0.2, 0.3, 0.4, 0.5}
    # Of the seed that reset gets, as every actor gives one.
    first = env.reset(seed=7)[1]['action_delay']
    assert np.array_equal(env.reset(seed=7)[1]['action_delay'], first)


@pytest.mark.parametrize(('env_id', 'number', 'fps'), [
    # The arm shows its last actions itself; the duration of a counter's step is unknown.
    ('vdl/MixedCounter-v0', 3, 500.0), (REACH, 0, 200.0), ('ALE/Pong-v5', 3, 200.0)])
def test_all_kinds_of_environments_run_late_and_on_their_own_clock(env_id, number, fps):
    env = make(EnvConfig(
        env_id=env_id, time_limit=7, observation_delay=0.15, random_observation_delay=0.1,
        action_delay=0.1, observe_last_actions=number, realtime_fps=fps), seed=3, num_envs=2)
    env.action_space.seed(0)
    env.reset()
    ends = 0
    while ends < 4:
        observations, rewards, terminated, truncated, info = env.step(env.action_space.sample())
        assert observations.shape == (2, *env.single_observation_space.shape)
        assert observations.dtype == env.single_observation_space.dtype
        assert rewards.shape == (2,)
        ends += (terminated | truncated).sum()
    env.close()
    assert (info['reaction_time'].sum(axis=1) >= 0.2).all()
    assert info['late_actions'].shape == (2,)


def test_last_actions_are_one_hot_the_newest_first_and_empty_after_a_reset():
    env = LastActionsVectorEnv(CheckedVectorEnv(Echo(2, spaces.MultiDiscrete([2, 3])), seed=0), 2)
    assert env.single_observation_space.shape == (2 + 2 * 5,)

    def last(*actions):
        return env.step(np.array(actions))[0][:, :10].reshape(2, 2, 5).tolist()

    env.reset()
    none, first, second = [0] * 5, [1, 0, 0, 0, 1], [0, 1, 1, 0, 0]
    assert last((0, 2), (1, 0)) == [[first, none], [second, none]]
    assert last((1, 0), (0, 2)) == [[second, first], [first, second]]
    for _ in range(4):
        before = last((0, 2), (0, 2))
    assert before == [[first, first]] * 2
    assert last((0, 2), (0, 2)) == [[none, none]] * 2
    assert last((0, 2), (1, 0)) == [[first, none], [second, none]]


class Leaves(Echo):
    """Its first environment ends after three steps, and is lost until all are reset."""

    def step(self, actions):
        shown, rewards, _, truncated, _ = super().step(actions)
        lost = np.full(self.num_envs, self.time == 0)
        lost[0] |= self.time > 3
        first = np.arange(self.num_envs) == 0
        return shown, rewards, first & (self.time == 3), truncated & ~first, {'is_lost': lost}


def test_what_left_before_the_others_begins_with_nothing_of_the_episode_before():
    env = CheckedVectorEnv(Leaves(2, spaces.Discrete(4)), seed=0)
    last = LastActionsVectorEnv(env, 2)
    last.reset()
    for _ in range(6):
        assert last.step(np.array([3, 3]))[0][:, :8].any(1).tolist()[1]
    assert not last.step(np.array([3, 3]))[0][:, :8].any()
    late = DelayedVectorEnv(env, 10.0, observations=Delay(0.3, 0.3), actions=Delay(0.0, 0.0),
                            seed=1)
    late.reset()
    for _ in range(6):
        late.step(np.array([3, 3]))
    assert late.step(np.array([3, 3]))[0][:, 0].tolist() == [0.0, 0.0]


def test_last_actions_stand_beside_images_and_those_of_a_box_are_clipped():
    env = make(EnvConfig(env_id='ALE/Pong-v5', observe_last_actions=4), seed=0, num_envs=1)
    space = env.single_observation_space
    assert isinstance(space, ImageAndVector)
    assert (space.image.shape, space.vector_size) == ((4, 84, 84), 4 * 6)
    env.reset()
    image, numbers = space.split(env.step(np.array([2]))[0])
    assert numbers[0].nonzero()[0].tolist() == [2]
    assert image.any()
    env.close()
    env = make(EnvConfig(env_id='Pendulum-v1', observe_last_actions=1), seed=0, num_envs=1)
    env.reset()
    assert env.step(np.array([[7.0]], np.float32))[0][0, 0] == 2.0
    env.close()


def test_the_arm_simulates_its_delays_itself_between_its_steps():
    def late(**settings):
        env = make(EnvConfig(env_id=REACH, **settings), seed=0, num_envs=400)
        env.reset()
        return env.step(np.ones((400, 4), np.int64))[4]

    plain, more = late(), late(action_delay=0.04, random_observation_delay=0.3)
    # The same twins but for the delays: a constant one is not drawn.
    assert more['action_delay'] == pytest.approx(plain['action_delay'] + 0.04)
    added = more['observation_delay'] - plain['observation_delay']
    assert added.mean() == pytest.approx(0.15, abs=0.03)


def test_delays_that_are_not_possible_are_refused():
    for settings, message in (
            # Its observation has its last commands, and delays come in its arguments too.
            ({'env_id': REACH, 'observe_last_actions': 2}, 'observe_last_actions: 2 is not allow'),
            ({'env_id': REACH, 'action_delay': 0.1, 'env_kwargs': '{"command_delay": 0.2}'},
             'action_delay: not allowed with command_delay'),
            *(({'env_id': REACH, 'env_kwargs': f'{{"command_delay": {value}}}'},
               'command_delay: .* is not allowed: 0 to 2 s')
              for value in ('"a"', '[0.1]', '[0.2, 0.1]', '-0.1', '2.1', 'true', '[0, 1e9]')),
            ({'env_id': 'vdl/Counter-v0', 'action_delay': 0.1},
             "without realtime_fps: env_id 'vdl/Counter-v0' has no")):
        with pytest.raises(EnvError, match=message):
            make(EnvConfig(**settings), seed=0, num_envs=1)
    for late in ({'observations': Delay(1.0, 1.0), 'actions': Delay()},
                 {'observations': Delay(), 'actions': Delay(0.0, 1.0)}):
        with pytest.raises(EnvError, match='not allowed: at most'):
            DelayedVectorEnv(CheckedVectorEnv(Echo(), seed=0), 1e8, seed=0, **late)


def test_the_delay_of_a_game_follows_from_its_frames_and_late_stacks_are_sent_whole():
    env = make(EnvConfig(env_id='ALE/Pong-v5', frame_skip=2, action_delay=0.5), 0, num_envs=1)
    # 15 steps at 30 steps per second.
    assert env.reset()[1]['action_delay'].tolist() == [0.5]
    env.close()
    assert frames_per_observation(
        EnvConfig(env_id='ALE/Pong-v5', action_delay=0.1, frame_stack=3)) == 3
    for name in ('realtime_fps', 'observation_delay', 'random_observation_delay'):
        assert frames_per_observation(EnvConfig(env_id='ALE/Pong-v5', **{name: 0.1})) == 1
