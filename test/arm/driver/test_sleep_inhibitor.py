"""The lock against sleep, with a program in place of systemd-inhibit."""

import os
import subprocess
import sys

import psutil
import pytest

from vdl_ros.arm.driver import sleep_inhibitor
from vdl_ros.arm.driver.sleep_inhibitor import SleepInhibitor

# Like systemd-inhibit: options, then a command that runs while the lock is held.
HOLDS = """#!/bin/sh
echo "$@" > "$0.options"
while [ "${1#--}" != "$1" ]; do shift; done
"$@"
"""
# An older version.
OLDER = """#!/bin/sh
case "$*" in *--no-ask-password*)
    echo "systemd-inhibit: unrecognized option '--no-ask-password'" >&2; exit 1
esac
""" + HOLDS
REFUSES = """#!/bin/sh
echo 'Failed to inhibit: Access denied' >&2
exit 1
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a program in the place of systemd-inhibit."""
    # On a busy machine a shell may take longer than a person would wait.
    monkeypatch.setattr(sleep_inhibitor, '_ANSWER_S', 60.0)

    def write(text):
        program = tmp_path / 'systemd-inhibit'
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
        return program
    return write


@pytest.mark.process
def test_sleep_is_inhibited_until_the_end(install):
    for text in (HOLDS, OLDER):
        program = install(text)
        inhibitor = SleepInhibitor()
        assert not inhibitor.held
        assert inhibitor.start() == inhibitor.start() == ''
        assert inhibitor.held
        options = program.with_name('systemd-inhibit.options').read_text()
        assert '--what=sleep:idle:handle-lid-switch --mode=block' in options
        held = inhibitor._process.pid
        inhibitor.end()
        assert not inhibitor.held
        assert not psutil.pid_exists(held)


@pytest.mark.process
@pytest.mark.slow
def test_lock_ends_with_a_killed_process(install):
    install(HOLDS)
    process = psutil.Popen(
        [sys.executable, '-c', 'import signal; '
         'from vdl_ros.arm.driver import sleep_inhibitor as s; s._ANSWER_S = 60.0; '
         'i = s.SleepInhibitor(); print(repr(i.start()), flush=True); '
         'signal.pause()'], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"''\n"
    held = process.children()
    assert len(held) == 1
    process.kill()
    process.wait()
    assert psutil.wait_procs(held, timeout=60)[0]


@pytest.mark.process
def test_refusal_is_one_line_and_holds_nothing(install, monkeypatch):
    for text, problem in (
            (REFUSES, 'systemd-inhibit: Failed to inhibit: Access denied'),
            ('no program', 'systemd-inhibit: Exec format error')):
        install(text)
        inhibitor = SleepInhibitor()
        assert inhibitor.start().endswith(problem)
        assert not inhibitor.held
    monkeypatch.setenv('PATH', '')
    assert SleepInhibitor().start() == 'no systemd-inhibit is installed'
