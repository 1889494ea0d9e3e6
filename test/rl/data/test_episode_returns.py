"""Returns and lengths of episodes, from unrolls of any length."""

import dataclasses
import itertools

import numpy as np
import pytest

from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode


def lived(lengths, successes, steps):
    """Return the arrays of ``steps`` steps, and the episodes as (first step, end, episode).

    ``lengths`` and ``successes`` are of the episodes of each environment, one after the other.
    """
    batch, flags = len(lengths), ('terminated', 'truncated', 'success')
    arrays = {name: np.zeros((steps, batch), np.bool_) for name in flags}
    arrays['rewards'] = np.random.default_rng(0).integers(-9, 9, (steps, batch)).astype(np.float32)
    arrays['is_reset'] = np.zeros((steps + 1, batch), np.bool_)
    episodes = []
    for b in range(batch):
        start = 0
        for number, (length, success) in enumerate(zip(lengths[b], successes[b], strict=True)):
            end, by_task = start + length, number % 2 == 0
            if start > steps:
                break
            arrays['is_reset'][start, b] = True
            if end <= steps:
                arrays['terminated' if by_task else 'truncated'][end - 1, b] = True
                arrays['success'][end - 1, b] = success
            episodes.append((start, end, FinishedEpisode(
                b, arrays['rewards'][start:end, b].sum(), length, by_task, not by_task,
                bool(success))))
            start = end + 1  # the step that resets
    return arrays, episodes


def part(arrays, start, stop):
    return {name: each[start:stop + (name == 'is_reset')] for name, each in arrays.items()}


def by_end(episodes):
    return [each for *_, each in sorted(episodes, key=lambda one: (one[1], one[2].environment))]


def test_episodes_are_counted_in_unrolls_of_any_length_but_not_over_a_lost_one():
    rng = np.random.default_rng(0)
    arrays, episodes = lived(rng.integers(1, 9, (4, 100)), rng.random((4, 100)) < 0.5, 150)
    counter, start, finished = EpisodeCounter(4), 0, []
    while start < 150:
        stop = min(start + int(rng.integers(1, 20)), 150)
        finished += counter.add(part(arrays, start, stop))
        start = stop
    assert finished == by_end(each for each in episodes if each[1] <= 150)
    counter = EpisodeCounter(4)
    finished = counter.add(part(arrays, 0, 40))
    counter.forget()
    finished += counter.add(part(arrays, 48, 150))
    assert finished == by_end(
        each for each in episodes if each[1] <= 40 or (each[0] >= 48 and each[1] <= 150))


def test_of_lives_the_whole_game_is_counted():
    rng = np.random.default_rng(0)
    arrays, lives = lived(rng.integers(1, 9, (4, 99)), np.zeros((4, 99)), 150)
    del arrays['success']
    arrays['life_lost'] = np.zeros_like(arrays['terminated'])
    games = []
    for b in range(4):
        own = [each for each in lives if each[2].environment == b]
        for number, (_, end, _) in enumerate(own):
            if number % 3 < 2 and end <= 150:
                arrays['life_lost'][end - 1, b] = True
        for begun in range(0, len(own) - 2, 3):
            parts = [each for *_, each in own[begun:begun + 3]]
            games.append((own[begun][0], own[begun + 2][1], dataclasses.replace(
                parts[-1], success=None, length=sum(each.length for each in parts),
                episode_return=sum(each.episode_return for each in parts))))
    counter, start, finished = EpisodeCounter(4), 0, []
    while start < 150:
        stop = min(start + int(rng.integers(1, 20)), 150)
        finished += counter.add(part(arrays, start, stop))
        start = stop
    assert finished == by_end(each for each in games if each[1] <= 150)
    # After a lost unroll a game is whole once the end of one has been seen.
    counter = EpisodeCounter(4)
    counter.add(part(arrays, 0, 40))
    counter.forget()
    assert counter.add(part(arrays, 48, 150)) == by_end(
        each for each in games if each[0] >= 50 and each[1] <= 150)


def test_successes_come_in_the_order_in_which_episodes_began():
    rng = np.random.default_rng(0)
    successes = rng.random((7, 60)) < 0.5
    # Successes are short.
    lengths = np.where(successes, rng.integers(1, 5, (7, 60)), 20)
    arrays, episodes = lived(lengths, successes, 400)
    counter, found, start = EpisodeCounter(7), [], 0
    while start < 400:
        stop = min(start + int(rng.integers(1, 30)), 400)
        counter.add(part(arrays, start, stop))
        found += counter.take_successes()
        start = stop
    order = sorted(episodes, key=lambda one: (one[0], one[2].environment))
    assert found == [each.success for _, _, each in itertools.takewhile(
        lambda one: one[1] <= 400, order)]
    assert len(found) > 100


def test_an_episode_without_end_does_not_hold_back_the_others_for_ever():
    lengths = np.full((2, 500), 1)
    lengths[1] = 10_000
    arrays, _ = lived(lengths, np.ones_like(lengths, np.bool_), 900)
    counter = EpisodeCounter(2)
    counter.add(arrays)
    assert len(counter.take_successes()) == 450 - 200
    counter.forget()
    assert len(counter.take_successes()) == 200


def test_an_episode_of_which_success_is_not_said_is_none_once_it_was_said_of_another():
    arrays, _ = lived([[3, 3, 3]], [[True, False, True]], 12)
    counter, found = EpisodeCounter(1), []
    for start in range(11):
        found += counter.add({name: array for name, array in part(arrays, start, start + 1).items()
                              if name != 'success' or array.any()})
    assert [each.success for each in found] == [True, False, True] == counter.take_successes()


def test_perturbations_are_counted_without_the_step_that_resets():
    arrays, _ = lived([[2, 1]], [[True, True]], 4)
    sizes = np.array([[0.1], [0.3], [9.0], [0.0]], np.float32)
    injects = np.array([[True], [True], [True], [False]])
    first, second = EpisodeCounter(1).add(
        arrays | {'adversary_l2': sizes, 'adversary_injects': injects})
    assert (first.length, first.adversary_injects) == (2, 2)
    assert first.adversary_l2 == pytest.approx(0.2)
    assert (second.adversary_injects, second.adversary_l2) == (0, 0.0)
    clean, _ = EpisodeCounter(1).add(arrays)
    assert clean.adversary_l2 is None
