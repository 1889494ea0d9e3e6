"""The learner node: its exit status, and what it does after the training."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from vdl_ros.nodes import learner
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.ros.training.messages import RefusedError


def make_node(**run):
    return SimpleNamespace(
        NAME='learner', join_group=lambda stop: Group(), share_settings=lambda group: None,
        configs=lambda: (), _training_settings=lambda: None, _run=SimpleNamespace(**run))


@pytest.mark.parametrize(('error', 'line'), [
    (RefusedError("trajectory of 'a' refused: rewards"), "trajectory of 'a' refused: rewards; "
     'a bag needs the settings of its training: config:=RUN/config.yaml'),
    (MemoryError(), 'out of memory; it takes less with smaller num_envs, batch_size, '
     'unroll_length, replay_size, replay_batch, bc_batch, network, hidden_size, lstm_size')])
def test_what_a_restart_would_meet_again_ends_the_launch_in_one_line(monkeypatch, error, line):
    def refuse(stop):
        raise error

    lines = []
    node = make_node(video=False)
    node.get_logger = lambda: SimpleNamespace(error=lines.append)
    monkeypatch.setattr(learner, 'Training', lambda *parts: SimpleNamespace(run=refuse))
    assert learner.LearnerNode.run(node, threading.Event()) == 2
    assert lines == [line]


def returns(reason):
    return lambda node, group, settings: SimpleNamespace(run=lambda stop: reason, folder='runs/a')


def test_a_video_follows_a_complete_training_and_no_restart_one_that_diverged(monkeypatch):
    for reason, status, recorded in (
            ('total_steps', 0, 1), ('stop_at_return', 0, 1), ('interrupted', 0, 0),
            ('not finite', 2, 0)):
        calls = []
        monkeypatch.setattr(learner, 'Training', returns(reason))
        node = make_node(video=True)
        node._record_run = calls.append
        assert learner.LearnerNode.run(node, threading.Event()) == status, reason
        assert calls == ['runs/a'] * recorded, reason


def test_a_video_is_announced_because_it_takes_a_while(monkeypatch):
    lines = []
    monkeypatch.setattr(learner, 'record_video', lambda checkpoint, path: f'{path}: 5 episodes')
    node = SimpleNamespace(get_logger=lambda: SimpleNamespace(info=lines.append))
    learner.LearnerNode._record_run(
        node, SimpleNamespace(checkpoint='runs/a/checkpoint.pt', path=Path('runs/a')))
    assert lines == ['records a video, which takes at most 20 s', 'runs/a/video.mp4: 5 episodes']
