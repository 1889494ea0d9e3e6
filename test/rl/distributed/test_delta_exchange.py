"""Learners that exchange changes of weights: apart between exchanges, their mean after one."""

import threading

import numpy as np
import pytest

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config, verify

PERIOD = 3
# Weights are drawn from the seed of all threads.
MAKING = threading.Lock()


def make(spaces, algorithm, group=None):
    config = TrainConfig(algorithm=algorithm, exchange='delta', exchange_period=PERIOD,
                         learning_rate=0.01, hidden_size=8, unroll_length=8)
    with MAKING:
        return Learner(config, *spaces, group=group)


def vector(learner):
    return np.concatenate([each.ravel() for each in learner.weights().values()])


@pytest.fixture
def update(random_unroll):
    """Return a function that makes an update of a learner, and returns its weights."""
    def learn(learner, rank, number):
        learner.update([
            random_unroll(100 * number + rank, batch=6, start_id=rank, sequence=number)])
        return vector(learner)
    return learn


@pytest.mark.parametrize('algorithm', ['impala', 'a3c'])
def test_every_exchange_adds_the_mean_of_the_changes(pair, spaces, update, algorithm):
    def work(group):
        learner = make(spaces, algorithm, group)
        return [update(learner, group.rank, number) for number in range(2 * PERIOD)]

    first, second = pair(work, work)
    alone = []
    for rank, found in enumerate((first, second)):
        learner = make(spaces, algorithm)
        *before, last = (update(learner, rank, number) for number in range(PERIOD))
        np.testing.assert_array_equal(found[:PERIOD - 1], before)
        alone.append(last)
    np.testing.assert_allclose(first[PERIOD - 1], np.mean(alone, axis=0), atol=1e-6)
    equal = [np.array_equal(*each) for each in zip(first, second, strict=True)]
    assert equal == [False, False, True] * 2


def test_a_loaded_state_begins_a_new_period(pair, spaces, update):
    def work(group):
        group.broadcast = lambda data: group._both(data)[0]
        learner = make(spaces, 'impala', group)
        update(learner, group.rank, 0)
        learner.broadcast_state()
        return [vector(learner), *(update(learner, group.rank, each) for each in range(PERIOD))]

    first, second = pair(work, work)
    assert [np.array_equal(*each) for each in zip(first, second, strict=True)] == [
        True, False, False, True]


def test_what_needs_all_learners_in_each_update_is_rejected():
    for settings, own, message in (
            ({'algorithm': 'dqn'}, {},
             "exchange: 'delta' is not allowed with algorithm 'dqn': one of "),
            ({'normalize_observations': True}, {},
             'not allowed with normalize_observations true: gradients'),
            ({'algorithm': 'ppo'}, {'normalize_returns': True},
             'with normalize_returns true: gradients')):
        config = TrainConfig(exchange='delta', **settings)
        algorithm_config = make_algorithm_config(config, own)
        verify(config, algorithm_config)
        with pytest.raises(SettingError, match=message):
            verify(config, algorithm_config, num_learners=2)
