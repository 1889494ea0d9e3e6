"""The learner node: its exit status, and what it does after the training."""

import threading
from types import SimpleNamespace

from vdl_ros.nodes import learner
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.ros.training.messages import RefusedError


def make_node(**run):
    return SimpleNamespace(
        NAME='learner', join_group=lambda stop: Group(), share_settings=lambda group: None,
        _training_settings=lambda: None, _run=SimpleNamespace(**run))


def test_a_bag_of_another_environment_ends_the_launch_in_one_line(monkeypatch):
    def refuse(stop):
        raise RefusedError("trajectory of 'a' refused: rewards")

    lines = []
    node = make_node(video=False)
    node.get_logger = lambda: SimpleNamespace(error=lines.append)
    monkeypatch.setattr(learner, 'Training', lambda *parts: SimpleNamespace(run=refuse))
    assert learner.LearnerNode.run(node, threading.Event()) == 2
    assert lines == ["trajectory of 'a' refused: rewards; a bag needs the settings of its "
                     'training: config:=RUN/config.yaml']


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
