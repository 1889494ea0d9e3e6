"""What a host sends home are the files that it may send, whole, and of bounded size and time."""

import io
import os
import sys
from types import SimpleNamespace

import pytest

from vdl_ros.cluster import control, host_agent
from vdl_ros.cluster.control import receive
from vdl_ros.cluster.ssh import HostError, Request


class Sent(Request):
    """A request whose host has sent this, or sends from a stream until the connection ends."""

    def __init__(self, stream):
        self.host = 'b'
        self._stream = io.BytesIO(stream) if isinstance(stream, bytes) else stream

    @property
    def stream(self):
        return self._stream

    def end(self):
        self._stream.ended = True

    def _error(self):
        return HostError('b does not answer')


def sends(*files, end=b'vdl_ros {}\n'):
    """Return what a host sends that has files of (name, size, content)."""
    return Sent(b'from the shell\n' + b''.join(
        b'vdl_ros {"name": "%s", "size": %d}\n%s' % each for each in files) + end)


def test_the_logs_of_tasks_and_the_files_of_the_run_come_home(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setenv('ROS_HOME', str(tmp_path))
    monkeypatch.setattr(host_agent, 'LOG_BYTES', 5)
    run, logs = tmp_path / 'runs/a', host_agent.folder('lab')
    for path, text in ((logs / 'actor_0.log', 'long words'), (logs / 'other.log', ''),
                       (run / 'checkpoint.pt', 'weights'), (run / '.launch_id', ''),
                       (run / 'best.pt.partial', ''), (run / 'mlruns/0/meta.yaml', 'a: 1'),
                       (run / 'events.out.tfevents.1.host-b.2', '')):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (run / 'link.pt').symlink_to(logs / 'other.log')
    sent = io.BytesIO()
    monkeypatch.setattr(sys, 'stdout', SimpleNamespace(buffer=sent))
    host_agent._send_files('lab', ['actor_0', 'actor_1'], 'runs/a')
    home = tmp_path / 'home'
    receive(Sent(sent.getvalue()), home, ['actor_0', 'actor_1'], run=True)
    assert {str(each.relative_to(home)): each.read_text()
            for each in home.rglob('*') if each.is_file()} == {
        'logs/actor_0.log': 'words', 'checkpoint.pt': 'weights', 'mlruns/0/meta.yaml': 'a: 1',
        'events.out.tfevents.1.host-b.2': ''}


def test_a_machine_that_did_not_start_the_cluster_gets_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setenv('ROS_HOME', str(tmp_path))
    run = tmp_path / 'runs/lab-1'
    run.mkdir(parents=True)
    (run / 'checkpoint.pt').write_text('weights')
    assert host_agent.start('lab', [{
        'name': 'learner_0', 'command': ['true', 'run_dir:=runs/lab-1'], 'environment': {},
        'cwd': ''}]) == {}
    host_agent.stop('lab', ['learner_0'], 9.0)
    sent = io.BytesIO()
    monkeypatch.setattr(sys, 'stdout', SimpleNamespace(buffer=sent))
    host_agent._send_files('lab', [], 'runs/lab')
    receive(Sent(sent.getvalue()), tmp_path / 'home', [], run=True)
    assert (tmp_path / 'home/checkpoint.pt').read_text() == 'weights'


def test_a_host_overwrites_nothing_else_and_sends_no_more_than_it_may(tmp_path, monkeypatch):
    home = tmp_path / 'home'
    home.mkdir()
    (home / 'checkpoint.pt').write_text('weights')
    monkeypatch.setattr(control, '_RUN_FILES', 1)
    log, no_file = (b'logs/a.log', 1, b'x'), 'is not one of the files that it may send'
    for sent, run, reason in (
            (sends((b'checkpoint.pt', 1, b'x')), False, no_file),
            (sends((b'config.yaml', 1, b'x')), False, no_file),
            *((sends((name, 1, b'x')), True, no_file) for name in (
                b'logs/b.log', b'../a.pt', b'/a.pt', b'wandb/../../a.pt', b'a/b.pt', b'a.py',
                b'.launch_id', b'wandb/.a', b'a.pt\\u0000', b'a.pt\\n')),
            (sends((b'logs/a.log', 1 << 40, b'')), False, 'it sends more than'),
            (sends(log, log), False, 'it sends more than 1 files'),
            (sends(log, log, log), True, 'it sends more than 2 files'),
            (sends((b'logs/a.log', 2, b'x'), end=b''), False, 'closed within a file'),
            (sends(log, end=b''), False, 'does not answer'),
            *((sends(end=b'vdl_ros ' + text), False, 'its answer cannot be read')
              for text in (b'1', b'{"name": 1}', b'[' * 10**5, b'{"name": "a", "size": -1}'))):
        with pytest.raises(HostError, match=reason):
            receive(sent, home, ['a'], run=run)
        assert (home / 'checkpoint.pt').read_text() == 'weights', reason
        assert {each.name for each in tmp_path.rglob('*')} <= {
            'home', 'checkpoint.pt', 'logs', 'a.log'}, reason


@pytest.mark.parametrize('noise', [b'', b'noise\n'], ids=['silent', 'endless'])
def test_a_host_that_sends_no_answer_is_left_in_time(noise, tmp_path, monkeypatch):
    class Stream:
        ended = False

        def readline(self, size):
            while not self.ended and not noise:
                os.sched_yield()
            return b'' if self.ended else noise

    monkeypatch.setattr(control, 'ANSWER_S', 0.01)
    with pytest.raises(HostError, match='does not answer'):
        receive(Sent(Stream()), tmp_path, ['a'], run=True)
