"""What a run has come to, told from one learner to another."""

import json

import numpy as np
import pytest

from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.progress import Progress


def unroll(sequence, start_id=2**62 + 1, reward=1.0, batch=2):
    """Return six steps, the first of which resets, and the last of which ends."""
    ended = np.zeros((6, batch), np.bool_)
    ended[5] = True
    is_reset = np.zeros((7, batch), np.bool_)
    is_reset[1] = True
    rewards = np.full((6, batch), reward, np.float32)
    rewards[0] = 0
    return Unroll({'rewards': rewards, 'terminated': ended, 'truncated': ended & False,
                   'is_reset': is_reset}, 'b', start_id, sequence, 0, 0.25, 100)


def told(count, reward, flow_stats=None):
    progress = Progress(flow_stats or FlowStats(), tells=True)
    for sequence in range(count):
        progress.flow_stats.arrive('b', 2**62 + 1, sequence)
        progress.account(unroll(sequence, reward=reward))
        progress.flow_stats.use(2**62 + 1, sequence, sequence)
    return progress


def test_the_first_learner_counts_what_the_others_tell():
    first = Progress(FlowStats())
    first.flow_stats.arrive('a', 1, 0)
    first.account(unroll(0, 1))
    first.flow_stats.use(1, 0, 1)
    second = told(3, 2.0)
    first.hear({1: second.tell()})
    assert first.flow_stats.credits() == {1: ('a', 1), 2**62 + 1: ('b', 3)}
    assert first.episodes == 2 + 6
    assert first.mean_return == pytest.approx((2 * 5 + 6 * 10) / 8)
    assert first.mean_length == 5.0
    assert first.totals['received'] == 4
    assert first.totals['bytes_in'] == 400
    assert first.lag == (1 + 0 + 1 + 2, 2, 4)
    assert first.summary()['message_age_ms'] == {'p50': 250.0, 'p99': 250.0}


def test_episodes_are_told_once_and_counts_again():
    first, second = Progress(FlowStats()), told(3, 2.0)
    first.hear({1: second.tell()})
    again = second.tell()
    assert json.loads(again)['returns'] == []
    first.hear({1: again})
    assert first.episodes == 6
    assert first.totals['received'] == 3
    first.hear({2: told(1, 1.0).tell()})
    assert first.totals['received'] == 4


def test_what_all_came_to_goes_on_after_a_restart():
    first = Progress(FlowStats())
    first.hear({1: told(3, 2.0).tell()})
    again = Progress(FlowStats())
    again.load_state(json.loads(json.dumps(first.state())))
    assert again.state() == first.state()
    again.hear({1: told(2, 2.0).tell()})
    assert again.totals['received'] == 5
    assert again.lag == (3 + 1, 2, 5)


def test_who_tells_nobody_keeps_nothing_to_tell():
    alone = Progress(FlowStats())
    alone.account(unroll(0))
    assert json.loads(alone.tell())['returns'] == []
    assert alone.episodes == 2
