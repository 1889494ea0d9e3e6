"""What a user gets wrong: one line that names it, and an exit status."""

import threading

import pytest
import torch

from vdl_ros import local_training
from vdl_ros.common import opengl
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.nodes import evaluate, learner
from vdl_ros.rl.runs.checkpoint import FORMAT
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
# Of the learner; test_local_training.py has what it shares with serial mode.
BAD_SETTINGS = (
    (['algorithm:=dqn', 'env_id:=dummy/OBS1000000-v0', 'replay_size:=1000000000',
      'total_steps:=1000000'], 'replay_size: 1000000000 steps of '),
    (['relearn:=true', 'inference:=learner'],
     "inference: 'learner' is not allowed with relearn true: 'actor'"),
    (['resume:=nowhere'], 'resume: nowhere holds no readable config.yaml'),
    (['device:=cuda'], "device: 'cuda' is not allowed: PyTorch finds no CUDA device"),
    (['lerning_rate:=1.0'],
     "lerning_rate: no such parameter of learner; did you mean 'learning_rate'?"))


def refused(said, line):
    """Return whether a node has said this, and has no traceback."""
    return line in said and 'Traceback' not in said


def test_a_bad_setting_ends_the_learner(run_here, run, monkeypatch):
    # No GPU that is there is found.
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    for settings, line in BAD_SETTINGS:
        status, said = run_here(learner.main, f'run_dir:={run}', *settings)
        assert status == 2, (settings, said)
        assert refused(said, line), (settings, said)
    assert not run.path.exists()


def test_a_bad_argument_ends_the_launch_before_anything_starts(plan, tmp_path):
    def no_such(name, file, meant):
        return f'{name}: no such argument of {file}.launch.py; did you mean {meant!r}'

    for file, arguments, line in (
            ('train', ['totl_steps:=5'], no_such('totl_steps', 'train', 'total_steps')),
            ('train', ['discount:=1.5'], 'discount: 1.5 is not allowed: a number from 0 to 1'),
            ('train', ['relearn:=true'], 'relearn: true is not allowed without bag'),
            ('train', ['bag:=bag', 'num_learners:=2'],
             'relearn: true is not allowed with num_learners 2: one learner'),
            ('train', ['num_learners:=3'],
             'num_learners: 3 is not allowed: at most num_actors, 2'),
            ('train', ['learner_rank:=1'], 'learner_rank: 1 is not allowed: train.launch.py st'),
            ('train', ['num_learners:=2', 'group_address:=nowhere'],
             "group_address: 'nowhere' is not allowed: host:port"),
            ('train', ['inference:=learner', 'env_id:=CartPole-v1', 'adversarial_mode:=fgsm'],
             "adversarial_mode: 'fgsm' is not allowed with inference 'learner'"),
            ('cluster', ['hots:=x.csv'], no_such('hots', 'cluster', 'hosts')),
            ('capture', ['domain:=night'], "domain: 'night' is not allowed"),
            ('capture', ['arm:=robot'], "arm: 'robot' is not allowed"),
            ('capture', ['spilt:=test'], no_such('spilt', 'capture', 'split')),
            ('arm', ['arm:=robot'], "arm: 'robot' is not allowed: one of 'sim', 'real', 'none'"),
            ('arm', ['arn:=real'], no_such('arn', 'arm', 'arm')),
            ('arm', ['command_timeout:=soon'], "command_timeout: 'soon' is not allowed"),
            ('arm', ['policy:=nowhere', 'camera:=none'],
             "policy: 'nowhere' is not allowed: a checkpoint, an .onnx file"),
            ('arm', ['adversarial_mode:=fgsm'],
             "adversarial_mode: 'fgsm' is not allowed without feedback:=camera or pose:=true")):
        with pytest.raises(SettingError) as refusal:
            plan(f'{file}.launch.py', *arguments)
        assert line in str(refusal.value), (file, arguments)
        assert '\n' not in str(refusal.value), (file, arguments)


