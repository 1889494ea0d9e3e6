"""The learner node: its exit status."""

import threading
from types import SimpleNamespace

import pytest

from vdl_ros.nodes import learner
from vdl_ros.rl.distributed.collectives import Group


@pytest.mark.parametrize(('reason', 'status'), [
    ('total_steps', 0), ('interrupted', 0), ('not finite', 2)])
def test_a_run_that_diverged_ends_with_an_error_that_no_restart_follows(
        monkeypatch, reason, status):
    monkeypatch.setattr(
        learner, 'Training', lambda node, group: SimpleNamespace(run=lambda stop: reason))
    node = SimpleNamespace(join_group=lambda stop: Group(), share_settings=lambda group: None)
    assert learner.train(node, threading.Event()) == status
