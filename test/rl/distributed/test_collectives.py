"""Collectives of one learner, and learners that exchange changes of weights."""

import math
import threading

import numpy as np
import pytest
import torch

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.distributed.collectives import Group, explained_variance, standardized
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config, verify

PERIOD = 3
# Weights are drawn from the seed of all threads.
MAKING = threading.Lock()


def test_standardized_ignores_masked_values():
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    values = torch.tensor([[3.0, -1.0, 900.0], [7.0, float(2**20), 11.0]])
    found = standardized(values, mask, Group())
    counted = np.array([3.0, -1.0, 7.0, 11.0])
    expected = (counted - counted.mean()) / counted.std()
    np.testing.assert_allclose(found[mask.bool()].numpy(), expected, rtol=1e-5)
    assert not found[~mask.bool()].any()
    assert not standardized(torch.full((2, 3), 4.0), mask, Group()).any()
    assert not standardized(values, torch.zeros(2, 3), Group()).any()


def test_explained_variance_is_a_share_and_not_a_number_without_variance():
    values, returns = torch.randn(5), torch.full((5,), 2.0)
    valid = torch.ones(5, dtype=torch.bool)
    assert math.isnan(explained_variance(values, returns, valid, Group()))
    assert math.isnan(explained_variance(values, values, ~valid, Group()))
    assert explained_variance(values, values, valid, Group()) == 1.0
    whole, valid[3] = torch.arange(5.0), False
    expected = 1.0 - float((whole - values)[valid].var() / whole[valid].var())
    assert float(explained_variance(values, whole, valid, Group())) == pytest.approx(expected)


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
    # An update seeds the random numbers of all threads, by which weights are drawn.
    made = threading.Barrier(2)

    def work(group):
        learner = make(spaces, algorithm, group)
        made.wait()
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


def test_learners_that_step_alone_end_together_when_one_fails(pair, spaces, update):
    def work(group):
        learner = make(spaces, 'impala', group)
        if group.rank == 1:
            with torch.no_grad():
                next(learner.policy.parameters()).fill_(math.nan)
        with pytest.raises(FloatingPointError) as error:
            update(learner, group.rank, 0)
        assert learner.version == 0
        # The group is still in step: what comes next is of the same collective.
        assert int(group.all_reduce_sum(torch.tensor(1))) == 2
        return str(error.value)

    first, second = pair(work, work)
    assert first == 'update 0: of another learner, which says why'
    assert 'finite' in second


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
