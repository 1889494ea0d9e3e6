"""The commands of docs/pose.md in turn: capture, train, evaluate, estimate."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from vdl_ros.pose.estimator import load_model, save_model
from vdl_ros.pose.networks import OUTPUTS, make_model

SHIPPED = Path(__file__).resolve().parents[2] / 'models' / 'pose_resnet.pt'


@pytest.fixture
def run_command():
    """Return what a command that must succeed prints."""
    def run(*command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return run


@pytest.fixture
def headless(tmp_path):
    """Return a model file: the shipped network with a new random last layer."""
    model, _ = load_model(SHIPPED)
    torch.manual_seed(0)
    model.head.load_state_dict(make_model('resnet').head.state_dict())
    path = tmp_path / 'headless.pt'
    save_model(path, 'resnet', model.state_dict(), {'scale': [0.1] * 6, 'threshold': 1.0}, {})
    return path


@pytest.mark.slow
def test_a_network_trained_on_a_capture_runs_in_the_graph(
        launch, peer, run_command, headless, tmp_path):
    for bag, split, frames in (('train', 'train', 64), ('test_basic', 'test', 20)):
        capture = launch.file('capture', f'output:={tmp_path / bag}', f'frames:={frames}',
                              'domain:=basic', f'split:={split}', 'seed:=3')
        assert capture.wait() == 0, capture.output

    def evaluate(*arguments):
        return json.loads(run_command(
            'ros2', 'run', 'vdl_ros', 'evaluate_pose', '--data', tmp_path / 'test_basic',
            '--threads', '1', '--json', *arguments))['data']['test_basic']

    before = evaluate('--model', headless)['mean_error']
    assert before['camera_elevation_deg'] > 30.0
    assert before['camera_azimuth_deg'] > 30.0

    # Twenty-four steps; from random weights it would take minutes.
    model = tmp_path / 'run'
    output = run_command(
        'ros2', 'run', 'vdl_ros', 'train_pose', '--data', tmp_path / 'train', '--init', headless,
        '--output', model, '--epochs', '4', '--batch', '10', '--lr', '0.02', '--threads', '2')
    assert 'epoch 4: joints' in output
    found = evaluate('--model', model)
    assert found['frames'] == 20
    assert set(found['accuracy_10deg']) == set(OUTPUTS)
    for name in ('camera_elevation_deg', 'camera_azimuth_deg'):
        assert found['mean_error'][name] < 0.7 * before[name]
    assert evaluate()['joint_accuracy_10deg'] > 0.9, 'the shipped model'

    launch.file('arm', 'pose:=true', f'model:={model}', 'view:=false', 'controller:=false')
    poses = peer.listen('arm/pose')
    peer.until(lambda: poses, 'a pose from the network just trained')
