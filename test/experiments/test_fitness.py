"""Fitness of curves made by hand, whose parts can be counted."""

import math

import numpy as np
import pytest

from vdl_ros.experiments.page import references
from vdl_ros.experiments.results import SessionFitness, session_fitness, trial_fitness
from vdl_ros.experiments.spec import ReferenceConfig

# Strength is return / 10.
TEN = ReferenceConfig(random_return=0.0, standard_return=10.0, standard_steps=1000)


def fitness(returns, steps_each=10):
    returns = np.array(returns, np.float64)
    return session_fitness(steps_each * np.arange(1.0, len(returns) + 1), returns, TEN)


def test_parts_of_a_session():
    for returns, expected in (
            # Fewer than 100 episodes are worth nothing.
            ([10.0] * 99, (0.0, 0.0, 0.0)),
            # Solved from the start: the mean of 100 is there after 100 episodes of 10 steps, which
            # is as fast as the standard.
            ([10.0] * 150, (1.0, 1.0, 1.0)),
            # One that never reaches the standard has strength only.
            ([5.0] * 150 + [-3.0] * 10, (0.5, 0.0, 0.0)),
            # 100 episodes of 0, then of 20: after 50 of these the mean is 10.
            ([0.0] * 100 + [20.0] * 100, (2.0, 1000 / 1500, 1.0)),
            # 20 episodes follow the first 100; of their 20 changes 4 are drops, 0.04 is noise.
            ([10.0] * 101 + [9.6] + [10.0, 5.0] * 4 + [10.0] * 10, (1.0, 1.0, 16 / 20))):
        assert fitness(returns) == pytest.approx(expected)


def test_consistency_is_the_share_of_sessions_that_are_no_outliers():
    for sessions, consistency in (
            ([(0.0, 0.0, 0.0)] * 3, 0.0),
            ([(1.0, 1.0, 1.0), (1.0, 1.04, 1.0)], 1.0),
            ([(1.0, 1.0, 1.0), (1.0, 1.06, 1.0)], 0.0),
            # Most are equal: noise is no outlier, another strength is.
            ([(1.0, 1.0, 1.0)] * 3 + [(1.03, 1.0, 1.0)], 1.0),
            ([(1.0, 1.0, 1.0)] * 3 + [(0.3, 0.0, 0.0)], 0.75),
            ([(1.0, 0.9, 1.0), (1.0, 1.0, 1.0), (1.0, 1.1, 1.0), (0.2, 0.0, 0.0)], 0.75)):
        found = trial_fitness([SessionFitness(*each) for each in sessions])
        assert found.consistency == pytest.approx(consistency), sessions


def test_fitness_is_the_norm_of_the_parts_over_that_of_ones():
    assert trial_fitness([SessionFitness(1.0, 1.0, 1.0)]).fitness == pytest.approx(1.0)
    found = trial_fitness([SessionFitness(2.0, 0.5, 0.8), SessionFitness(0.0, 0.0, 0.0)])
    assert found[1:] == (1.0, 0.25, 0.4, 0.0)
    assert found.fitness == pytest.approx(math.sqrt(1.0 + 0.25**2 + 0.4**2) / 2)


def test_the_table_of_references_can_be_used():
    table = references()
    assert table['CartPole-v0'] == ReferenceConfig(20.0, 195.0, 20000)
    assert all(each.standard_return > each.random_return for each in table.values())
