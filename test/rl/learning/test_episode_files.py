"""The record of one episode, step by step, and the table of the episodes of an attacked run."""

import csv
import dataclasses

import numpy as np
import pytest
import torch

from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.reporting import EpisodeRecord, EpisodeTable
from vdl_ros.rl.settings import TrainConfig


@pytest.fixture
def learner(spaces):
    return Learner(TrainConfig(unroll_length=4, hidden_size=4), *spaces)


def rows_of(path):
    with path.open() as file:
        return [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]


@pytest.fixture
def recorded(learner, scripted, tmp_path):
    """Return the path of an episode, its record, and an inbox of unrolls of four steps."""
    path = tmp_path / 'episode.csv'
    return path, EpisodeRecord(path, learner, pytest.fail), scripted(FlowStats(), steps=4)


def test_an_episode_over_several_unrolls_has_a_row_for_each_step(learner, recorded):
    path, record, inbox = recorded
    unroll = inbox.get(0)
    record.add(dataclasses.replace(unroll, arrays={
        **unroll.arrays, 'adversary_l2': np.full((4, 2), 0.25),
        'adversary_injects': np.array([[False] * 2, [True] * 2] * 2)}))
    second = inbox.get(0)
    # Another actor is not mixed in.
    record.add(dataclasses.replace(second, start_id=7))
    assert not path.exists()
    record.add(second)
    rows = rows_of(path)
    assert [row['step'] for row in rows] == [0, 1, 2, 3, 4]
    assert [row['return'] for row in rows] == [1, 2, 3, 4, 5]
    assert [row['adversary_l2'] for row in rows] == [0.25] * 4 + [0.0]
    assert [row['adversary_injects'] for row in rows] == [0, 1, 0, 1, 0]
    with torch.no_grad():
        found = learner.policy(torch.from_numpy(unroll.arrays['observations'][:4, 0]))
    assert [row['value'] for row in rows[:4]] == pytest.approx(found.values.tolist())
    for index in range(4):
        assert [row[f'logit_{index}'] for row in rows[:4]] == pytest.approx(
            found.parameters[:, index].tolist())
    # Only the first episode.
    text = path.read_text()
    for _ in range(4):
        record.add(inbox.get(0))
    EpisodeRecord(path, learner, pytest.fail).add(unroll)
    assert path.read_text() == text


def test_of_lives_the_whole_game_is_recorded(recorded):
    path, record, inbox = recorded
    for number in range(3):
        unroll = inbox.get(0)
        done = unroll.arrays['terminated'] | unroll.arrays['truncated']
        record.add(dataclasses.replace(
            unroll, arrays={**unroll.arrays, 'life_lost': done & (number == 1)}))
    assert [row['step'] for row in rows_of(path)] == list(range(10))


def test_after_a_lost_unroll_the_next_episode_is_recorded(recorded):
    path, record, inbox = recorded
    record.add(inbox.get(0))
    inbox.get(0)
    # Its steps 2 to 5 of the second episode are no start.
    record.add(inbox.get(0))
    assert not path.exists()
    for _ in range(2):
        record.add(inbox.get(0))
    assert [row['step'] for row in rows_of(path)] == [0, 1, 2, 3, 4]


def test_each_episode_is_a_row_and_a_resumed_run_drops_what_it_repeats(
        learner, scripted, tmp_path):
    def rows():
        return [tuple(row.values()) for row in rows_of(tmp_path / 'episodes.csv')]

    unroll, warnings = scripted(FlowStats(), steps=4).get(0), []
    table = EpisodeTable(tmp_path, learner, warnings.append)
    clean = FinishedEpisode(0, 7.5, 5, True, False)
    attacked = FinishedEpisode(1, -2.0, 9, False, True, None, 0.25, 3)
    table.add(unroll, [clean, attacked])
    learner.agent_steps = 100
    table.add(unroll, [clean])
    assert rows() == [(0, 7.5, 5, 0, 0), (0, -2, 9, 0.25, 3), (100, 7.5, 5, 0, 0)]
    learner.agent_steps = 50
    EpisodeTable(tmp_path, learner, pytest.fail)
    assert len(rows()) == 2
    # What cannot be written is a warning.
    (tmp_path / 'episodes.csv').unlink()
    (tmp_path / 'episodes.csv').mkdir()
    table.add(unroll, [clean])
    assert warnings[0].startswith('episodes.csv not written: ')
