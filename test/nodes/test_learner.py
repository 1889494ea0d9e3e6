"""The learner node: its exit status, and what it does after the training."""

import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from vdl_ros.common.metrics import CALLBACKS, ThreadTimer
from vdl_ros.nodes import learner
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.ros.training import training as module
from vdl_ros.ros.training.messages import RefusedError


def make_node(**run):
    return SimpleNamespace(
        NAME='learner', join_group=lambda stop: Group(), share_settings=lambda group: None,
        configs=lambda: (), _training_settings=lambda: None, _run=SimpleNamespace(**run))


def test_what_a_restart_would_meet_again_ends_the_launch_in_one_line(monkeypatch):
    for error, line in (
            (RefusedError("trajectory of 'a' refused: rewards"),
             "trajectory of 'a' refused: rewards; a bag needs the settings of its training: "
             'config:=RUN/config.yaml'),
            (MemoryError(), 'out of memory; it takes less with smaller num_envs, batch_size, '
             'unroll_length, replay_size, replay_batch, bc_batch, network, hidden_size, '
             'lstm_size')):
        lines = []
        node = make_node(video=False)
        node.get_logger = lambda lines=lines: SimpleNamespace(error=lines.append)
        run = Mock(side_effect=error)
        monkeypatch.setattr(
            learner, 'Training', lambda *parts, run=run: SimpleNamespace(run=run))
        assert learner.LearnerNode.run(node, threading.Event()) == 2, line
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
        node._record_run = lambda folder, stop, calls=calls: calls.append(folder)
        assert learner.LearnerNode.run(node, threading.Event()) == status, reason
        assert calls == ['runs/a'] * recorded, reason


def test_the_end_of_a_training_is_no_signal_to_end_the_process(monkeypatch):
    executor = Mock(**{'spin_once.side_effect': lambda timeout_sec: training.set()})
    monkeypatch.setattr(module, 'make_executor', lambda: executor)
    stop, training = threading.Event(), threading.Event()
    node = Mock(_train=lambda stop: training.wait(300) and 'total_steps', folder=None,
                _source=Mock(inference=None), _timers={CALLBACKS: ThreadTimer()})
    node._settings.device = torch.device('cpu')
    assert module.Training.run(node, stop) == 'total_steps'
    assert not stop.is_set(), 'a video follows'
    executor.spin_once.side_effect = RuntimeError
    node._train = lambda stop: stop.wait(300) and 'interrupted'
    with pytest.raises(RuntimeError):
        module.Training.run(node, stop)


def test_a_video_is_announced_and_stopped_because_it_takes_a_while(monkeypatch):
    lines, stop, heard = [], threading.Event(), []

    def record(checkpoint, path, stop):
        heard.append(stop)
        return f'{path}: 5 episodes'

    monkeypatch.setattr(learner, 'record_video', record)
    node = SimpleNamespace(NAME='learner', get_logger=lambda: SimpleNamespace(info=lines.append))
    learner.LearnerNode._record_run(
        node, SimpleNamespace(checkpoint='runs/a/checkpoint.pt', path=Path('runs/a')), stop)
    assert heard == [stop]
    assert lines == ['records a video, which takes at most 20 s', 'runs/a/video.mp4: 5 episodes']
