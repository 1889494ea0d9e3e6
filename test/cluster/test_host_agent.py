"""The program on each host: what it starts, it finds again and ends, whatever a task does."""

import os
import sys
import threading
import time
import uuid

import pytest

from vdl_ros.cluster import host_agent

# Ignores what asks it to end, in a session of its own; its parent dies first.
STUBBORN = '''
import os, signal, sys
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    print('stubborn', flush=True)
    signal.pause()
'''
ENDS = 'import sys; print("all done", flush=True); sys.exit(3)'
# With a process that has an environment of its own.
WAITS = ('import subprocess, time; subprocess.Popen(["sleep", "1000000"], env={}); '
         'print("waiting", flush=True); time.sleep(1e6)')


@pytest.fixture
def cluster():
    """Return a cluster that no other test has; its processes end with the test."""
    name = uuid.uuid4().hex
    yield name
    assert not host_agent.stop(name, ['task'], 0.0)['left']


def start(cluster, program):
    return host_agent.start(cluster, [{
        'name': 'task', 'command': [sys.executable, '-S', '-c', program], 'environment': {},
        'cwd': ''}])


def now(cluster):
    return host_agent.states(cluster, ['task'])['tasks']['task']


def state(cluster, wanted):
    """Return the state of the task once ``wanted`` accepts it."""
    deadline, pause = time.monotonic() + 240.0, threading.Event()
    while not wanted(found := now(cluster)):
        assert time.monotonic() < deadline, found
        pause.wait(0.05)
    return found


@pytest.mark.process
def test_a_task_is_started_once_is_left_alone_by_other_clusters_and_interrupted(cluster):
    assert now(cluster)['state'] == 'absent'
    assert start(cluster, WAITS) == {}
    assert start(cluster, ENDS) == {'error': 'running already: task'}
    found = state(cluster, lambda found: found['line'] == 'waiting')
    assert found['state'] == 'running'
    assert os.getpgid(found['pid']) == found['pid'] != os.getpgid(0)
    shell, _, waits = host_agent.find_processes(cluster, ['task'])['task']
    assert (shell, os.read(os.open(f'/proc/{waits}/cmdline', os.O_RDONLY), 5)) == (
        found['pid'], b'sleep')
    assert host_agent.stop(cluster[:-1], ['task'], 0.1)['running'] == []
    assert now(cluster)['state'] == 'running'
    # One that is interrupted needs no kill.
    assert host_agent.stop(cluster, ['task'], 240.0) == {
        'running': ['task'], 'killed': [], 'left': []}
    assert now(cluster)['state'] == 'ended'


@pytest.mark.process
def test_processes_that_left_their_session_and_ignore_signals_are_killed(cluster, monkeypatch):
    monkeypatch.setattr(host_agent, '_TERM_GRACE_S', 0.1)
    start(cluster, STUBBORN)
    state(cluster, lambda found: found['line'] == 'stubborn')
    stopped = host_agent.stop(cluster, ['task'], 0.1)
    assert stopped == {'running': ['task'], 'killed': ['task'], 'left': []}
    assert host_agent.find_processes(cluster, ['task']) == {'task': []}


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_task_is_told_from_one_that_ended_with_its_status_and_last_line(cluster):
    start(cluster, ENDS)
    found = state(cluster, lambda found: found['state'] == 'ended')
    assert (found['status'], found['line']) == (3, 'all done')
    start(cluster, WAITS)
    state(cluster, lambda found: found['line'] == 'waiting')
    host_agent._send(cluster, ['task'], 9)
    assert state(cluster, lambda found: found['state'] != 'running')['state'] == 'gone'
