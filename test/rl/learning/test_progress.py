"""Progress: counts of one learner, their rates, reports to learner 0, and checkpoints."""

import dataclasses
import json
import math

import numpy as np
import pytest

from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.progress import Progress
from vdl_ros.rl.learning.reporting import RateWindow


def unroll(sequence, start_id=2**62 + 1, reward=1.0, batch=2, success=None):
    """Return six steps, the first of which resets, and the last of which ends."""
    ended = np.zeros((6, batch), np.bool_)
    ended[5] = True
    is_reset = np.zeros((7, batch), np.bool_)
    is_reset[1] = True
    rewards = np.full((6, batch), reward, np.float32)
    rewards[0] = 0
    said = {} if success is None else {'success': ended & success}
    return Unroll({'rewards': rewards, 'terminated': ended, 'truncated': ended & False,
                   'is_reset': is_reset, **said}, 'b', start_id, sequence, 0, 0.25, 100)


def reporter(count, reward, flow_stats=None):
    progress = Progress(flow_stats or FlowStats(), reports=True)
    for sequence in range(count):
        progress.flow_stats.arrive('b', 2**62 + 1, sequence)
        progress.record(unroll(sequence, reward=reward))
        progress.flow_stats.use(2**62 + 1, sequence)
    return progress


def test_learner_0_merges_the_reports_of_the_others():
    first = Progress(FlowStats())
    first.flow_stats.arrive('a', 1, 0)
    first.record(unroll(0, 1))
    first.flow_stats.use(1, 1)
    second = reporter(3, 2.0)
    first.merge_reports({1: second.drain_report()})
    assert first.flow_stats.credits() == {1: ('a', 1), 2**62 + 1: ('b', 3)}
    assert first.episodes == 2 + 6
    assert first.mean_return == pytest.approx((2 * 5 + 6 * 10) / 8)
    assert first.mean_length == 5.0
    assert first.totals['received'] == 4
    assert first.totals['bytes_in'] == 400
    assert first.lag == (1 + 0 + 1 + 2, 2, 4)
    assert first.summary()['message_age_ms'] == {'p50': 250.0, 'p99': 250.0}


def test_reports_contain_episodes_once_and_totals_always():
    first, second = Progress(FlowStats()), reporter(3, 2.0)
    first.merge_reports({1: second.drain_report()})
    again = second.drain_report()
    assert json.loads(again)['returns'] == []
    first.merge_reports({1: again})
    assert first.episodes == 6
    assert first.totals['received'] == 3
    first.merge_reports({2: reporter(1, 1.0).drain_report()})
    assert first.totals['received'] == 4
    alone = Progress(FlowStats())
    alone.record(unroll(0))
    assert json.loads(alone.drain_report())['returns'] == [], 'it does not report'
    assert alone.episodes == 2


def test_merged_progress_is_restored_after_a_restart():
    first = Progress(FlowStats())
    first.merge_reports({1: reporter(3, 2.0).drain_report()})
    again = Progress(FlowStats())
    again.load_state(json.loads(json.dumps(first.state())))
    assert again.state() == first.state()
    again.merge_reports({1: reporter(2, 2.0).drain_report()})
    assert again.totals['received'] == 5
    assert again.lag == (3 + 1, 2, 5)


def test_success_of_all_learners_is_reported_and_restored():
    silent, first, second = (Progress(FlowStats(), reports=True) for _ in range(3))
    silent.record(unroll(0))
    assert math.isnan(silent.success_rate)
    assert silent.summary()['success_rate_100'] is None
    first.record(unroll(0, success=True))
    second.record(unroll(0, success=np.array([True, False])))
    second.record(unroll(1, success=False))
    first.merge_reports({1: second.drain_report()})
    assert first.success_rate == 0.5
    first.merge_reports({1: second.drain_report()})
    assert first.summary()['success_rate_100'] == 0.5
    again = Progress(FlowStats())
    again.load_state(json.loads(json.dumps(first.state())))
    assert again.success_rate == 0.5


def in_real_time(sequence, thinking):
    """Return an unroll of environments on their own clock; each step held one action."""
    parts = np.zeros((6, 2, 4), np.float32)
    parts[..., 0] = thinking
    plain = unroll(sequence)
    return Unroll(
        {**plain.arrays, 'reaction_time': parts, 'late_actions': np.ones((6, 2), np.int32)},
        plain.actor_id, plain.start_id, sequence, 0)


def test_reaction_time_and_late_actions_of_all_learners_are_reported():
    alone = Progress(FlowStats())
    alone.record(unroll(0))
    assert alone.summary()['reaction_time_ms'] is None
    assert alone.summary()['late_actions'] == 0
    first, second = (Progress(FlowStats(), reports=reports) for reports in (False, True))
    first.record(in_real_time(0, 0.5))
    second.record(in_real_time(0, 0.25))
    for _ in range(2):
        first.merge_reports({1: second.drain_report()})
    found = first.summary()
    assert found['reaction_time_ms'] == {
        'thinking': 375.0, 'processing': 0.0, 'action_lag': 0.0, 'observation_lag': 0.0,
        'mean': 375.0, 'p50': 375.0, 'p99': 500.0}
    assert found['late_actions'] == 24
    assert first.totals['rewards'] == 20.0
    again = Progress(FlowStats())
    again.load_state(json.loads(json.dumps(first.state())))
    assert again.summary()['late_actions'] == 24


def test_attacked_episodes_are_reported_also_by_other_learners():
    def attacked(sequence):
        plain = unroll(sequence)
        sizes = np.full((6, 2), 0.1 * (1 + sequence), np.float32)
        arrays = {**plain.arrays, 'adversary_l2': sizes,
                  'adversary_injects': np.tile(np.arange(6)[:, None] % 2 == 0, 2)}
        return dataclasses.replace(plain, arrays=arrays)

    first, second = Progress(FlowStats()), Progress(FlowStats(), reports=True)
    assert first.adversary == {}
    assert first.summary()['adversary'] is None
    for number, progress in enumerate((first, second)):
        progress.record(unroll(0))
        progress.record(attacked(number + 1))
    first.merge_reports({1: second.drain_report()})
    # Five steps, of which the second and fourth are perturbed.
    assert first.adversary == pytest.approx({'l2': 0.25, 'injects': 2.0, 'inject_share': 0.4})
    assert first.summary()['adversary'] == pytest.approx(first.adversary)


def test_rates_are_of_what_is_new():
    counts, now = {'bytes': 100.0, 'updates': 1.0}, [10.0]
    window = RateWindow(lambda: counts, lambda: now[0])
    counts.update(bytes=300.0, updates=2.0)
    now[0] = 14.0
    assert window.take() == ({'bytes': 200.0, 'updates': 1.0}, {'bytes': 50.0, 'updates': 0.25})
    now[0] = 15.0
    assert window.take()[1] == {'bytes': 0.0, 'updates': 0.0}
    counts['bytes'] = 900.0
    window.restart()
    now[0] = 16.0
    assert window.take()[1]['bytes'] == 0.0
