"""The table of episodes of an attacked run, also of one that goes on."""

import csv

import pytest

from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.learning.episode_table import EpisodeTable
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.train_config import TrainConfig


def rows_of(folder):
    with (folder / 'episodes.csv').open() as file:
        return [tuple(float(text) for text in row.values()) for row in csv.DictReader(file)]


def test_each_episode_is_a_row_and_a_resumed_run_drops_what_it_repeats(spaces, scripted, tmp_path):
    learner = Learner(TrainConfig(unroll_length=4, hidden_size=4), *spaces)
    unroll = scripted(FlowStats(), steps=4).get(0)
    table = EpisodeTable(tmp_path, learner, pytest.fail)
    clean = FinishedEpisode(0, 7.5, 5, True, False)
    attacked = FinishedEpisode(1, -2.0, 9, False, True, None, 0.25, 3)
    table.add(unroll, [clean, attacked])
    learner.agent_steps = 100
    table.add(unroll, [clean])
    assert rows_of(tmp_path) == [(0, 7.5, 5, 0, 0), (0, -2, 9, 0.25, 3), (100, 7.5, 5, 0, 0)]
    learner.agent_steps = 50
    EpisodeTable(tmp_path, learner, pytest.fail)
    assert len(rows_of(tmp_path)) == 2


def test_a_folder_that_cannot_be_written_is_a_warning(spaces, scripted, tmp_path):
    learner = Learner(TrainConfig(unroll_length=4, hidden_size=4), *spaces)
    warnings = []
    table = EpisodeTable(tmp_path, learner, warnings.append)
    (tmp_path / 'episodes.csv').unlink()
    (tmp_path / 'episodes.csv').mkdir()
    table.add(scripted(FlowStats(), steps=4).get(0), [FinishedEpisode(0, 7.5, 5, True, False)])
    assert warnings[0].startswith('episodes.csv not written: ')
