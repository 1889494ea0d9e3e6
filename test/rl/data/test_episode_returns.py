"""Returns and lengths of episodes, from unrolls of any length."""

import itertools

import numpy as np
import pytest

from vdl_ros.envs.dummy import episode_length
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode


def named(rewards, terminated, truncated, is_reset, *success):
    """Return these arrays by the names that they have in an unroll."""
    return {'rewards': rewards, 'terminated': terminated, 'truncated': truncated,
            'is_reset': is_reset, **dict(zip(['success'], success, strict=False))}


class Recorder:
    """Steps vdl/Counter-v0 and gives arrays [steps, B], and [steps + 1, B] for is_reset."""

    def __init__(self, batch, seed=3):
        self.env = make(EnvConfig(env_id='vdl/Counter-v0'), seed=seed, num_envs=batch)
        observations, _ = self.env.reset()
        self.identities = observations[:, 2].astype(int)
        self.actions = np.zeros(batch, np.int64)
        # By the clock alone: step 0 is the first of its episode.
        self.first = observations[:, 1] == 0

    def unroll(self, steps):
        rows, resets = [], [self.first]
        for _ in range(steps):
            observations, rewards, terminated, truncated, _ = self.env.step(self.actions)
            self.first = observations[:, 1] == 0
            rows.append((rewards, terminated, truncated))
            resets.append(self.first)
        rewards, terminated, truncated = (np.stack(each) for each in zip(*rows, strict=True))
        return rewards, terminated, truncated, np.stack(resets)


def expected_episodes(identities, steps):
    """Return what ends within ``steps`` steps, by the environment's own definition."""
    found = []
    for b, identity in enumerate(identities):
        end, episode = 0, 0
        while True:
            length = episode_length(episode, identity)
            end += length
            if end > steps:
                break
            even = episode % 2 == 0
            found.append((end, FinishedEpisode(
                b, length * (length + 1) / 2, length, even, not even)))
            end += 1  # the step that resets
            episode += 1
    return [each for _, each in sorted(found, key=lambda pair: (pair[0], pair[1].environment))]


def test_episodes_are_those_of_the_environment():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        batch = seed + 1
        recorder, counter = Recorder(batch, seed), EpisodeCounter(batch)
        steps, finished = 0, []
        while steps < 150:
            length = int(rng.integers(1, 20))
            finished += counter.add(named(*recorder.unroll(length)))
            steps += length
        assert finished == expected_episodes(recorder.identities, steps), seed
        assert len(finished) > 10 * batch


def test_episodes_with_a_lost_unroll_are_not_counted():
    recorder, counter = Recorder(4), EpisodeCounter(4)
    before = counter.add(named(*recorder.unroll(40)))
    recorder.unroll(8)  # lost
    counter.forget()
    finished = before + counter.add(named(*recorder.unroll(100)))
    truth = expected_episodes(recorder.identities, 148)
    assert set(finished) < set(truth)
    # At most what was under way at the loss and what ended in it.
    assert len(truth) - len(finished) <= 2 * 4
    counter.forget()
    assert counter.add(named(*(array[:1] for array in recorder.unroll(1)[:3]),
                             np.zeros((2, 4), np.bool_))) == []


def lived(lengths, successes, steps):
    """Return the arrays of ``steps`` steps, with episodes of these lengths in each environment."""
    batch = len(lengths)
    ended, reached = (np.zeros((steps, batch), np.bool_) for _ in range(2))
    first = np.zeros((steps + 1, batch), np.bool_)
    for b in range(batch):
        start = 0
        for length, success in zip(lengths[b], successes[b], strict=True):
            if start > steps:
                break
            first[start, b] = True
            if start + length <= steps:
                ended[start + length - 1, b], reached[start + length - 1, b] = True, success
            start += length + 1  # the step that resets
    return np.zeros((steps, batch), np.float32), ended, ended & False, first, reached


def test_successes_come_in_the_order_in_which_episodes_began():
    rng = np.random.default_rng(0)
    batch, count, steps = 7, 60, 400
    successes = rng.random((batch, count)) < 0.5
    # Successes are short.
    lengths = np.where(successes, rng.integers(1, 5, (batch, count)), 20)
    arrays = lived(lengths, successes, steps)
    began = np.cumsum(lengths + 1, axis=1) - (lengths + 1)
    order = sorted((began[b, e], b, e) for b in range(batch) for e in range(count))
    within = itertools.takewhile(lambda each: each[0] + lengths[each[1:]] <= steps, order)
    counter, found, t = EpisodeCounter(batch), [], 0
    while t < steps:
        more = int(rng.integers(1, 30))
        counter.add(named(*(each[t:t + more] for each in arrays[:3]), arrays[3][t:t + more + 1],
                          arrays[4][t:t + more]))
        found += counter.take_successes()
        t += more
    assert found == [successes[b, e] for _, b, e in within]
    assert len(found) > 100


def test_an_episode_without_end_does_not_hold_back_the_others_for_ever():
    lengths = np.full((2, 500), 1)
    lengths[1] = 10_000
    arrays = lived(lengths, np.ones_like(lengths, np.bool_), 900)
    counter = EpisodeCounter(2)
    counter.add(named(*arrays))
    assert len(counter.take_successes()) == 450 - 200
    counter.forget()
    assert len(counter.take_successes()) == 200


def test_success_is_unknown_where_the_environment_does_not_say():
    arrays = lived([[3, 3]], [[True, False]], 7)
    assert [each.success for each in EpisodeCounter(1).add(named(*arrays))] == [True, False]
    counter = EpisodeCounter(1)
    assert [each.success for each in counter.add(named(*arrays[:4]))] == [None, None]
    assert counter.take_successes() == []


def test_perturbations_are_counted_without_the_step_that_resets():
    counter = EpisodeCounter(1)
    is_reset = np.array([[True], [False], [False], [True], [False]])
    ended = np.array([[False], [True], [False], [True]])
    sizes = np.array([[0.1], [0.3], [9.0], [0.0]], np.float32)
    injects = np.array([[True], [True], [True], [False]])
    rewards = np.ones((4, 1), np.float32)
    arrays = named(rewards, ended, ended & False, is_reset)
    first, second = counter.add(
        arrays | {'adversary_l2': sizes, 'adversary_injects': injects})
    assert (first.length, first.adversary_injects) == (2, 2)
    assert first.adversary_l2 == pytest.approx(0.2)
    assert (second.adversary_injects, second.adversary_l2) == (0, 0.0)
    clean, _ = EpisodeCounter(1).add(arrays)
    assert clean.adversary_l2 is None
