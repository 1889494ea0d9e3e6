"""The record of one episode: its steps, and what is done if an unroll is missing."""

import csv
import dataclasses

import pytest
import torch

from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.learning.episode_record import EpisodeRecord
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.train_config import TrainConfig


@pytest.fixture
def learner(spaces):
    return Learner(TrainConfig(unroll_length=4, hidden_size=4), *spaces)


def rows_of(path):
    with path.open() as file:
        return [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]


def test_an_episode_over_several_unrolls_has_a_row_for_each_step(learner, scripted, tmp_path):
    path = tmp_path / 'episode.csv'
    record, inbox = EpisodeRecord(path, learner, pytest.fail), scripted(FlowStats(), steps=4)
    unroll = inbox.get(0)
    record.add(unroll)
    assert not path.exists()
    record.add(inbox.get(0))
    rows = rows_of(path)
    assert [row['step'] for row in rows] == [0, 1, 2, 3, 4]
    assert [row['return'] for row in rows] == [1, 2, 3, 4, 5]
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
    assert path.read_text() == text
    EpisodeRecord(path, learner, pytest.fail).add(unroll)
    assert path.read_text() == text


def test_after_a_lost_unroll_the_next_episode_is_recorded(learner, scripted, tmp_path):
    path = tmp_path / 'episode.csv'
    record, inbox = EpisodeRecord(path, learner, pytest.fail), scripted(FlowStats(), steps=4)
    record.add(inbox.get(0))
    inbox.get(0)
    # Its steps 2 to 5 of the second episode are no start.
    record.add(inbox.get(0))
    assert not path.exists()
    for _ in range(2):
        record.add(inbox.get(0))
    assert [row['step'] for row in rows_of(path)] == [0, 1, 2, 3, 4]


def test_another_actor_is_not_mixed_in(learner, scripted, tmp_path):
    path = tmp_path / 'episode.csv'
    record, inbox = EpisodeRecord(path, learner, pytest.fail), scripted(FlowStats(), steps=4)
    record.add(inbox.get(0))
    second = inbox.get(0)
    record.add(dataclasses.replace(second, start_id=7))
    assert not path.exists()
    record.add(second)
    assert len(rows_of(path)) == 5
