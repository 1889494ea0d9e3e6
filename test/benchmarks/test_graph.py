"""Commands that benchmarks start are ended, also by an interrupt at any moment."""

import os
import signal
import subprocess

import pytest

from benchmarks import graph
from vdl_ros.ros.launch_nodes import SAVING_S

pytestmark = pytest.mark.process


def test_interrupt_while_a_command_starts_ends_it(monkeypatch):
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(graph.subprocess, 'Popen', Popen)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt), graph.launched('sleep', '60'):
            pytest.fail('the block ran')
        assert [each.returncode for each in started] == [-signal.SIGINT]
    finally:
        for each in started:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
    assert signal.getsignal(signal.SIGINT) is handler


def test_command_has_time_to_save_and_an_interrupt_meanwhile_comes_after_its_end(monkeypatch):
    killpg, sent, waited = os.killpg, [], []

    def kill(group, number):
        # As Ctrl-C, a second time, while its end is waited for.
        if not sent:
            signal.raise_signal(signal.SIGINT)
        sent.append(number)
        killpg(group, number)

    class Popen(subprocess.Popen):
        def wait(self, timeout=None):
            waited.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(graph.os, 'killpg', kill)
    monkeypatch.setattr(graph.subprocess, 'Popen', Popen)
    with pytest.raises(KeyboardInterrupt), graph.launched('sleep', '60') as process:
        pass
    assert sent == [signal.SIGINT]
    assert process.returncode == -signal.SIGINT
    # And 5 s from launch's SIGTERM to its SIGKILL.
    assert waited[0] > float(SAVING_S) + 5.0


def test_command_that_ends_early_or_cannot_be_started_raises():
    with pytest.raises(RuntimeError, match='bash ended:\nno such thing'), \
            graph.launched('bash', '-c', 'echo no such thing') as process:
        process.wait()
    with pytest.raises(FileNotFoundError), graph.launched('/no/such/command'):
        pytest.fail('the block ran')
