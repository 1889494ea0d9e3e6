"""What a run of the tests prints: progress, a second run of what failed, the processes started.

A test with processes that fails runs once more, alone, after all others. If it passes then, the
run is green, and its last lines have the first failure in full: its cause is to be found in the
package or in the test (docs/testing.md). A test without processes never runs twice.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

# More failures than this are no chance: nothing runs twice.
MAX_SECOND_RUNS = 8
# How long a test of these folders takes in units of the others, for the estimate.
WEIGHTS = {'launch': 150, 'nodes': 35, 'tools': 35}
PERIOD_S = 20.0
STARTS = 'VDL_ROS_TEST_STARTS'


def pytest_addoption(parser):
    parser.addoption('--once', action='store_true', help='run no failed test a second time')


def pytest_configure(config):
    # PyTorch reads both when it is imported. Threads that wait leave their core to the other
    # workers, as in the executables; those of torch.distributed print no traces.
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
    os.environ.setdefault('TORCH_CPP_LOG_LEVEL', 'FATAL')
    if hasattr(config, 'workerinput') or os.environ.get(STARTS):  # a worker, or a second run
        return
    file, path = tempfile.mkstemp(prefix='vdl_ros-starts-')
    os.close(file)
    os.environ[STARTS] = path
    folder = str(Path(__file__).parent / 'starts')
    os.environ['PYTHONPATH'] = os.pathsep.join(
        filter(None, [folder, os.environ.get('PYTHONPATH', '')]))
    config.pluginmanager.register(Reporter(config, Path(path)))


class Reporter:
    """Reports of one run, in the process that distributes the tests."""

    def __init__(self, config, starts):
        self._config, self._starts = config, starts
        self._begin = self._last = time.monotonic()
        self._left = self._total = self._done_weight = self._left_weight = self._failed = 0
        self._mended = []

    @property
    def _terminal(self):
        return self._config.pluginmanager.get_plugin('terminalreporter')

    def pytest_collection_finish(self, session):
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        if not self._total:
            self._expect(ids)

    def _expect(self, ids):
        self._total = self._left = len(ids)
        self._left_weight = sum(map(weight, ids))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        """Print no letters: :meth:`pytest_runtest_logreport` prints lines."""
        if report.failed:
            return 'failed' if report.when == 'call' else 'error', '', ''
        return ('passed', '', '') if report.passed and report.when == 'call' else None

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._failed += 1
            self._print(f'{report.nodeid}: failed')
        if report.when != 'teardown':
            return
        self._left -= 1
        self._done_weight += weight(report.nodeid)
        self._left_weight -= weight(report.nodeid)
        if time.monotonic() >= self._last + PERIOD_S and self._left > 0:
            self._last = time.monotonic()
            elapsed = self._last - self._begin
            rest = elapsed * self._left_weight / self._done_weight
            self._print(f'{self._total - self._left:,} of {self._total:,} tests, '
                        f'{self._failed} failed, {clock(elapsed)}; about {clock(rest)} left')

    def _print(self, line):
        self._terminal.ensure_newline()
        self._terminal.write_line(line)
        self._terminal.flush()  # also where a file or a pipe takes it

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        """Run failed tests with processes once more, each alone."""
        stats = self._terminal.stats
        failures = [*stats.get('failed', ()), *stats.get('error', ())]
        again = {each.nodeid for each in failures if 'process' in getattr(each, 'keywords', ())}
        if self._config.getoption('once') or len(again) > MAX_SECOND_RUNS \
                or exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        for nodeid in sorted(again):
            self._print(f'{nodeid}: once more, alone')
            if passes(nodeid):
                self._mended += [each for each in failures if each.nodeid == nodeid]
                stats.setdefault('passed', []).append(self._mended[-1])
        for category in ('failed', 'error'):
            stats[category] = [
                each for each in stats.get(category, ()) if each not in self._mended]
        if len(self._mended) == len(failures):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_unconfigure(self):
        for report in self._mended:
            self._print(f'\n{report.nodeid} failed, and passed at its second run, alone. Find the '
                        f'cause today (docs/testing.md). The failure:\n{report.longreprtext}')
        count = len(set(self._starts.read_text().split()))
        self._starts.unlink()
        mended = len({each.nodeid for each in self._mended})
        print(f'{count:,} Python processes started'
              + f'; {mended} passed only at the second run, see above' * bool(mended))


def weight(nodeid):
    """Return about how long a test takes."""
    return WEIGHTS.get((*nodeid.split('/'), '')[1], 1)


def passes(nodeid):
    return not subprocess.run(
        [sys.executable, '-m', 'pytest', '--numprocesses=0', '-m', '', '--once', nodeid],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode


def clock(seconds):
    return f'{int(seconds) // 60}:{int(seconds) % 60:02}'
