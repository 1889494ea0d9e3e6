"""Progress: counts of one learner, their rates, reports to learner 0, and checkpoints."""

import json
import math

import numpy as np
import pytest

from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.progress import Progress
from vdl_ros.rl.learning.reporting import RateWindow

ID = 2**62 + 1


def unroll(sequence, reward=1.0, **extras):
    """Return six steps of two environments, the first of which resets, the last of which ends."""
    ended, is_reset = np.zeros((6, 2), np.bool_), np.zeros((7, 2), np.bool_)
    ended[5] = is_reset[1] = True
    rewards = np.full((6, 2), reward, np.float32)
    rewards[0] = 0
    return Unroll({'rewards': rewards, 'terminated': ended, 'truncated': ended & False,
                   'is_reset': is_reset, **extras}, 'b', ID, sequence, 0, 0.25, 100)


def recorded(*unrolls, reports=True):
    """Return the progress of a learner that has learned from these."""
    progress = Progress(FlowStats(), reports=reports)
    for each in unrolls:
        progress.flow_stats.arrive('b', ID, each.sequence)
        progress.record(each)
        progress.flow_stats.use(ID, each.sequence)
    return progress


def restored(progress):
    again = Progress(FlowStats())
    again.load_state(json.loads(json.dumps(progress.state())))
    assert again.summary()['episodes'] == progress.summary()['episodes']
    return again


def test_learner_0_merges_the_reports_of_the_others_and_goes_on_after_a_restart():
    first = Progress(FlowStats())
    first.flow_stats.arrive('a', 1, 0)
    first.record(unroll(0))
    first.flow_stats.use(1, 1)
    second = recorded(*(unroll(number, 2.0) for number in range(3)))
    # Reports have episodes once, and totals always.
    for _ in range(2):
        first.merge_reports({1: second.drain_report()})
        assert first.flow_stats.credits() == {1: ('a', 1), ID: ('b', 3)}
        assert first.episodes == 2 + 6
        assert first.mean_return == pytest.approx((2 * 5 + 6 * 10) / 8)
        assert first.mean_length == 5.0
        assert (first.totals['received'], first.totals['bytes_in']) == (4, 400)
        assert first.lag == (1 + 0 + 1 + 2, 2, 4)
        assert first.summary()['message_age_ms'] == {'p50': 250.0, 'p99': 250.0}
    first.merge_reports({2: recorded(unroll(0)).drain_report()})
    assert first.totals['received'] == 5
    again = restored(first)
    assert again.state() == first.state()
    again.merge_reports({1: recorded(unroll(0), unroll(1)).drain_report()})
    assert again.totals['received'] == 7
    assert again.lag == (4 + 1, 2, 7)


def test_success_of_all_learners_is_reported_and_restored():
    def succeeding(sequence, *success):
        found = np.zeros((6, 2), np.bool_)
        found[5] = success
        return unroll(sequence, success=found)

    silent = recorded(unroll(0))
    assert math.isnan(silent.success_rate)
    assert silent.summary()['success_rate_100'] is None
    first = recorded(succeeding(0, True, True))
    first.merge_reports({1: recorded(
        succeeding(0, True, False), succeeding(1, False, False)).drain_report()})
    assert first.summary()['success_rate_100'] == restored(first).success_rate == 0.5


def test_reaction_time_and_late_actions_of_all_learners_are_reported():
    def in_real_time(thinking):
        """Return an unroll of environments on their own clock; each step held one action."""
        parts = np.zeros((6, 2, 4), np.float32)
        parts[..., 0] = thinking
        return unroll(0, reaction_time=parts, late_actions=np.ones((6, 2), np.int32))

    found = recorded(unroll(0)).summary()
    assert (found['reaction_time_ms'], found['late_actions']) == (None, 0)
    first, second = recorded(in_real_time(0.5), reports=False), recorded(in_real_time(0.25))
    for _ in range(2):
        first.merge_reports({1: second.drain_report()})
    assert first.summary()['reaction_time_ms'] == {
        'thinking': 375.0, 'processing': 0.0, 'action_lag': 0.0, 'observation_lag': 0.0,
        'mean': 375.0, 'p50': 375.0, 'p99': 500.0}
    assert first.totals['rewards'] == 20.0
    assert first.totals['late_actions'] == restored(first).totals['late_actions'] == 24


def test_attacked_episodes_are_reported_also_by_other_learners():
    def attacked(size):
        return unroll(1, adversary_l2=np.full((6, 2), size, np.float32),
                      adversary_injects=np.tile(np.arange(6)[:, None] % 2 == 0, 2))

    assert recorded(unroll(0)).summary()['adversary'] is None
    first = recorded(unroll(0), attacked(0.2))
    first.merge_reports({1: recorded(unroll(0), attacked(0.3)).drain_report()})
    # Five steps, of which the second and fourth are perturbed.
    assert first.summary()['adversary'] == pytest.approx(
        {'l2': 0.25, 'injects': 2.0, 'inject_share': 0.4})
    assert restored(first).adversary == first.adversary


def test_rates_are_of_what_is_new():
    counts, now = {'bytes': 100.0, 'updates': 1.0}, [10.0]
    window = RateWindow(lambda: counts, lambda: now[0])
    counts.update(bytes=300.0, updates=2.0)
    now[0] = 14.0
    assert window.take() == ({'bytes': 200.0, 'updates': 1.0}, {'bytes': 50.0, 'updates': 0.25})
    counts['bytes'] = 900.0
    window.restart()
    now[0] = 16.0
    assert window.take()[1] == {'bytes': 0.0, 'updates': 0.0}
