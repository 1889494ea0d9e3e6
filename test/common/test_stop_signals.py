"""Signals set an event without deadlock, and end the workers and children of a process."""

import ctypes
import io
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from vdl_ros.common.children import MARK, end_marked
from vdl_ros.common.command_line import say, set_by_signals, stop_on_signals


@pytest.mark.parametrize('work', ['set', 'wait', 'signal'])
def test_a_signal_sets_the_event_also_while_it_is_set_or_waited_for(work):
    event, tracer = threading.Event(), sys.gettrace()
    set_by_signals(event, signal.SIGINT, signal.SIGTERM)

    def interrupt(frame, what, argument):
        """Send SIGINT at every line of the event's code in the main thread."""
        if frame.f_code.co_filename == threading.__file__:
            if what == 'line' and frame.f_code.co_name in ('set', 'wait'):
                signal.raise_signal(signal.SIGINT)
            return interrupt
        return None

    if work == 'signal':
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
            assert event.wait(60), 'later ones have no effect'
        return
    sys.settrace(interrupt)
    try:
        # A deadlock ends at the time limit of the test.
        event.set() if work == 'set' else event.wait(0.01)
    finally:
        sys.settrace(tracer)
    assert event.wait(60)


def test_a_signal_sets_the_event_also_if_foreign_code_raises_in_all_threads(monkeypatch):
    monkeypatch.setattr(threading, 'excepthook', lambda _: None)
    before = set(threading.enumerate())
    event = stop_on_signals()
    thread, = set(threading.enumerate()) - before
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    signal.raise_signal(signal.SIGTERM)
    thread.join()
    assert event.is_set()


def test_a_closed_terminal_is_a_signal_and_lines_to_it_raise_nothing(monkeypatch):
    def closed(*_):
        raise OSError(5, 'Input/output error')

    monkeypatch.setattr(sys, 'stdout', SimpleNamespace(write=closed, flush=closed))
    say('x')
    monkeypatch.setattr(sys, 'stderr', io.StringIO())
    sys.stderr.close()  # as an environment may
    say('x', sys.stderr)
    for stream in (None, SimpleNamespace(write=lambda: None), object()):
        monkeypatch.setattr(sys, 'stdout', stream)
        say('x')
    monkeypatch.setattr(sys, 'stdout', io.StringIO())
    monkeypatch.setattr('builtins.print', closed)
    say('x')
    assert sys.stdout.getvalue() == 'x\n'
    stop = stop_on_signals()
    signal.raise_signal(signal.SIGHUP)
    assert stop.wait(60)
    # As nohup leaves it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop_on_signals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


FORKS = """
import os, signal
from vdl_ros.common.command_line import stop_on_signals
stop = stop_on_signals()

def fork():
    if worker := os.fork():
        return worker
    signal.raise_signal(signal.SIGINT)
    while True:
        signal.pause()

worker = fork()
os.kill(worker, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(worker, 0)[1]), stop.is_set(), flush=True)
fork()
signal.raise_signal(signal.SIGKILL)
"""


@pytest.mark.process
def test_a_forked_worker_ends_by_sigterm_and_with_its_parent_but_not_by_ctrl_c():
    parent = subprocess.Popen([sys.executable, '-c', FORKS], stdout=subprocess.PIPE, text=True)
    # Until end of file: then the second worker has ended too.
    assert parent.communicate(timeout=300)[0] == '15 False\n'


CLOSES = """
import os, signal, sys
from vdl_ros.common.command_line import stop_on_signals
stop = stop_on_signals()
if sys.argv[1] == 'is forked' and not os.fork():
    signal.pause()
os.closerange(3, 1024)
if sys.argv[1] == 'is forked':
    # Its pipe is still open, but not at this end.
    signal.raise_signal(signal.SIGTERM)
stop.wait(60)
"""


@pytest.mark.process
@pytest.mark.parametrize('other', ['none', 'is forked'])
def test_a_process_whose_pipe_of_signals_was_closed_ends_and_says_so(other):
    ended = subprocess.run(
        [sys.executable, '-c', CLOSES, other], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.endswith(
        'signals: their pipe was closed, by an environment for example, which may only close '
        'what it has opened: the process ends\n')


STARTS = """
import os, subprocess
from vdl_ros.common.children import take_mark
take_mark()
subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=subprocess.DEVNULL)
"""


@pytest.mark.process
def test_what_a_marked_process_started_is_ended_in_any_session():
    marks = [f'{os.getpid()} {number}' for number in range(2)]
    for mark in marks:
        subprocess.run([sys.executable, '-c', STARTS], env=os.environ | {MARK: mark}, check=True)
    for mark in marks:
        assert end_marked(mark) == ['sleep']
        assert end_marked(mark) == []
