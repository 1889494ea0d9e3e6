"""The learner node: its exit status, and what it does after the training."""

import threading
from types import SimpleNamespace

import pytest

from vdl_ros.nodes import learner
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.ros.training.trajectories import RefusedError


def make_node(**run):
    return SimpleNamespace(join_group=lambda stop: Group(), share_settings=lambda group: None,
                           settings=lambda: None, run=SimpleNamespace(**run))


def test_a_bag_of_another_environment_ends_the_launch_in_one_line(monkeypatch):
    def refuse(stop):
        raise RefusedError("trajectory of 'a' refused: rewards")

    lines = []
    node = make_node(video=False)
    node.get_logger = lambda: SimpleNamespace(error=lines.append)
    monkeypatch.setattr(learner, 'Training', lambda *parts: SimpleNamespace(run=refuse))
    assert learner.train(node, threading.Event()) == 2
    assert lines == ["trajectory of 'a' refused: rewards; a bag needs the settings of its "
                     'training: config:=RUN/config.yaml']


def returns(reason):
    return lambda node, group, settings: SimpleNamespace(run=lambda stop: reason)


@pytest.mark.parametrize(('reason', 'status'), [
    ('total_steps', 0), ('interrupted', 0), ('not finite', 2)])
def test_a_run_that_diverged_ends_with_an_error_that_no_restart_follows(
        monkeypatch, reason, status):
    monkeypatch.setattr(learner, 'Training', returns(reason))
    assert learner.train(make_node(video=False), threading.Event()) == status


@pytest.mark.parametrize(('reason', 'recorded'), [
    ('total_steps', 1), ('stop_at_return', 1), ('interrupted', 0), ('not finite', 0)])
def test_a_video_is_recorded_after_a_complete_training(monkeypatch, reason, recorded):
    calls = []
    monkeypatch.setattr(learner, 'Training', returns(reason))
    monkeypatch.setattr(learner, 'record_run', lambda node, training: calls.append(1))
    learner.train(make_node(video=True), threading.Event())
    assert len(calls) == recorded
