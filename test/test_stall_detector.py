"""The standstill process: what it takes off a time, and what it does not."""

import os
import signal
import threading
import time

import pytest
from stall_detector import Metronome

pytestmark = pytest.mark.process


def test_the_longest_standstill_in_between_is_taken_off_and_none_before():
    with Metronome() as metronome:
        begin = time.monotonic()
        os.kill(metronome._process.pid, signal.SIGSTOP)
        threading.Event().wait(0.5)
        os.kill(metronome._process.pid, signal.SIGCONT)
        metronome.took(begin, time.monotonic())  # it goes on
        end = time.monotonic()
        threading.Event().wait(0.5)
        later = time.monotonic()
        assert metronome.took(begin, end) <= end - begin - 0.45
        # Half of it could be a real one.
        assert metronome.took(end, later) > (later - end) / 2
