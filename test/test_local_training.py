"""Serial mode: it learns, does the same again with the same seed, and needs no ROS."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

from vdl_ros import local_training
from vdl_ros.common import children
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.recipes import config_file
from vdl_ros.rl.learning.trainer import Trainer
from vdl_ros.rl.runs.checkpoint import load_checkpoint, pack
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

SOURCE = Path(__file__).resolve().parents[1] / 'src'
# The modules of ROS cannot be imported, nor can the generated messages.
WITHOUT_ROS = """
import importlib.util, runpy, sys
for name in ('rclpy', 'std_msgs', 'rcl_interfaces', 'launch', 'ament_index_python'):
    sys.modules[name] = None
assert importlib.util.find_spec('vdl_ros.msg') is None
runpy.run_module('vdl_ros.local_training', run_name='__main__')
"""


# A signal while modules are imported.
SIGNALLED = """
import runpy, signal, sys
class Finder:
    def find_spec(name, *rest):
        if name == 'vdl_ros.common':
            signal.raise_signal(int(sys.argv[2]))
sys.meta_path.insert(0, Finder)
runpy.run_module(sys.argv[1], run_name='__main__')
"""


@pytest.mark.process
def test_ctrl_c_during_imports_leaves_no_traceback_and_a_crash_does():
    for module, number, status, line in (
            ('local_training', signal.SIGINT, 130, ''),
            ('multi_agent_training', signal.SIGSEGV, -11,
             'Fatal Python error: Segmentation fault')):
        found = subprocess.run(
            [sys.executable, '-c', SIGNALLED, f'vdl_ros.{module}', str(int(number))],
            capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout) == (status, '')
        assert found.stderr.partition('\n')[0] == line


@pytest.mark.process
def test_it_trains_without_ros(tmp_path):
    result = subprocess.run(
        [sys.executable, '-c', WITHOUT_ROS, '--run_dir', 'run', '--total_steps', '2000'],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {'PYTHONPATH': f'{SOURCE}:{os.environ.get("PYTHONPATH", "")}'})
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == f'ended by total_steps; written to {tmp_path}/run'
    files = {path.name.split('.')[0] for path in (tmp_path / 'run').iterdir()}
    assert files >= {'config', 'progress', 'checkpoint', 'summary', 'curve', 'events'}


@pytest.mark.slow
def test_cartpole_is_solved(tmp_path):
    assert local_training.main(['--run_dir', str(tmp_path / 'run')]) == 0
    summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
    assert summary['env_id'] == 'CartPole-v1'
    assert summary['ended_by'] == 'stop_at_return'
    assert summary['mean_return_100'] >= 475
    assert summary['agent_steps'] < 1_500_000
    assert summary['trajectories_lost'] == 0
    assert summary['policy_lag'] == {'mean': 0.0, 'max': 0}


def test_what_cannot_be_used_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / 'full').mkdir()
    (tmp_path / 'full' / 'thesis.tex').touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('signal.signal', lambda *_: None)
    for args, message in (
            ('--env_id CartPol-v1', "did you mean 'CartPole-v"),
            ('--max_policy_lag 1 --batch_size 2', 'max_in_flight: 1 is not allowed'),
            ('--algorithm dqn --env_id vdl/MixedCounter-v0',
             "algorithm: 'dqn' cannot act in MultiDiscrete([2 3]): Discrete from 0; for other"),
            ('--algorithm ppo --save_replay true',
             "save_replay: true is not allowed with algorithm 'ppo'"),
            ('--run_dir full', f'run_dir: {tmp_path}/full is not empty'),
            ('--config full', 'config: full: cannot be read'),
            ('--network nature', "network 'nature' needs images")):
        assert local_training.main(args.split()) == 2, args
        error = capsys.readouterr().err
        assert error.startswith('serial: '), args
        assert error.count('\n') == 1, args
        assert message in error, args


def test_a_run_stays_where_it_began_when_an_environment_changes_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = tmp_path / 'other'
    other.mkdir()
    monkeypatch.setitem(gymnasium.registry, 'test/Moving-v0', EnvSpec(
        'test/Moving-v0', lambda render_mode=None: os.chdir(other) or CartPoleEnv()))
    assert local_training.main([
        '--env_id', 'test/Moving-v0', '--total_steps', '100', '--run_dir', 'run']) == 0
    assert (tmp_path / 'run' / 'summary.json').is_file()
    assert not [*other.iterdir()]


def test_a_module_that_is_imported_holds_the_end_up_for_less_long_than_a_training(
        tmp_path, monkeypatch):
    found = []

    @contextlib.contextmanager
    def ending_within(seconds, *_):
        yield found.append(seconds)

    monkeypatch.setattr(local_training, 'ending_within', ending_within)
    monkeypatch.setattr(local_training, 'import_modules', lambda _: found.append('import'))
    monkeypatch.setattr(local_training, 'train', lambda *_, **more: found.append('train'))
    assert local_training.main(['--run_dir', str(tmp_path / 'run')]) == 0
    assert found == [8.0, 'import', 60.0, 'train']


def test_what_was_learned_is_saved_before_a_step_that_never_returns_ends_the_process(
        tmp_path, monkeypatch, capsys):
    steps, over = iter(range(1000)), threading.Event()

    class Hanging(CartPoleEnv):
        def step(self, action):
            if next(steps) == 500:
                signal.raise_signal(signal.SIGTERM)
                over.wait(300)
                raise ValueError
            return super().step(action)

    def end(line, status):
        found.append((load_checkpoint(tmp_path / 'run'), capsys.readouterr().out, line, status))
        over.set()

    found = []
    monkeypatch.setitem(gymnasium.registry, 'test/Hanging-v0', EnvSpec(
        'test/Hanging-v0', lambda render_mode=None: Hanging()))
    monkeypatch.setattr(children, 'faulthandler', Mock())
    monkeypatch.setattr(children, 'end_now', end)
    monkeypatch.setattr(local_training, 'SAVING_S', 0.0)
    local_training.main(['--env_id', 'test/Hanging-v0', '--num_envs', '1',
                         '--run_dir', str(tmp_path / 'run')])
    (checkpoint, out, line, status), = found
    assert 450 < checkpoint['learner']['agent_steps'] <= 500
    assert out.endswith(f'\ninterrupted; written to {tmp_path}/run\n')
    assert line.startswith('serial: ended 0 s after the signal to end, in the middle of step()')
    assert status == 1


def test_a_run_that_diverged_has_an_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, 'run', lambda trainer, stop: 'not finite')
    assert local_training.main(['--run_dir', str(tmp_path / 'run')]) == 1


def trained(folder, env_id='CartPole-v1', options=None, **config):
    """Train in this process; return the checkpoint."""
    train = TrainConfig(hidden_size=16, **config)
    local_training.train(
        EnvConfig(env_id=env_id, num_envs=4), train, make_algorithm_config(train, options or {}),
        folder, threading.Event())
    return load_checkpoint(folder / 'checkpoint.pt')


# So that all of them learn within a few thousand steps.
SMALL = {'replay_start': 500, 'replay_size': 2000, 'ppo_epochs': 2, 'reinforce_episodes': 4,
         'exploration_steps': 2000}


@pytest.mark.parametrize(('algorithm', 'lstm_size'), [
    ('impala', 4),
    *(pytest.param(name, size, marks=pytest.mark.slow) for name, size in (
        ('a3c', 0), ('ppo', 4), ('reinforce', 0), ('dqn', 4), ('sac', 0)))])
def test_the_same_seed_gives_the_same_run(tmp_path, algorithm, lstm_size):
    total_steps = 1000 if lstm_size else 2000
    first, second, other = (
        trained(tmp_path / str(number), total_steps=total_steps, seed=seed, algorithm=algorithm,
                lstm_size=lstm_size, options=SMALL) for number, seed in enumerate((3, 3, 4)))
    assert pack(first['learner']) == pack(second['learner']) != pack(other['learner'])
    for key in ('returns', 'episodes', 'received', 'lag'):
        assert first['progress'][key] == second['progress'][key]
    assert first['progress']['episodes'] > total_steps / 200
    assert first['progress']['returns'] != other['progress']['returns']


def test_a_run_starts_another_with_its_settings_and_weights(tmp_path, capsys):
    one = trained(tmp_path / 'one', 'vdl/Counter-v0', total_steps=500, seed=3)
    init = tmp_path / 'one' / 'checkpoint.pt'
    arguments = ['--config', str(tmp_path / 'one' / 'config.yaml'), '--init', str(init),
                 '--seed', '4']
    assert local_training.main(
        [*arguments, '--total_steps', '1', '--run_dir', str(tmp_path / 'two')]) == 0
    two = load_checkpoint(tmp_path / 'two' / 'checkpoint.pt')
    changed = {'seed': 4, 'total_steps': 1, 'init': str(init)}
    assert two['config'] == one['config'] | changed
    assert two['learner']['version'] == 1
    # One update changes them by little.
    first, second = (
        torch.cat([each.flatten() for each in found['learner']['policy'].values()])
        for found in (one, two))
    assert 0 < (first - second).abs().max() < first.abs().max() / 10
    assert local_training.main(
        [*arguments, '--hidden_size', '8', '--run_dir', str(tmp_path / 'three')]) == 2
    assert 'hidden_size: 16 there, 8 here' in capsys.readouterr().err
    assert not (tmp_path / 'three').exists()


def test_a_run_that_names_no_environment_has_the_settings_of_the_run_of_init(tmp_path, capsys):
    trained(tmp_path / 'one', 'vdl/Counter-v0', total_steps=500, seed=3)
    arguments = ['--init', str(tmp_path / 'one'), '--freeze', 'true', '--total_steps', '100',
                 '--adversarial_mode', 'random', '--run_dir', str(tmp_path / 'two')]
    assert local_training.main(arguments) == 0
    two = load_checkpoint(tmp_path / 'two' / 'checkpoint.pt')['config']
    assert (two['env_id'], two['hidden_size'], two['total_steps']) == ('vdl/Counter-v0', 16, 100)
    # A third run is not attacked, and learns.
    assert local_training.main(['--init', str(tmp_path / 'two' / 'checkpoint.pt'),
                                '--run_dir', str(tmp_path / 'three')]) == 0
    three = load_checkpoint(tmp_path / 'three' / 'checkpoint.pt')['config']
    assert (three['adversarial_mode'], three['freeze']) == ('none', False)
    # No robot is chosen by it, and what cannot be read is named.
    init = tmp_path / 'checkpoint.pt'
    init.touch()
    (tmp_path / 'config.yaml').write_text('env_id: robot/arm\nrobots: mine\n')
    assert config_file.settings_of_init({'init': str(init)}) == {}
    (tmp_path / 'config.yaml').write_text('[')
    assert local_training.main(['--init', str(init)]) == 2
    assert f'init: {tmp_path} holds no readable config.yaml' in capsys.readouterr().err


def test_a_resumed_run_does_not_begin_with_the_same_episodes(tmp_path, monkeypatch):
    seeds, make = [], factory.make
    monkeypatch.setattr(factory, 'make', lambda env, seed, **options: seeds.append(seed) or make(
        env, seed, **options))
    arguments = ['--total_steps', '100', '--run_dir', str(tmp_path / 'r')]
    assert local_training.main([*arguments, '--hidden_size', '4']) == 0
    for total_steps in ('1000', '2000'):
        assert local_training.main(
            ['--resume', str(tmp_path / 'r'), '--total_steps', total_steps]) == 0
    assert len(set(seeds)) == 3


def test_the_replay_is_saved_with_the_checkpoint_and_loaded_with_it(tmp_path, capsys):
    options = ['--algorithm', 'dqn', '--save_replay', 'true', '--run_dir', str(tmp_path / 'r'),
               '--stop_at_return', '1e9', '--num_envs', '1',
               '--replay_size', '2000', '--replay_start', '200']
    assert local_training.main([*options, '--total_steps', '600']) == 0
    replay, = (tmp_path / 'r').glob('replay-*.npz')
    steps = load_checkpoint(tmp_path / 'r')['learner']['agent_steps']
    assert replay.name == f'replay-{steps}.npz'
    again = ['--resume', str(tmp_path / 'r'), '--total_steps']
    summary = (tmp_path / 'r' / 'summary.json').read_text()
    capsys.readouterr()
    assert local_training.main([*again, '600']) == 2
    assert capsys.readouterr().err == (
        f'serial: total_steps: 600 is not allowed with resume: {tmp_path / "r"} has made {steps} '
        'agent steps and ended; a larger number goes on\n')
    assert (tmp_path / 'r' / 'summary.json').read_text() == summary
    assert local_training.main([*again, '900']) == 0
    later, = (tmp_path / 'r').glob('replay-*.npz')
    with np.load(later) as found:
        assert (found['weights'] > 0).sum() > steps, 'those of before are there'
    later.write_bytes(later.read_bytes()[:-100])
    capsys.readouterr()
    assert local_training.main([*again, '1200']) == 2
    line, = capsys.readouterr().err.splitlines()
    assert line.startswith(f'serial: {later}: not a readable replay: ')
