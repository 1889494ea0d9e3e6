"""The doctor as a process and its functions."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from vdl_ros.tools import doctor


@pytest.mark.parametrize('transport_name', [
    'shm', pytest.param('udp', marks=pytest.mark.slow)])
def test_messages_between_two_processes_are_measured(transport_name):
    result = subprocess.run(
        [sys.executable, '-m', 'vdl_ros.tools.doctor', '--json', '--ros-args', '-r', 'a:=b'],
        capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, 'VDL_TRANSPORT': transport_name})
    answer = json.loads(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert answer['ok'] is True
    loopback = next(item for item in answer['findings'] if item['name'] == 'loop-back')
    assert len(loopback['figures']) == 4
    assert min(loopback['figures'].values()) > 0
    transport = next(item for item in answer['findings'] if item['name'] == 'transport')
    assert transport['finding'].startswith(transport_name)


def test_a_failed_check_gives_exit_status_1(monkeypatch, capsys):
    monkeypatch.setenv('VDL_TRANSPORT', 'pigeon')
    assert doctor.main(['--no-loopback']) == 1
    output, error = capsys.readouterr()
    assert error == "doctor: VDL_TRANSPORT is 'pigeon'; allowed: auto, shm, udp, default\n"
    assert 'fail transport' in output
    assert '\033' not in output


def test_clean_prints_what_was_removed(monkeypatch, capsys):
    monkeypatch.setattr(doctor, 'clean_stale_shared_memory', lambda: (3, 64 << 20))
    monkeypatch.setattr(doctor.checks, 'CHECKS', ())
    monkeypatch.setattr(doctor.transport, 'configure', lambda: None)  # keep os.environ
    assert doctor.main(['--clean']) == 0
    assert capsys.readouterr().out.startswith('removed 3 files of dead processes, 64 MiB')
