"""What a user gets wrong: one line that names it, and an exit status."""

from types import SimpleNamespace

import pytest
import torch
from launch import LaunchContext

from vdl_ros.common import opengl
from vdl_ros.common.settings import SettingError
from vdl_ros.nodes import evaluate, learner
from vdl_ros.ros import launch_nodes

RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'


def test_a_bad_setting_ends_a_node_and_leaves_folders_as_they_are(refused, run, monkeypatch):
    # No GPU that is there is found.
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    full = run.path.parent / 'full'
    full.mkdir()
    (full / 'notes.txt').touch()
    # test_local_training.py has what it shares with local training.
    for settings, line in (
            (['algorithm:=dqn', 'env_id:=dummy/OBS1000000-v0', 'replay_size:=1000000000',
              'total_steps:=1000000'], 'replay_size: 1000000000 steps of '),
            (['relearn:=true', 'inference:=learner'],
             "inference: 'learner' is not allowed with relearn true: 'actor'"),
            (['resume:=nowhere'], '/nowhere holds no readable config.yaml'),
            (['device:=cuda'], "device: 'cuda' is not allowed: PyTorch finds no CUDA device"),
            (['lerning_rate:=1.0'],
             "lerning_rate: no such parameter of learner; did you mean 'learning_rate'?")):
        assert line in refused(learner.main, f'run_dir:={run}', *settings)
    assert not run.path.exists()
    assert f'{full} is not empty' in refused(learner.main, f'run_dir:={full}')
    assert [each.name for each in full.iterdir()] == ['notes.txt']
    assert 'missing.pt: no such file' in refused(evaluate.main, 'checkpoint:=missing.pt')


def test_a_bad_argument_ends_the_launch_before_anything_starts(plan, monkeypatch):
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
    monkeypatch.setenv('ROS_DOMAIN_ID', '232')
    with pytest.raises(ValueError, match='^ROS_DOMAIN_ID is 232; allowed: a whole number from 0'):
        plan('actors.launch.py')


def test_an_evaluation_that_crashes_fails_its_launch(plan, monkeypatch):
    handlers = []
    monkeypatch.setattr(
        launch_nodes, 'watched', lambda _, on_exit=launch_nodes.end_all, **options: (
            handlers.append(on_exit) or []))
    plan('evaluate.launch.py')
    context = LaunchContext()
    # 130 after a Ctrl-C.
    for code, context.is_shutdown in ((-11, False), (130, True)):
        event = SimpleNamespace(returncode=code, process_name='evaluate-1', env={})
        with pytest.raises(RuntimeError, match=f'evaluate-1 ended with status {code}'):
            handlers[0](event, context)


def test_the_actors_of_each_launch_have_names_of_their_own(plan, monkeypatch):
    made, node = [], launch_nodes.node
    monkeypatch.setattr(launch_nodes, 'node', lambda *words, name, actor_id, **more: (
        made.append((name, actor_id)) or node(*words, name=name, actor_id=actor_id, **more)))
    for _ in range(2):
        plan('actors.launch.py')
    for names in zip(*made, strict=True):
        assert len(set(names)) == 4, names


def test_who_trains_on_a_robot_has_a_black_box_unless_told(plan):
    robot = ('train.launch.py', 'env_id:=robot/owi535_sim')
    assert 'black_box' in plan(*robot)[0]
    assert 'black_box' not in plan(*robot, 'black_box:=none')[0]


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


def test_a_bad_setting_that_a_node_finds_ends_its_launch(launch, run):
    started = launch.file('train', f'run_dir:={run}', 'num_actors:=1', 'env_id:=CartPoll-v1')
    assert started.wait() == 1, started.output
    assert "did you mean 'CartPole-v1'?" in started.output
    assert 'Traceback' not in started.output
    assert started.family() == []
