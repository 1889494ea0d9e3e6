"""Replay buffer: n-step returns, overwriting, and sampling probabilities."""

import itertools
import re
from types import SimpleNamespace

import gymnasium
import numpy as np
import psutil
import pytest
import torch

from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.replay import Replay, n_step_returns
from vdl_ros.rl.data.unroll import UnrollSchema


def naive_n_step(rewards, terminated, done, discount, n):
    """Return sums, factors and times as defined, one step after the other."""
    steps, batch = rewards.shape
    sums, factors = np.zeros((steps, batch)), np.zeros((steps, batch))
    times = np.zeros((steps, batch), np.int64)
    for t, b in np.ndindex(steps, batch):
        count = 0
        while count < n and t + count < steps:
            s = t + count
            sums[t, b] += discount**count * rewards[s, b]
            count += 1
            if done[s, b]:
                break
        factors[t, b] = 0.0 if terminated[s, b] else discount**count
        times[t, b] = t + count
    return sums, factors, times


def test_n_step_sums_end_with_the_episode_or_the_unroll():
    for seed, n in itertools.product(range(5), (1, 2, 3, 6, 7, 20)):
        rng = np.random.default_rng(seed)
        rewards = rng.normal(size=(7, 4))
        done = rng.random((7, 4)) < 0.3
        terminated = done & (rng.random((7, 4)) < 0.5)
        found = n_step_returns(
            torch.from_numpy(rewards), torch.from_numpy(terminated), torch.from_numpy(done),
            0.9, n)
        expected = naive_n_step(rewards, terminated, done, 0.9, n)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-9, err_msg=f'{seed}, {n}')


@pytest.fixture
def schema(spaces):
    return UnrollSchema(*spaces, 8, 1)


@pytest.fixture
def batch(random_unroll, schema):
    """Return a function that makes a batch by a seed: three columns of eight steps."""
    return lambda seed: make_batch([random_unroll(seed)], schema)


def filled(schema, batch, columns, alpha=0.0):
    replay = Replay(schema, columns * 8, 0.9, 3, alpha)
    replay.add(batch(1), batch(1).rewards)
    return replay


def test_the_oldest_is_overwritten(schema, batch):
    replay, batches = Replay(schema, 40, 0.9, 3, 0.0), [batch(seed) for seed in range(4)]
    columns = [(each, b) for each in batches for b in range(3)]
    full = []
    for given in batches:
        replay.add(given, given.rewards)
        full.append(replay.full)
    assert full == [False, True, True, True]
    # Twelve columns came: the last five are there, number i of all in place i % 5.
    for i in range(7, 12):
        given, b = columns[i]
        assert torch.equal(replay.observations[i % 5], given.observations[:, b])
        assert torch.equal(replay.actions[i % 5], given.actions[:, b])
    assert replay.steps == sum(int(given.valid[:, b].sum()) for given, b in columns[7:]) < 5 * 8


def frequencies(replay, count=40_000):
    sample = replay.sample(count)
    drawn = torch.zeros_like(replay.returns)
    drawn.index_put_((sample.column, sample.time), torch.ones(count), accumulate=True)
    return drawn, sample


def near(drawn, probabilities):
    """Return whether counts are within four deviations of the expected ones."""
    expected = drawn.sum() * probabilities
    return bool(((drawn - expected).abs() <= 4 * (expected * (1 - probabilities)).sqrt()).all())


def test_without_priorities_all_valid_steps_have_the_same_probability(schema, batch):
    torch.manual_seed(0)
    replay = filled(schema, batch, 5)
    drawn, sample = frequencies(replay)
    assert torch.equal(drawn > 0, replay.valid)
    assert near(drawn, replay.valid / float(replay.steps))
    replay.update_priorities(sample.column[:9], sample.time[:9], torch.full((9,), 100.0))
    assert torch.equal(replay.sample(10).probabilities, torch.full((10,), 1.0 / replay.steps))


def test_sampling_follows_the_errors(schema, batch):
    torch.manual_seed(0)
    replay = filled(schema, batch, 5, alpha=0.6)
    columns, times = torch.nonzero(replay.valid, as_tuple=True)
    errors = torch.linspace(-3.0, 5.0, len(columns))
    replay.update_priorities(columns, times, errors)
    probabilities = torch.zeros(5, 8)
    probabilities[columns, times] = (errors.abs() + 1e-6) ** 0.6
    probabilities /= probabilities.sum()
    drawn, sample = frequencies(replay)
    assert near(drawn, probabilities)
    torch.testing.assert_close(sample.probabilities, probabilities[sample.column, sample.time])


def test_new_steps_have_the_largest_weight_so_far(schema, batch):
    replay = filled(schema, batch, 6, alpha=0.5)
    columns, times = torch.nonzero(replay.valid, as_tuple=True)
    replay.update_priorities(columns, times, torch.zeros(len(columns)))
    assert replay.steps == len(columns), 'what has no error can still be drawn'
    replay.update_priorities(columns, times, torch.full((len(columns),), 16.0))
    replay.update_priorities(columns, times, torch.full((len(columns),), 1.0))
    old = replay.steps
    replay.add(batch(2), batch(2).rewards)
    new = replay.steps - old
    torch.manual_seed(0)
    sample = replay.sample(500)
    expected = torch.where(sample.column < 3, 1.0, 4.0) / (old + 4 * new)
    torch.testing.assert_close(sample.probabilities, expected, rtol=1e-5, atol=0.0)


def test_a_replay_larger_than_the_free_memory_is_rejected(monkeypatch):
    """Each learner may use its part of the memory, as if all were on this host."""
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    schema = UnrollSchema(space, gymnasium.spaces.Discrete(6), 20, 4)
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: SimpleNamespace(available=2e8))
    for learners, split in ((1, ''), (3, ', split over 3 learners, if all are on this host')):
        # 21 observations for 20 steps; beside these the rest is small.
        most = int(0.8 * 2e8 / learners / (21 * (4 * 84 * 84 + 1) + 20 * 36)) * 20
        with pytest.raises(ValueError) as error:
            Replay(schema, 1_000_000, 0.99, 1, 0.0, learners)
        assert re.fullmatch(
            r'replay_size: 1000000 steps of uint8 \[4, 84, 84\] need 29.\S* GB, and 0\.2 GB are '
            rf'free, of which 80 % may be used{split}: at most {most}', str(error.value))
        replay = Replay(schema, most, 0.99, 1, 0.0, learners)
        assert replay.actions.shape == (most // 20, 20)
        with pytest.raises(ValueError, match='^replay_size: '):
            Replay(schema, most + 20, 0.99, 1, 0.0, learners)


def test_returns_end_where_an_episode_was_broken_off(schema, batch):
    """A robot was lost: the step of the loss, 5, is not valid, and has no end before it."""
    given = batch(1)
    given.is_reset[:], given.terminated[:], given.truncated[:] = False, False, False
    given.is_reset[6, 0] = True
    replay = Replay(schema, 100, 0.9, 3, 0.0)
    replay.add(given, given.rewards)
    assert replay.times[0].tolist()[:5] == [3, 4, 5, 5, 5]
    assert not replay.valid[0, 5]
    assert replay.times[1].tolist()[:6] == [3, 4, 5, 6, 7, 8]
    assert float(replay.returns[0, 3]) == pytest.approx(
        float(given.rewards[3, 0] + 0.9 * given.rewards[4, 0]))
