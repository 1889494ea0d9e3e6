"""Returns and lengths of episodes, from unrolls of any length."""

import numpy as np
import pytest

from vdl_ros.envs.counter import episode_length
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode


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


@pytest.mark.parametrize('seed', range(8))
def test_episodes_are_those_of_the_environment(seed):
    rng = np.random.default_rng(seed)
    batch = int(rng.integers(1, 5))
    recorder, counter = Recorder(batch, seed), EpisodeCounter(batch)
    steps, finished = 0, []
    while steps < 150:
        length = int(rng.integers(1, 20))
        finished += counter.add(*recorder.unroll(length))
        steps += length
    assert finished == expected_episodes(recorder.identities, steps)
    assert len(finished) > 10 * batch


def test_episodes_with_a_lost_unroll_are_not_counted():
    recorder, counter = Recorder(4), EpisodeCounter(4)
    before = counter.add(*recorder.unroll(40))
    recorder.unroll(8)  # lost
    counter.forget()
    finished = before + counter.add(*recorder.unroll(100))
    truth = expected_episodes(recorder.identities, 148)
    assert set(finished) < set(truth)
    # At most what was under way at the loss and what ended in it.
    assert len(truth) - len(finished) <= 2 * 4
    counter.forget()
    assert counter.add(*(array[:1] for array in recorder.unroll(1)[:3]),
                       np.zeros((2, 4), np.bool_)) == []


def test_the_ignored_step_counts_neither_reward_nor_length():
    ended = np.array([[False], [True], [False], [True]])
    finished = EpisodeCounter(1).add(
        np.array([[1.0], [1.0], [50.0], [4.0]], np.float32), ended, ~ended & False,
        np.array([[True], [False], [False], [True], [False]]))
    assert finished == [FinishedEpisode(0, 2.0, 2, True, False),
                        FinishedEpisode(0, 4.0, 1, True, False)]
