"""Commands that benchmarks start are ended, also by an interrupt at any moment."""

import os
import signal
import subprocess

import pytest

from benchmarks import graph
from vdl_ros.ros.launch_nodes import SAVING_S


@pytest.fixture
def started(monkeypatch):
    """Return a list of the processes that were started; SIGINT comes while each one starts."""
    found = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            found.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(graph.subprocess, 'Popen', Popen)
    yield found
    for each in found:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def test_interrupt_while_a_command_starts_ends_it(started):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), graph.launched('sleep', '60'):
        pytest.fail('the block ran')
    assert [each.returncode for each in started] == [-signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handler


def test_interrupt_while_a_command_ends_is_delivered_after_its_end(monkeypatch):
    killpg, sent = os.killpg, []

    def kill(group, number):
        # As Ctrl-C, a second time, while its end is waited for.
        if not sent:
            signal.raise_signal(signal.SIGINT)
        sent.append(number)
        killpg(group, number)

    monkeypatch.setattr(graph.os, 'killpg', kill)
    with pytest.raises(KeyboardInterrupt), graph.launched('sleep', '60') as process:
        pass
    assert sent == [signal.SIGINT]
    assert process.returncode == -signal.SIGINT


def test_launch_has_time_to_save_before_it_is_killed(monkeypatch):
    class Popen(subprocess.Popen):
        def wait(self, timeout=None):
            waited.append(timeout)
            return super().wait(timeout)

    waited = []
    monkeypatch.setattr(graph.subprocess, 'Popen', Popen)
    with graph.launched('sleep', '60'):
        pass
    # And 5 s from launch's SIGTERM to its SIGKILL.
    assert waited[0] > float(SAVING_S) + 5.0


def test_command_that_ends_early_raises_with_its_last_lines():
    with pytest.raises(RuntimeError, match='bash ended:\nno such thing'), \
            graph.launched('bash', '-c', 'echo no such thing') as process:
        process.wait()


def test_command_that_cannot_be_started_raises():
    with pytest.raises(FileNotFoundError), graph.launched('/no/such/command'):
        pytest.fail('the block ran')
