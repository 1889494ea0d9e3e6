"""Tests of the reaction time and its parts."""

import math

import numpy as np
import pytest

from vdl_ros.common.metrics import PARTS, ReactionTime


def test_the_summary_has_the_means_of_the_parts_and_percentiles_of_their_sum():
    reaction_time = ReactionTime()
    assert reaction_time.summary() == {}
    reaction_time.extend([(thinking / 1e3, 0.01, 0.2, 3.0) for thinking in range(1, 101)])
    assert reaction_time.summary() == pytest.approx({
        'thinking': 50.5, 'processing': 10.0, 'action_lag': 200.0, 'observation_lag': 3000.0,
        'mean': 3260.5, 'p50': 3260.5, 'p99': 3309.01})


def test_only_the_latest_actions_are_kept_and_each_is_taken_once_in_order():
    reaction_time = ReactionTime(window=3)
    reaction_time.extend([(1.0, 0.0, 0.0, 4.0)])
    assert reaction_time.take().tolist() == [[1.0, 0.0, 0.0, 4.0]]
    assert reaction_time.take().shape == (0, len(PARTS))
    reaction_time.extend([(0.0, 0.0, value, 0.0) for value in (100.0, 2.0, 3.0, 4.0)])
    assert reaction_time.summary()['action_lag'] == 3000.0
    assert reaction_time.count == 5
    assert reaction_time.take()[:, 2].tolist() == [2.0, 3.0, 4.0]


def test_an_action_with_an_impossible_part_is_not_added():
    reaction_time = ReactionTime()
    reaction_time.extend(np.ones((2, len(PARTS))))
    for value in (-1e-9, math.nan, math.inf):
        reaction_time.extend(np.where(np.eye(len(PARTS)), value, 0.0))
    assert reaction_time.count == 2
    assert reaction_time.summary()['mean'] == 4000.0
