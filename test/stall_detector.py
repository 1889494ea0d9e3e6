"""
How long something took, less what the machine itself stood still meanwhile.

A virtual machine that is held by its host holds what it measures as well: that is no lateness of
the program. A process beside it looks at the clock on every core, again and again and before all
others where that is permitted; where it saw nothing for a while, the core did nothing at all.
Where it is not permitted, the time that it waited for its turn counts as well.
"""

import subprocess
import sys

import pytest

# Between two looks, s.
_PERIOD_S = 0.01
_PROGRAM = f'''
import contextlib, itertools, os, sys, threading, time

def look(core, times):
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, [core])
    while True:
        times.append(time.monotonic())
        time.sleep({_PERIOD_S})

# To wait for a turn is no standstill. Nice would count within the session only.
with contextlib.suppress(OSError):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
looks = {{core: [] for core in os.sched_getaffinity(0)}}
for each in looks.items():
    threading.Thread(target=look, args=each, daemon=True).start()
while not all(looks.values()):
    time.sleep({_PERIOD_S})
print('ready', flush=True)
for line in sys.stdin:
    begin, end = map(float, line.split())
    gaps = [0.0]
    for times in looks.values():
        while times[-1] <= end:
            time.sleep({_PERIOD_S})
        gaps += [min(b, end) - max(a, begin) for a, b in itertools.pairwise(times[:])]
    print(max(0.0, max(gaps) - {_PERIOD_S}), flush=True)
'''


class Metronome:
    """The process that looks; a context."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, '-I', '-S', '-c', _PROGRAM], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout.readline() == 'ready\n'
        return self

    def __exit__(self, *_):
        self._process.communicate()

    def took(self, begin, end):
        """Return how long it is from ``begin`` to ``end``, s, less the longest standstill."""
        self._process.stdin.write(f'{begin!r} {end!r}\n')
        still = float(self._process.stdout.readline())
        if still > 2 * _PERIOD_S:
            print(f'the machine stood still for {still * 1000:.0f} ms')
        return end - begin - still


@pytest.fixture
def took():
    """Return :meth:`Metronome.took` of a process that looks during this test."""
    with Metronome() as metronome:
        yield metronome.took
