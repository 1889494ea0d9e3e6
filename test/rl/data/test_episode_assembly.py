"""Episode assembly: episodes cut into unrolls are restored, and no others."""

from dataclasses import dataclass

import numpy as np
import torch

from vdl_ros.rl.algorithms.reinforce import EpisodeAssembly
from vdl_ros.rl.data.batch import Batch, Source

FOREVER = 10_000


@dataclass
class Played:
    """An episode as it was played; ``start`` is the number of its first step in the stream."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool
    start: int

    @property
    def steps(self):
        return range(self.start, self.start + len(self.rewards))


class Stream:
    """One environment that resets itself in the step after an episode's last one.

    Observations are (number of the environment, of the episode, of the step).
    """

    def __init__(self, rng, env, steps):
        self.begun, self.rows = [], []
        while len(self.rows) < steps + 1:
            length, start = int(rng.integers(1, 8)), len(self.rows)
            observations = np.array(
                [(env, len(self.begun), i) for i in range(length + 1)], np.float32)
            actions = rng.integers(0, 4, length + 1)
            rewards = rng.normal(size=length + 1).astype(np.float32)
            terminated = bool(rng.random() < 0.5)
            for i in range(length + 1):
                last = i == length - 1
                self.rows.append((observations[i], actions[i], rewards[i], last and terminated,
                                  last and not terminated, i == 0))
            self.begun.append(Played(observations, actions[:-1], rewards[:-1], terminated, start))
        # The last one may go on beyond the end.
        self.rows = self.rows[:steps + 1]
        self.episodes = [each for each in self.begun if each.steps.stop <= steps]


def make(streams, start, steps):
    """Return a batch without sources: the columns are the streams' next steps."""
    rows = [stream.rows[start:start + steps + 1] for stream in streams]
    observations, actions, rewards, terminated, truncated, is_reset = (
        torch.from_numpy(np.stack([[row[i] for row in column] for column in rows], 1))
        for i in range(6))
    return Batch(observations, actions[:-1], rewards[:-1], terminated[:-1], truncated[:-1],
                 is_reset, torch.zeros_like(rewards[:-1]), torch.zeros_like(terminated[:-1]),
                 torch.zeros(len(streams), 0))


def sent(streams, steps, lost=(), first=0, start_id=7):
    """Return an actor's batches, one for each unroll of ``steps``, without the lost ones."""
    count = (len(streams[0].rows) - 1) // steps
    for number in range(count):
        if number not in lost:
            batch = make(streams, number * steps, steps)
            yield Batch(**{**vars(batch), 'sources': (
                Source(start_id, first + number, len(streams)),)})


def streams_of(seed, envs, steps, first=0):
    rng = np.random.default_rng(seed)
    return [Stream(rng, first + env, steps) for env in range(envs)]


def whole_episodes(streams):
    return [each for stream in streams for each in stream.episodes]


def check(found, expected, case=''):
    """Assert that episodes are the expected ones, each once, in any order."""
    assert len(found) == len(expected), case
    found, expected = (sorted(each, key=lambda one: one.observations[0].tolist())
                       for each in (found, expected))
    for one, other in zip(found, expected, strict=True):
        for name in ('observations', 'actions', 'rewards', 'terminated'):
            assert np.array_equal(getattr(one, name), getattr(other, name)), (case, other.start)


def assembled(batches, longest=FOREVER):
    """Return the episodes found in batches, and the assembly."""
    assembly = EpisodeAssembly(longest)
    return [each for batch in batches for each in assembly.add(batch)], assembly


def test_episodes_are_restored_from_unrolls_of_any_length_once_they_end():
    for seed, steps in enumerate([1, 2, 3, 5, 8, 20, 60]):
        streams = streams_of(seed, 4, 120)
        assembly, found = EpisodeAssembly(FOREVER), []
        for number, batch in enumerate(sent(streams, steps)):
            ended = assembly.add(batch)
            check(ended, [each for each in whole_episodes(streams)
                          if (each.steps.stop - 1) // steps == number])
            found += ended
            # What is kept is a copy.
            for tensor in (batch.observations, batch.actions, batch.rewards):
                tensor.fill_(-1)
        check(found, whole_episodes(streams))
        assert assembly.cut == 0


def test_episodes_in_a_lost_unroll_are_left_out():
    for steps, lost in ((1, {0}), (3, {2}), (8, {1, 2}), (1, {3, 5}), (8, {3, 5})):
        streams = streams_of(steps, 4, 120)
        found, _ = assembled(sent(streams, steps, lost))
        check(found, [each for each in whole_episodes(streams)
                      if not lost & {step // steps for step in each.steps}])


def test_an_episode_that_is_too_long_is_cut_and_counted():
    streams = streams_of(1, 4, 120)
    for steps, longest in ((1, 1), (2, 2), (3, 6), (5, 3), (60, 2)):
        found, assembly = assembled(sent(streams, steps), longest)
        expected, cut = [], 0
        for each in [each for stream in streams for each in stream.begun]:
            if len(each.rewards) > longest:
                each = Played(each.observations[:longest + 1], each.actions[:longest],
                              each.rewards[:longest], False, each.start)
                cut += each.steps.stop <= 120
            if each.steps.stop <= 120:
                expected.append(each)
        check(found, expected, (steps, longest))
        assert assembly.cut == cut > 0, (steps, longest)


def test_actors_in_one_batch_have_separate_episodes():
    groups = [streams_of(seed, envs, 120, 10 * seed) for seed, envs in ((0, 1), (1, 3), (2, 2))]
    by_actor = [list(sent(streams, 4, start_id=group, first=100 * group))
                for group, streams in enumerate(groups)]
    batches = []
    # Of each actor two unrolls in a batch, those of the others in between.
    for number in range(0, 30, 2):
        parts = [sent_by[n] for n in (number, number + 1) for sent_by in by_actor]
        tensors = {name: torch.cat([getattr(each, name) for each in parts], int(name != 'state'))
                   for name in vars(parts[0]) if name != 'sources'}
        batches.append(Batch(
            **tensors, sources=tuple(source for each in parts for source in each.sources)))
    found, _ = assembled(batches)
    check(found, [each for streams in groups for each in whole_episodes(streams)])


def test_a_restarted_actor_starts_a_new_episode():
    before, after = streams_of(0, 2, 21), streams_of(1, 2, 21, 2)
    # It numbers its unrolls as the first one would have gone on.
    found, _ = assembled([*sent(before, 7, start_id=1), *sent(after, 7, start_id=2, first=3)])
    check(found, whole_episodes(before) + whole_episodes(after))


def test_an_episode_that_was_broken_off_is_left_out():
    """A robot was lost: another episode begins, without an end of the one before.

    It would be cut at the length that it reaches with the lost step.
    """
    stream, = streams_of(1, 1, 60)
    broken = max(stream.episodes, key=lambda each: len(each.rewards))
    # The last step and the reset after it, as one step that is not valid.
    end = broken.steps.stop - 1
    observations, actions, rewards, *_ = stream.rows[end]
    stream.rows[end:end + 2] = [(observations, actions, rewards, False, False, False)]
    for each in stream.begun:
        each.start -= each.start > broken.start
    for steps in (1, 3, 12):
        left = [each for each in stream.begun if each is not broken
                and each.steps.stop <= (len(stream.rows) - 1) // steps * steps]
        found, _ = assembled(sent([stream], steps), len(broken.rewards))
        assert [each.rewards.tolist() for each in found] == [
            each.rewards.tolist() for each in left], steps
