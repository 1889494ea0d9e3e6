"""A training as a process: complete, interrupted, failed, and ended by the death of its parent."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from vdl_ros.common.files import in_use
from vdl_ros.rl.runs import training_process
from vdl_ros.rl.runs.training_process import TrainingError, TrainingProcess

SETTINGS = {'env_id': 'CartPole-v1', 'num_envs': '4', 'hidden_size': '8',
            'stop_at_return': '1e9', 'total_steps': '1000'}
LONG = SETTINGS | {'total_steps': '1000000000'}


def test_a_training_that_was_ended_early_for_a_reason_is_complete(tmp_path):
    training = TrainingProcess(tmp_path, LONG)
    for reason, complete in (('eval_patience', True), ('stop_at_return', True),
                             ('total_steps', False), ('interrupted', False),
                             ('not finite', False)):
        (tmp_path / 'summary.json').write_text(
            json.dumps({'ended_by': reason, 'agent_steps': 1000}))
        assert (training.summary() is not None) == complete, reason


def test_a_resumed_training_is_given_again_what_its_folder_may_not_name(tmp_path):
    (tmp_path / 'checkpoint.pt').touch()
    words = TrainingProcess(tmp_path, SETTINGS | {'demonstrations': 'demos'}).command()[3:]
    assert words == ['--resume', str(tmp_path), '--total_steps', '1000',
                     '--demonstrations', 'demos']


@pytest.mark.process
@pytest.mark.parametrize(('ends', 'reason'), [
    ('echo "serial: env_id: Odd"; echo; exit 2', "with status 2 after 'serial: env_id: Odd'"),
    ('exit 0', "with status 0 after ''"), ('echo learns; kill -SEGV $$', 'by SIGSEGV')])
def test_a_training_that_fails_names_its_reason_and_its_log(tmp_path, monkeypatch, ends, reason):
    monkeypatch.setattr(TrainingProcess, 'command', lambda _: ['sh', '-c', ends])
    with pytest.raises(TrainingError, match=f'^failed {reason}; see {tmp_path}/run.log$'):
        TrainingProcess(tmp_path / 'run', SETTINGS).run(lambda: False)


@pytest.mark.process
def test_trainings_tell_how_they_go_in_turn_and_what_is_lost_if_they_do_not_end(
    tmp_path, monkeypatch,
):
    said = []
    monkeypatch.setattr(training_process, '_TELL_S', 0.0)
    monkeypatch.setattr(training_process, '_GRACE_S', 0.01)
    monkeypatch.setattr(training_process, 'say', said.append)
    # It hears no SIGTERM.
    monkeypatch.setattr(TrainingProcess, 'command', lambda _: [
        'sh', '-c', 'trap "" TERM; echo learns; exec sleep 600'])
    lines = {name: f'trial-0/{name}: learns' for name in ('a', 'b')}

    def run(name):
        return TrainingProcess(tmp_path / 'trial-0' / name, SETTINGS).run(
            lambda: {*lines.values()} <= {*said})

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(run, lines)) == [None, None]
    for name in lines:
        assert f'trial-0/{name}: interrupted, has 0.01 s to save' in said
        assert (f'trial-0/{name}: killed after 0.01 s; what it has learned since its last '
                'checkpoint is lost') in said


@pytest.mark.process
def test_a_full_disk_is_no_failure_of_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingProcess, 'command', lambda _: ['sh', '-c', 'exit 3'])
    with pytest.raises(OSError, match=f'{tmp_path}/run.log'):
        TrainingProcess(tmp_path / 'run', SETTINGS).run(lambda: False)


@pytest.mark.process
def test_a_training_ends_with_its_parent_goes_on_and_is_not_run_again_once_complete(tmp_path):
    code = ('import sys; from pathlib import Path; '
            'from vdl_ros.rl.runs.training_process import TrainingProcess; '
            f'TrainingProcess(Path(sys.argv[1]), {LONG!r}).run(lambda: False)')
    folder = tmp_path / 'run'
    training = TrainingProcess(folder, LONG)
    assert training.summary() is None
    pause = threading.Event()
    with subprocess.Popen([sys.executable, '-c', code, str(folder)]) as parent:
        while not training.is_begun:
            assert parent.poll() is None
            pause.wait(0.05)
        child, = psutil.Process(parent.pid).children()
        # Stopped, so that it holds the folder for as long as the test wants.
        child.suspend()
        os.kill(parent.pid, signal.SIGKILL)
    assert in_use(folder)
    asked = []

    def stop():
        asked.append(1)
        if len(asked) == 5:
            assert in_use(folder)
            child.resume()
        return training.log.read_text().count('acts and learns') == 2

    # The next one waits for it, goes on with it, and is interrupted.
    assert training.run(stop) is None
    assert not psutil.pid_exists(child.pid) or child.status() == psutil.STATUS_ZOMBIE
    found = json.loads((folder / 'summary.json').read_text())
    assert found['ended_by'] == 'interrupted'
    assert '--resume' in training.command()
    steps = found['agent_steps'] + 1000
    longer = TrainingProcess(folder, SETTINGS | {'total_steps': str(steps)})
    assert longer.summary() is None
    assert longer.run(lambda: False)['agent_steps'] >= steps
    before = longer.log.stat().st_size
    assert longer.run(lambda: False)['episodes'] > 3
    assert longer.log.stat().st_size == before
    assert training.summary() is None, 'it is complete only for fewer steps'
