"""The steps of environments between two actions: sums of rewards, ends, episodes nobody saw."""

import numpy as np

from vdl_ros.envs.lag.tick_window import Outcome, TickWindow


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


def window(count=1):
    return TickWindow(np.zeros((count, 1)))


def test_the_latest_observation_and_the_sum_of_rewards_are_taken():
    steps = window(2)
    steps.add(tick((1, 1, ' '), (11, 5, ' ')))
    steps.add(tick((2, 2, ' '), (12, 5, ' ')))
    first = steps.take()
    steps.add(tick((3, 4, ' '), (13, 1, ' ')))
    assert taken(steps) == [(3, 4, ' '), (13, 1, ' ')]
    # What was taken is not written to.
    assert first.observations.tolist() == [[2], [12]]
    assert first.rewards.tolist() == [3, 10]


def test_the_end_of_an_episode_is_taken_before_the_first_observation_of_the_next():
    steps = window(2)
    for rows in (((1, 1, ' '), (11, 1, ' ')), ((2, 2, 'u'), (12, 1, ' ')),
                 ((100, 0, ' '), (13, 1, ' ')), ((101, 4, ' '), (14, 1, ' '))):
        steps.add(tick(*rows))
    assert taken(steps) == [(2, 3, 'u'), (14, 4, ' ')]
    assert steps.is_whole
    steps.add(tick((102, 8, ' '), (15, 1, ' ')))
    # The reset has no reward: the step after has that of all ticks of its episode.
    assert taken(steps) == [(102, 0, ' '), (15, 1, ' ')]
    steps.add(tick((103, 16, ' '), (16, 1, ' ')))
    assert taken(steps) == [(103, 4 + 8 + 16, ' '), (16, 1, ' ')]


def test_a_reset_is_waited_for_and_an_episode_that_nobody_saw_is_left_out():
    steps = window()
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
