"""The fixture ``took``: elapsed time without stalls of the machine.

A virtual machine may be paused by its host, which delays every program in it. A process beside the
test reads the clock on every core every 10 ms, with real-time priority where that is permitted; a
gap between two readings is a stall, in which the core ran nothing. Without real-time priority a
gap may also be the time that the process waited for its turn.
"""

import subprocess
import sys

import pytest

# Between two readings, s.
_PERIOD_S = 0.01
_PROGRAM = f'''
import contextlib, itertools, os, sys, threading, time

def read_clock(core, times):
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, [core])
    while True:
        times.append(time.monotonic())
        time.sleep({_PERIOD_S})

# Otherwise waiting for a turn would look like a stall. Nice only counts within the session.
with contextlib.suppress(OSError):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
readings = {{core: [] for core in os.sched_getaffinity(0)}}
for each in readings.items():
    threading.Thread(target=read_clock, args=each, daemon=True).start()
while not all(readings.values()):
    time.sleep({_PERIOD_S})
print('ready', flush=True)
for line in sys.stdin:
    begin, end = map(float, line.split())
    gaps = [0.0]
    for times in readings.values():
        while times[-1] <= end:
            time.sleep({_PERIOD_S})
        gaps += [min(b, end) - max(a, begin) for a, b in itertools.pairwise(times[:])]
    print(max(0.0, max(gaps) - {_PERIOD_S}), flush=True)
'''


class StallDetector:
    """The process that reads the clock, as a context manager."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, '-I', '-S', '-c', _PROGRAM], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout.readline() == 'ready\n'
        return self

    def __exit__(self, *_):
        self._process.communicate()

    def took(self, begin, end):
        """Return the time from ``begin`` to ``end`` without the longest stall, s."""
        self._process.stdin.write(f'{begin!r} {end!r}\n')
        stall = float(self._process.stdout.readline())
        if stall > 2 * _PERIOD_S:
            print(f'the machine stalled for {stall * 1000:.0f} ms')
        return end - begin - stall


@pytest.fixture
def took():
    """Return :meth:`StallDetector.took` of a process that runs during this test."""
    with StallDetector() as detector:
        yield detector.took
