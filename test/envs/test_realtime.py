"""Environments on their own clock: late actions, reaction time, threads, steps in between."""

import threading
import time

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError
from vdl_ros.envs.realtime import Outcome, RealTimeVectorEnv, TickWindow

LIMIT = 60.0


class Ticks(VectorEnv):
    """Counts its steps and keeps their actions; the reward of a step is 1."""

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}
    single_observation_space = observation_space = spaces.Box(0, 1e9, (1,), np.float32)
    single_action_space = spaces.Discrete(1000)

    def __init__(self, delays=None, breaks_at=None):
        self.num_envs = 1
        self.observation_space = spaces.Box(0, 1e9, (1, 1), np.float32)
        self.applied, self.threads = [], []
        self.changed = threading.Condition()
        self._info, self._breaks_at = delays or {}, breaks_at

    def reset(self, *, seed=None, options=None):
        self.threads.append(threading.current_thread().name)
        return np.zeros((1, 1), np.float32), {}

    def step(self, actions):
        with self.changed:
            self.applied.append(int(actions[0]))
            self.changed.notify_all()
        if len(self.applied) == self._breaks_at:
            raise RuntimeError('broken')
        no = np.zeros(1, np.bool_)
        return np.full((1, 1), len(self.applied), np.float32), np.ones(1), no, no, dict(self._info)

    def wait_for(self, steps):
        """Wait until there were so many steps more."""
        with self.changed:
            wanted = len(self.applied) + steps
            assert self.changed.wait_for(lambda: len(self.applied) >= wanted, LIMIT)

    def render(self):
        self.threads.append(threading.current_thread().name)
        return (np.zeros((2, 2, 3), np.uint8),)

    def close_extras(self, **kwargs):
        self.threads.append(threading.current_thread().name)


@pytest.fixture
def start():
    """Return a function that makes the environment on its own clock."""
    made = []

    def make_env(fps=500.0, clock=time.perf_counter, **arguments):
        ticks = Ticks(**arguments)
        made.append(RealTimeVectorEnv(CheckedVectorEnv(ticks, seed=0), fps, clock))
        return ticks, made[-1]

    yield make_env
    for each in made:
        each.close()


def test_a_late_action_is_counted_and_the_last_one_is_held_meanwhile(start):
    ticks, env = start()
    env.reset()
    before = env.step(np.array([7]))[1][0]
    ticks.wait_for(10)
    observations, rewards, _, _, info = env.step(np.array([8]))
    late = int(info['late_actions'][0])
    assert late >= 10
    first = ticks.applied.index(7)
    # Before the first action none is applied.
    assert set(ticks.applied[:first]) <= {0}
    assert ticks.applied[first:first + late + 2] == [7] * (late + 1) + [8]
    # All rewards arrive, and the newest observation.
    assert before + rewards[0] == observations[0, 0] >= first + late + 2


def test_reaction_time_has_what_passes_and_the_delays_that_are_simulated(start):
    delays = {'action_delay': np.array([100.0]), 'observation_delay': np.array([2000.0])}
    ticks, env = start(delays=delays)
    env.reset()
    env.step(np.array([1]))
    ticks.wait_for(20)
    thinking, processing, action_lag, observation_lag = env.step(
        np.array([2]))[4]['reaction_time'][0]
    # 20 ticks of 2 ms, of which the elastic clock may have made up for a late one.
    assert 18 * 0.002 <= thinking < LIMIT
    assert 0.0 <= processing < LIMIT
    assert 100.0 <= action_lag < 100.0 + LIMIT
    assert 2000.0 <= observation_lag < 2000.0 + LIMIT


def test_steps_do_not_pile_up_after_a_standstill(start):
    now = [0.0]
    ticks, env = start(fps=0.001, clock=lambda: now[0])
    env.reset()
    now[0] = 50_000.0
    # Any call wakes the thread, which then looks at the clock.
    env.render()
    ticks.wait_for(2 - len(ticks.applied))
    for _ in range(20):
        env.render()
    # One that was due, and one that begins the new beat.
    assert len(ticks.applied) == 2


def test_a_new_episode_begins_with_no_action_and_all_calls_are_made_in_one_thread(start):
    ticks, env = start()
    env.reset()
    env.step(np.array([9]))
    env.reset()
    ticks.applied.clear()
    ticks.wait_for(2)
    assert set(ticks.applied[1:]) == {0}
    assert len(env.render()) == 1
    env.close()
    env.close()
    assert ticks.threads == ['environment'] * 4
    assert not env._thread.is_alive()


def test_an_error_of_the_environment_is_raised_where_it_is_used(start):
    _, env = start(breaks_at=1)
    env.reset()
    with pytest.raises(EnvError, match=r'^env_id: Ticks: step\(\): RuntimeError: broken \('):
        env.step(np.array([3]))


def tick(*rows):
    """Return a step of environments: of each observation, reward, end (' ', 't' or 'u')."""
    observations, rewards, ends = zip(*rows, strict=True)
    terminated, truncated = (np.array([end == kind for end in ends]) for kind in 'tu')
    return Outcome(np.array(observations, float)[:, None], np.array(rewards, np.float32),
                   terminated, truncated, {'is_success': terminated, 'of_all': 'text'})


def taken(window):
    """Return the rows of what is taken, as of :func:`tick`."""
    found = window.take()
    ends = np.where(found.terminated, 't', np.where(found.truncated, 'u', ' '))
    assert found.info['of_all'] == 'text'
    assert np.array_equal(found.info['is_success'], found.terminated)
    return [(o, r, str(e)) for o, r, e in zip(
        found.observations[:, 0], found.rewards, ends, strict=True)]


def test_the_end_of_an_episode_is_taken_before_the_first_observation_of_the_next():
    steps = TickWindow(np.zeros((2, 1)))
    for rows in (((1, 1, ' '), (11, 1, ' ')), ((2, 2, 'u'), (12, 1, ' ')),
                 ((100, 0, ' '), (13, 1, ' ')), ((101, 4, ' '), (14, 1, ' '))):
        steps.add(tick(*rows))
    assert taken(steps) == [(2, 3, 'u'), (14, 4, ' ')]
    steps.add(tick((102, 8, ' '), (15, 1, ' ')))
    # The reset has no reward: the step after has that of all ticks of its episode.
    assert taken(steps) == [(102, 0, ' '), (15, 1, ' ')]
    steps.add(tick((103, 16, ' '), (16, 1, ' ')))
    assert taken(steps) == [(103, 4 + 8 + 16, ' '), (16, 1, ' ')]


def test_a_reset_is_waited_for_and_an_episode_that_nobody_saw_is_left_out():
    steps = TickWindow(np.zeros((1, 1)))
    steps.add(tick((1, 1, 't')))
    assert taken(steps) == [(1, 1, 't')]
    assert not steps.is_whole
    for rows, expected in (
            ([(100, 0, ' ')], (100, 0, ' ')),
            ([(101, 1, 't'), (200, 0, ' '), (201, 50, 't'), (300, 0, ' '), (301, 2, ' ')],
             (101, 1, 't')),
            ([(302, 60, 't'), (400, 0, ' ')], (400, 0, ' ')),
            ([(401, 3, ' ')], (401, 3, ' '))):
        for row in rows:
            steps.add(tick(row))
        assert steps.is_whole
        assert taken(steps) == [expected]
