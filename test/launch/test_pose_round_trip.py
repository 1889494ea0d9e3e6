"""The commands of docs/pose.md one after the other: capture, train, evaluate, estimate."""

import json
import subprocess

import pytest

from vdl_ros.msg import ArmPose
from vdl_ros.pose.labels import OUTPUTS
from vdl_ros.ros import qos


@pytest.fixture
def run_command():
    """Return what a command that must succeed prints."""
    def run(*command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return run


def test_what_is_captured_teaches_a_network_that_the_graph_can_use(
        launch, peer, run_command, tmp_path):
    for bag, split, frames in (('train', 'train', 300), ('test_basic', 'test', 100)):
        capture = launch(
            'ros2', 'launch', 'vdl_ros', 'capture.launch.py', f'output:={tmp_path / bag}',
            f'frames:={frames}', 'domain:=basic', f'split:={split}', 'seed:=3')
        assert capture.wait() == 0, capture.output

    model = tmp_path / 'run'
    said = run_command(
        'ros2', 'run', 'vdl_ros', 'train_pose', '--data', tmp_path / 'train', '--model', 'resnet',
        '--output', model, '--epochs', '10', '--batch', '16', '--threads', '2')
    assert 'epoch 10: joints' in said

    def evaluate(*arguments):
        return json.loads(run_command(
            'ros2', 'run', 'vdl_ros', 'evaluate_pose', '--data', tmp_path / 'test_basic',
            '--threads', '1', '--json', *arguments))

    found = evaluate('--model', model)
    scores = found['data']['test_basic']
    assert scores['frames'] == 100
    assert set(scores['accuracy_10deg']) == set(OUTPUTS)
    # Whoever guesses is off by 15 degrees and 90; the joints take longer than a test may.
    assert scores['mean_error']['camera_elevation_deg'] < 10.0
    assert scores['mean_error']['camera_azimuth_deg'] < 45.0
    shipped = evaluate()['data']['test_basic']
    assert shipped['joint_accuracy_10deg'] > 0.9

    launch('ros2', 'launch', 'vdl_ros', 'arm.launch.py', 'pose:=true', f'model:={model}',
           'view:=false', 'controller:=false')
    poses = peer.listen(ArmPose, 'arm/pose', qos.subscription('arm/pose'))
    peer.until(lambda: poses, 'a pose from the network just trained')
