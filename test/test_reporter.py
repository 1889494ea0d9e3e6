"""A failed test runs once more, alone, if it has processes."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = '''
import pathlib, pytest

def fail_once(name):
    flag = pathlib.Path(name)
    if not flag.exists():
        flag.touch()
        raise AssertionError('by chance')

@pytest.fixture
def unlucky():
    fail_once('set-up')

@pytest.mark.process
def test_by_chance():
    fail_once('call')

@pytest.mark.process
def test_by_chance_in_the_set_up(unlucky):
    pass
'''
NEVER_TWICE = '\ndef test_without_processes():\n    fail_once("fast")\n'


@pytest.mark.slow
@pytest.mark.process
def test_a_failed_test_with_processes_runs_once_more(tmp_path, monkeypatch):
    for name in ('VDL_ROS_TEST_STARTS', 'PYTEST_XDIST_WORKER'):
        monkeypatch.delenv(name, raising=False)
    # Locks of its own: this test keeps those of the schedule.
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    monkeypatch.setenv('PYTHONPATH', str(HERE))
    monkeypatch.setenv('PYTEST_ADDOPTS', '-q -p schedule -p reporter --numprocesses=0')

    def run(tests):
        (tmp_path / 'test_it.py').write_text(tests)
        done = subprocess.run(
            [sys.executable, '-m', 'pytest', 'test_it.py'],
            cwd=tmp_path, capture_output=True, text=True, check=False)
        for each in ('call', 'set-up'):
            (tmp_path / each).unlink()
        return done.returncode, done.stdout

    status, output = run(TESTS)
    assert status == 0, output
    assert '2 passed in ' in output
    after = output.partition(' passed in ')[2]
    assert after.count('AssertionError: by chance') == 2
    assert 'test_it.py::test_by_chance failed, and passed at its second run, alone' in after
    assert '2 passed only at the second run' in after
    status, output = run(TESTS + NEVER_TWICE)
    assert status == 1
    assert '1 failed, 2 passed in ' in output
