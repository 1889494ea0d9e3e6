"""Command lines of benchmarks: bad input, and Ctrl-C."""

import contextlib
import importlib
import sys

import psutil
import pytest

BAD_INPUT = {
    'bench_cube': [
        (['--episodes', '0'], '--episodes: 0 is not allowed: 1 to 10000'),
        (['--checkpoint', '/nowhere.pt'], '/nowhere.pt: ')],
    'bench_exchange': [
        (['--learners', '1'], '--learners: 1 is not allowed: 2 to 64'),
        (['--periods', '1,3'], '--batches: 20 is not allowed: a multiple of --periods, 3')],
    'bench_lag': [
        (['--episodes', '0'], '--episodes: 0 is not allowed: 1 to 100000'),
        (['--delays', '0,x'], "--delays: '0,x' is not allowed: numbers from 0 to 10000"),
        (['--trained', 'naive,50'],
         "--trained: '50' is not allowed: some of naive, 40, 100, 200, aware")],
    'bench_intake': [
        (['--actors', '10,0'], "--actors: '10,0' is not allowed: numbers from 1 to 100000")],
    'bench_link': [
        (['--mbit', '0'], '--mbit: 0 is not allowed: 1 to 100000'),
        (['--seconds', 'nan'], '--seconds: nan is not allowed: 0.5 to 3600')],
    'bench_pose': [(['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000')],
    'bench_reach': [
        (['--targets', '0'], '--targets: 0 is not allowed: 1 to 10000'),
        (['--delays', '0,2000'], "--delays: '0,2000' is not allowed: numbers from 0 to 1000"),
        (['--checkpoint', '/nowhere.pt'], '/nowhere.pt: ')],
    'bench_policy': [(['--targets', '0'], '--targets: 0 is not allowed: 1 to 100000')],
    'bench_policy_files': [
        (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000'),
        (['--checkpoint', '/nowhere.pt'], '/nowhere.pt: ')],
    'bench_servo': [(['--targets', '0'], '--targets: 0 is not allowed: 1 to 100000')],
    'bench_twin': [
        (['--arms', '16,x'], "--arms: '16,x' is not allowed: numbers from 1 to 4096"),
        (['--pixel-arms', '0'], '--pixel-arms: 0 is not allowed: 1 to 4096'),
        (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000')],
    'bench_actor_learner': [
        (['--seconds', 'nan'], '--seconds: nan is not allowed: 0.2 to 3600'),
        (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000'),
        (['--num-envs', '0'], '--num-envs: 0 is not allowed: 1 to 1024'),
        (['--sizes', '8', '0'], '--sizes: 0 is not allowed: 1 to 67108864'),
        (['--sizes', '8', '8'], '--sizes: 8 alone is not allowed: at least two'),
        (['--step-ms', '1', '0'], '--step-ms: 0.0 is not allowed: 0.01 to 10000'),
        (['--env', 'CartPol-v1'], "env_id: no environment 'CartPol-v1' on this host; "),
        (['--output', '/nowhere/at/all.json'], '--output: /nowhere/at/all.json is not allowed: ')],
    'bench_env': [
        (['--env', 'CartPol-v1'], "--env: no environment 'CartPol-v1'"),
        (['--env', 'os:CartPole-v1'], "--env: no environment 'os:CartPole-v1'"),
        (['--env', 'CartPole-v1:84x84x4'], '--env: CartPole-v1:84x84x4 is not allowed: '),
        (['--env', 'dummy/OBS0-v0'], 'env_id: OBS0 is not allowed: 1 to '),
        (['--num-envs', '0'], '--num-envs: 0 is not allowed: 1 to 1024'),
        (['--seconds', 'nan'], '--seconds: nan is not allowed: 0.01 to 600'),
        (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000'),
        (['--output', '/nowhere/at/all.json'], '--output: /nowhere/at/all.json is not allowed: ')],
    'bench_scaling': [
        (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000'),
        (['--seconds', 'nan'], '--seconds: nan is not allowed: 0.5 to 3600'),
        (['--samplers', '2,4'], '--samplers: there is no 1, and speed-ups are over one'),
        (['--samplers', '1,x'], "--samplers: '1,x' is not allowed: numbers from 1 to 56"),
        (['--actors', '1,57'], "--actors: '1,57' is not allowed: numbers from 1 to 56"),
        (['--actors', '4'], '--actors: one number is too few for a law'),
        (['--learners', '2,4'], '--learners: there is no 1, and speed-ups are over one'),
        (['--learners', '1,20'], "--learners: '1,20' is not allowed: numbers from 1 to 19 with "
                                 'commas between, --actors-each 2'),
        (['--actors-each', '45'], "--learners: '1,2,4' is not allowed: numbers from 1 to 1 with "
                                  'commas between, --actors-each 45'),
        (['--actors-each', '0'], '--actors-each: 0 is not allowed: 1 to 56'),
        (['--learner-env', 'CartPol-v1'], "env_id: no environment 'CartPol-v1' on this host; "),
        (['--only', 'actors', '--picture', 'law.png'],
         '--picture: law.png is not allowed with --only actors: it shows samplers and actors'),
        (['--samples', '1000'],
         '--samples: 1000 is not allowed: a multiple of 800 from 800 to 8000'),
        (['--actor-env', 'CartPol-v1'], "env_id: no environment 'CartPol-v1' on this host; "),
        (['--output', '/nowhere/at/all.json'], '--output: /nowhere/at/all.json is not allowed: '),
        (['--picture', 'law.txt'],
         '--picture: law.txt is not allowed: a file that ends in one of '),
        (['--picture', '/nowhere/law.png'],
         '--picture: /nowhere/law.png is not allowed: there is no')],
    'bench_train': [
        (['--seconds', 'nan'], '--seconds: nan is not allowed: 0.5 to 3600'),
        (['--rounds', '0'], '--rounds: 0 is not allowed: 1 to 1000'),
        (['--num-actors', '257'], '--num-actors: 257 is not allowed: 1 to 256'),
        (['--num-envs', '0'], 'num_envs: 0 is not allowed: '),
        (['--batch-size', '9'], 'max_policy_lag: 4 is not allowed: '),
        (['--env', 'CartPol-v1'], "env_id: no environment 'CartPol-v1' on this host; "),
        (['--env', 'CartPole-v1', '--network', 'nature'], "network 'nature' needs images"),
        (['--set', 'discount'], "--set: 'discount' is not allowed: name:=value"),
        (['--set', 'discont:=0.9'], "--set: no such setting 'discont'; did you mean 'discount'?"),
        (['--set', 'discount:=2'], 'discount: 2.0 is not allowed: a number from 0 to 1'),
        (['--set', 'run_dir:=here'], '--set: run_dir is not allowed: the benchmark has its own'),
        (['--set', 'num_envs:=1'], '--set: num_envs is not allowed: the benchmark has its own'),
        (['--set', 'num_learners:=2'],
         '--set: num_learners is not allowed: the benchmark has its own'),
        (['--output', '/nowhere/at/all.json'], '--output: /nowhere/at/all.json is not allowed: ')],
    'bench_transport': [
        (['--ways', 'udp'], "--ways: 'udp' is not one of tcp, tcp-kept"),
        (['--clients', '0'], "--clients: '0' is not allowed: numbers from 1 to 16"),
        (['--sizes', '8000,x'], "--sizes: '8000,x' is not allowed: numbers from 1 to 64000000"),
        (['--rounds', '-1'], '--rounds: -1 is not allowed: 1 to 1000'),
        (['--output', '/nowhere/at/all.json'], '--output: /nowhere/at/all.json is not allowed: ')],
}


@pytest.mark.parametrize(('name', 'words', 'message'), [
    (name, *each) for name, rows in BAD_INPUT.items() for each in rows])
def test_bad_input_is_one_line_and_status_2(monkeypatch, capsys, name, words, message):
    monkeypatch.setattr(sys, 'argv', [name, *words])
    assert importlib.import_module(f'benchmarks.{name}').main() == 2
    captured = capsys.readouterr()
    assert captured.out == ''
    assert captured.err.startswith(f'{name}: {message}')
    assert captured.err.count('\n') == 1


CARTPOLE = ('--env', 'CartPole-v1', '--seconds', '300')


@pytest.mark.parametrize(('name', 'words', 'part', 'count'), [
    ('bench_actor_learner', (*CARTPOLE, '--only', 'table', '--inference', 'actor'),
     'vdl_ros.local_training', 1),
    ('bench_env', CARTPOLE, 'benchmarks.env.measure', 1),
    ('bench_train', (*CARTPOLE, '--num-actors', '1'), '__node:=', 2),
    ('bench_transport', ('--ways', 'tcp,tcp-kept,dds-events,dds-serialized', '--clients', '1',
                         '--sizes', '8000', '--rounds', '1', '--trips', '100000'),
     'benchmarks.transport.worker', 4)])
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
    working = workers()
    bench.interrupt()
    assert bench.wait() == 130, bench.output
    lines = [line for line in bench.output.splitlines() if 'round 1 of' not in line]
    assert lines == [f'{name}: interrupted']
    assert psutil.wait_procs(working, timeout=60.0)[1] == []
    assert bench.family() == []