def test_without_opengl_the_arm_has_no_camera_and_who_needs_one_is_refused(plan, monkeypatch):
    def missing():
        raise opengl.OpenGLError(f'OpenGL: libEGL.so.1: no library; {opengl.REMEDY}')

    monkeypatch.setattr(opengl, 'check_drawing', missing)
    nodes, lines = plan('arm.launch.py')
    assert 'camera' not in nodes
    assert nodes.keys() >= {'sim_arm', 'arm_controller', 'viewer'}
    line, = lines
    assert 'starting without a camera: OpenGL: ' in line
    assert 'apt install libegl1 libgl1' in line
    for file, argument in (('arm', 'camera:=sim'), ('arm', 'pose:=true'),
                           ('arm', 'feedback:=camera'), ('capture', 'output:=data')):
        with pytest.raises(SettingError, match='apt install libegl1 libgl1'):
            plan(f'{file}.launch.py', argument)


def test_nodes_of_one_machine_keep_to_themselves_unless_told(plan, monkeypatch):
    for wanted, found in ((None, 'LOCALHOST'), ('SUBNET', 'SUBNET')):
        monkeypatch.delenv(RANGE, raising=False)
        if wanted:
            monkeypatch.setenv(RANGE, wanted)
        nodes, _ = plan('train.launch.py', 'env_id:=CartPole-v1')
        assert {nodes[each][RANGE] for each in ('learner', 'actor')} == {found}
    monkeypatch.delenv(RANGE)
    nodes, _ = plan('actors.launch.py')
    assert RANGE not in nodes['actor'], 'its learner may be on another host'


def test_a_bad_checkpoint_is_not_played(run_here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'garbage.pt').write_bytes(b'\x00garbage' * 100)
    torch.save({'format': FORMAT, 'learner': {}, 'progress': {'a': 1},
                'config': {'env_id': 'CartPole-v1'}}, tmp_path / 'other.pt')
    for name, line in (('missing.pt', 'no such file'),
                       ('garbage.pt', 'not a readable checkpoint'),
                       ('other.pt', 'not a policy for CartPole-v1')):
        status, said = run_here(evaluate.main, f'checkpoint:={name}')
        assert status == 2, name
        assert name in said
        assert refused(said, line), (name, said)


def test_a_folder_that_the_learner_cannot_use_stays_as_it_is(run_here, run):
    run.path.mkdir()
    notes = run.path / 'notes.txt'
    notes.write_text('mine')
    status, said = run_here(learner.main, f'run_dir:={run}')
    assert (status, refused(said, f'{run} is not empty')) == (2, True), said
    assert [*run.path.iterdir()] == [notes]
    notes.unlink()

    (run.path / 'config.yaml').write_text('env_id: CartPole-v1\n')
    run.checkpoint.write_bytes(b'corrupt')
    status, said = run_here(learner.main, f'resume:={run}')
    assert (status, refused(said, f'{run.checkpoint}: not a readable checkpoint')) == (2, True)
    assert run.checkpoint.read_bytes() == b'corrupt'

    other = run.path.parent / 'other'
    train = TrainConfig(total_steps=500)
    local_training.train(EnvConfig(env_id='vdl/Counter-v0', num_envs=4), train,
                         make_algorithm_config(train, {}), other, threading.Event())
    before = (other / 'checkpoint.pt').read_bytes()
    status, said = run_here(learner.main, f'resume:={other}', 'env_id:=CartPole-v1')
    assert (status, refused(said, "env_id 'vdl/Counter-v0' is not 'CartPole-v1'")) == (2, True)
    assert (other / 'checkpoint.pt').read_bytes() == before


def test_a_bad_setting_that_a_node_finds_ends_its_launch(launch, run, tmp_path):
    for command, line in (
            (['train.launch.py', f'run_dir:={run}', 'num_actors:=1', 'env_id:=CartPoll-v1'],
             "did you mean 'CartPole-v1'?"),
            (['cluster.launch.py', f'hosts:={tmp_path}/none.csv'], f'{tmp_path}/none.csv')):
        started = launch('ros2', 'launch', 'vdl_ros', *command)
        assert started.wait() == 1, started.output
        assert refused(started.output, line), started.output
        assert started.family() == [], command
