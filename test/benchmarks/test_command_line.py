"""Command lines of benchmarks: bad input, exit status, and Ctrl-C."""

import contextlib
import importlib
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import report

BENCHMARKS = Path(report.__file__).parent
NOWHERE = (['--output', '/nowhere/at/all.json'], '--output: /nowhere/at/all.json is not allowed: ')
# Of each program a number out of range, and what it alone checks.
BAD_INPUT = {
    'bench_actor_learner': [
        NOWHERE, (['--env', 'CartPol-v1'],
                  "env_id: no environment 'CartPol-v1' on this host; ")],
    'bench_env': [
        (['--seconds', 'nan'], '--seconds: nan is not allowed: 0.01 to 600'),
        (['--env', 'os:CartPole-v1'], "--env: no environment 'os:CartPole-v1'")],
    'bench_external': [([], '--python, --policy and --dataset: missing, or --record')],
    'bench_lag': [
        (['--delays', '0,x'], "--delays: '0,x' is not allowed: numbers from 0 to 10000")],
    'bench_peers': [(['--env', 'Hopper-v5'], "--env: 'Hopper-v5' is not allowed: an Atari")],
    'bench_policy': [(['--targets', '0'], '--targets: 0 is not allowed: 1 to 100000')],
    'bench_reach': [
        (['--delays', '0,2000'], "--delays: '0,2000' is not allowed: numbers from 0 to 1000"),
        (['--checkpoint', '/nowhere.pt'], '/nowhere.pt: '),
        (['--demonstrations', 'data'], '--demonstrations: not allowed with --task reach: push')],
    'bench_scaling': [
        (['--samplers', '2,4'], '--samplers: there is no 1, and speed-ups are over one'),
        (['--learners', '1,20'], "--learners: '1,20' is not allowed: numbers from 1 to 19")],
    'bench_teach': [(['--cases', 'help'], "--cases: 'help' is not allowed: of nothing,shown"),
                    (['--cases', 'shown', '--plot', 'a.png'], '--plot: a.png is not allowed: ')],
    'bench_third_party': [
        NOWHERE, (['--seconds', '0'], '--seconds: 0.0 is not allowed: 1 to 86400')],
    'bench_train': [
        (['--batch-size', '9'], 'max_in_flight: 4 is not allowed: '),
        (['--env', 'CartPole-v1', '--network', 'nature'], "network 'nature' needs images"),
        (['--set', 'discount'], "--set: 'discount' is not allowed: name:=value"),
        (['--set', 'discont:=0.9'], "--set: no such setting 'discont'; did you mean 'discount'?"),
        (['--set', 'discount:=2'], 'discount: 2.0 is not allowed: a number from 0 to 1'),
        (['--set', 'run_dir:=here'], '--set: run_dir is not allowed: the benchmark has its own')],
    'bench_transport': [
        (['--sizes', '8000,x'], "--sizes: '8000,x' is not allowed: numbers from 1 to 64000000")],
}


def test_bad_input_is_one_line_and_status_2(monkeypatch, capsys):
    assert {path.stem for path in BENCHMARKS.glob('bench_*.py')} == set(BAD_INPUT)
    for name, rows in BAD_INPUT.items():
        main = importlib.import_module(f'benchmarks.{name}').main
        for words, message in rows:
            monkeypatch.setattr(sys, 'argv', [name, *words])
            assert main() == 2, (name, words)
            captured = capsys.readouterr()
            assert captured.out == '', (name, words)
            assert captured.err.startswith(f'{name}: {message}'), (words, captured.err)
            assert captured.err.count('\n') == 1, (words, captured.err)


def test_exit_status_of_an_interrupt_and_of_a_failure(capsys):
    for error, status, said in ((KeyboardInterrupt(), 130, 'interrupted'),
                                (RuntimeError('it broke'), 1, 'it broke')):
        def fail(_, error=error):
            raise error

        assert report.run('bench_x', list, fail) == status
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ('', f'bench_x: {said}\n')


CARTPOLE = ('--env', 'CartPole-v1', '--seconds', '300')


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'words', 'part', 'count'), [
    ('bench_env', CARTPOLE, 'benchmarks.env_measure', 1),
    ('bench_train', (*CARTPOLE, '--num-actors', '1'), '__node:=', 2),
    ('bench_transport', (
        '--sizes', '8000', '--round-trips', '100', '--rounds', '1', '--trips', '100000'),
        'benchmarks.transport_peer', 2)])
def test_ctrl_c_leaves_no_process(launch, name, words, part, count):
    def workers():
        found = []
        for process in bench.family():
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                if any(part in word for word in process.cmdline()):
                    found.append(process)
        return found

    bench = launch('ros2', 'run', 'vdl_ros', name, *words)
    bench.wait_for(lambda: len(workers()) >= count and (
        name != 'bench_transport' or 'round 1' in bench.output), 'a measurement')
    bench.interrupt()
    assert bench.wait() == 130, bench.output
    lines = [line for line in bench.output.splitlines() if 'round 1 of' not in line]
    assert lines == [f'{name}: interrupted']
    bench.wait_for(lambda: not bench.family(), 'no process')
