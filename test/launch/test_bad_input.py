"""What a user gets wrong: one line that names it, and an exit status."""

import os
import pickle
import threading

import pytest
import torch

from vdl_ros import local_training
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.nodes import evaluate, learner
from vdl_ros.rl.algorithm_config import make_algorithm_config
from vdl_ros.rl.runs.checkpoint import FORMAT
from vdl_ros.rl.train_config import TrainConfig

BAD_SETTINGS = {
    'unknown environment': (['env_id:=CartPoll-v1'], "did you mean 'CartPole-v1'?"),
    'unknown algorithm': (['algorithm:=impalla'], "algorithm: 'impalla' is not allowed: "
                                                  "one of 'impala', 'a3c', 'ppo', 'reinforce', "
                                                  "'dqn', 'sac', 'bc'; did you mean 'impala'?"),
    'setting of another algorithm': (
        ['algorithm:=dqn', 'ppo_clip:=0.1'],
        "ppo_clip: 0.1 is of algorithm 'ppo', and algorithm is 'dqn'"),
    'algorithm and space': (
        ['algorithm:=dqn', 'env_id:=vdl/Reach1D-v0'], "algorithm: 'dqn' cannot act in Box("),
    'algorithm and several actions': (
        ['algorithm:=dqn', 'env_id:=vdl/MixedCounter-v0'],
        "algorithm: 'dqn' cannot act in MultiDiscrete([2 3]): Discrete from 0; for other spaces "
        'one of impala, a3c, ppo, reinforce'),
    'two settings of an algorithm': (
        ['algorithm:=dqn', 'n_step:=21'], 'n_step: 21 is not allowed: at most unroll_length, 20'),
    'replay and memory': (
        ['algorithm:=dqn', 'env_id:=dummy/OBS1000000-v0', 'replay_size:=1000000000',
         'total_steps:=1000000'],
        'replay_size: 1000000000 steps of '),
    'out of range': (['discount:=1.5'], 'discount: 1.5 is not allowed: a number from 0 to 1'),
    'not a number': (['total_steps:=many'], "total_steps: 'many' is not allowed"),
    'contradiction': (['batch_size:=8'], 'max_policy_lag: 4 is not allowed: at least batch_size'),
    'a bag and several learners': (
        ['relearn:=true', 'num_learners:=2', 'group_address:=127.0.0.1:1'],
        'relearn: true is not allowed with num_learners 2: one learner'),
    'a bag of observations': (
        ['relearn:=true', 'inference:=learner'],
        "inference: 'learner' is not allowed with relearn true: 'actor'"),
    'network and space': (['network:=nature'], "network 'nature' needs images"),
    'nothing to resume': (['resume:=nowhere'], 'resume: nowhere holds no readable config.yaml'),
    'no actors': (['num_actors:=0'], 'num_actors: 0 is not allowed'),
    'no GPU': (['device:=cuda'], "device: 'cuda' is not allowed: PyTorch finds no CUDA device"),
    'unknown parameter': (['lerning_rate:=1.0'], 'lerning_rate: no such parameter of learner; '
                                                 "did you mean 'learning_rate'?"),
}


@pytest.mark.parametrize('name', BAD_SETTINGS)
def test_a_bad_setting_ends_the_learner(run_here, run, monkeypatch, name):
    # No GPU that is there is found.
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    settings, line = BAD_SETTINGS[name]
    status, said = run_here(learner.main, f'run_dir:={run}', *settings)
    assert status == 2
    assert line in said
    assert 'Traceback' not in said


@pytest.mark.parametrize(('argument', 'line'), [
    ('totl_steps:=5',
     "totl_steps: no such argument of train.launch.py; did you mean 'total_steps'?"),
    ('discount:=1.5', 'discount: 1.5 is not allowed: a number from 0 to 1'),
    ('relearn:=true', 'relearn: true is not allowed without bag: the bag to learn from'),
    # The learner finds it out.
    ('env_id:=CartPoll-v1', "did you mean 'CartPole-v1'?"),
])
def test_a_bad_argument_ends_the_launch(launch, run, argument, line):
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}', argument)
    assert train.wait() == 1, train.output
    assert line in train.output
    assert 'Traceback' not in train.output
    assert train.family() == []


def test_a_folder_with_another_run_is_not_written_over(run_here, run):
    run.path.mkdir()
    (run.path / 'notes.txt').write_text('mine')
    status, said = run_here(learner.main, f'run_dir:={run}')
    assert status == 2
    assert f'{run} is not empty' in said
    assert [path.name for path in run.path.iterdir()] == ['notes.txt']


class Malicious:
    def __reduce__(self):
        return os.system, ('touch was_run',)


@pytest.fixture
def checkpoints(tmp_path):
    """Return bad checkpoints by name, with what must be said of each."""
    (tmp_path / 'garbage.pt').write_bytes(b'\x00garbage' * 100)
    (tmp_path / 'empty.pt').write_bytes(b'')
    (tmp_path / 'pickle.pt').write_bytes(pickle.dumps(Malicious()))
    torch.save({'format': FORMAT, 'config': Malicious(), 'learner': {}, 'progress': {}},
               tmp_path / 'malicious.pt')
    torch.save({'format': FORMAT, 'learner': {}, 'progress': {'a': 1},
                'config': {'env_id': 'CartPole-v1'}}, tmp_path / 'other.pt')
    return tmp_path


@pytest.mark.parametrize(('name', 'line'), [
    ('missing.pt', 'no such file'),
    ('garbage.pt', 'garbage.pt: '),
    ('empty.pt', 'not a readable checkpoint'),
    ('pickle.pt', 'not a readable checkpoint'),
    ('malicious.pt', 'refused'),
    ('other.pt', 'not a policy for CartPole-v1'),
])
def test_a_bad_checkpoint_is_not_played(run_here, checkpoints, monkeypatch, name, line):
    monkeypatch.chdir(checkpoints)
    status, said = run_here(evaluate.main, f'checkpoint:={name}')
    assert status == 2
    assert line in said
    assert name in said
    assert 'Traceback' not in said
    assert not (checkpoints / 'was_run').exists()


def test_a_corrupt_checkpoint_is_not_resumed(run_here, run):
    run.path.mkdir()
    run.checkpoint.write_bytes(b'corrupt')
    (run.path / 'config.yaml').write_text('env_id: CartPole-v1\n')
    status, said = run_here(learner.main, f'resume:={run}')
    assert status == 2
    assert f'{run.checkpoint}: not a readable checkpoint' in said
    assert 'Traceback' not in said
    assert run.checkpoint.read_bytes() == b'corrupt'


def test_a_checkpoint_of_another_environment_is_not_resumed(run_here, run):
    train = TrainConfig(total_steps=500)
    local_training.train(EnvConfig(env_id='vdl/Counter-v0', num_envs=4), train,
                         make_algorithm_config(train, {}), run.path, threading.Event())
    before = run.checkpoint.read_bytes()
    status, said = run_here(learner.main, f'resume:={run}', 'env_id:=CartPole-v1')
    assert status == 2
    assert "env_id 'vdl/Counter-v0' is not 'CartPole-v1'" in said
    assert run.checkpoint.read_bytes() == before
