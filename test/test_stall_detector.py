"""The stall detector subtracts stalls within the measured time and no others."""

import os
import signal
import threading
import time

import pytest
from stall_detector import StallDetector

pytestmark = [pytest.mark.process, pytest.mark.alone, pytest.mark.slow]


def test_the_longest_stall_within_the_time_is_subtracted_and_none_before_it():
    with StallDetector() as detector:
        begin = time.monotonic()
        os.kill(detector._process.pid, signal.SIGSTOP)
        threading.Event().wait(0.5)
        os.kill(detector._process.pid, signal.SIGCONT)
        detector.took(begin, time.monotonic())  # returns once the process runs again
        end = time.monotonic()
        assert detector.took(begin, end) <= end - begin - 0.45

        def is_kept():
            now = time.monotonic()
            threading.Event().wait(0.5)
            later = time.monotonic()
            return detector.took(now, later) > (later - now) / 2

        # A real stall may come in between.
        assert any(is_kept() for _ in range(20))
