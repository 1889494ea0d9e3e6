"""Signals set an event without deadlock, also while it is set or waited for."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

# Send SIGINT at every line of the event's code in the main thread.
INTERRUPTED = """
import signal, sys, threading
from vdl_ros.common.stop_signals import set_by_signals

def trace(frame, what, argument):
    if frame.f_code.co_filename == threading.__file__:
        if what == 'line' and frame.f_code.co_name in ('set', 'wait'):
            signal.raise_signal(signal.SIGINT)
        return trace

event = threading.Event()
set_by_signals(event, signal.SIGINT, signal.SIGTERM)
sys.settrace(trace)
{work}
sys.settrace(None)
event.wait()
print('set')
"""


@pytest.mark.parametrize('work', ['event.set()', 'event.wait(0.01)'])
def test_a_signal_while_the_event_is_set_or_waited_for_does_not_deadlock(work):
    done = subprocess.run([sys.executable, '-c', INTERRUPTED.format(work=work)],
                          capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, 'set\n'), done.stderr


@pytest.mark.parametrize('number', ['SIGINT', 'SIGTERM'])
def test_each_signal_sets_the_event_and_later_ones_have_no_effect(number):
    work = f"""
for _ in range(2):
    signal.raise_signal(signal.{number})
    assert event.wait(60)
"""
    done = subprocess.run(
        [sys.executable, '-c', INTERRUPTED.replace('sys.settrace(trace)', '').format(work=work)],
        capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, 'set\n'), done.stderr
