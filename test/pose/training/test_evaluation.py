"""Scores of estimates, their calibration, and the command that prints them."""

import json
import math

import numpy as np
import pytest
import torch

from vdl_ros.pose.estimator import Estimate
from vdl_ros.pose.model_file import save_model
from vdl_ros.pose.networks import make_model
from vdl_ros.pose.training.evaluation import calibrate, calibrated, score
from vdl_ros.tools import evaluate_pose

ONE = np.array([0.8, 0.5, 3.1, 0.0, -1.0, 2.0], np.float32)


def estimates(count, std=0.1, seed=0):
    """Return truth, and estimates whose errors have the standard deviations that they state."""
    random = np.random.default_rng(seed)
    truth = np.repeat(ONE[None], count, 0)
    stds = np.broadcast_to(std, (count, 6)).astype(np.float32)
    values = truth + (random.normal(size=(count, 6)) * stds).astype(np.float32)
    return Estimate(values, stds, *np.ones((2, count), bool)), truth


def test_angle_errors_wrap_around():
    off = np.zeros((4, 6), np.float32)
    off[0] = np.radians([0, 9, 9, 9, 9, 9])
    off[1] = np.radians([0, 11, -11, 11, -11, 11])
    off[2] = np.radians([0, 0, 360, 351, 0, 0])
    off[3, 0] = 0.09
    truth = np.repeat(ONE[None], 4, 0)
    found = score(Estimate(truth + off, np.full((4, 6), 0.1, np.float32),
                           np.array([True, False, True, True]), np.ones(4, bool)), truth)
    assert found.accuracy == {
        'camera_distance': 0.75, 'camera_elevation': 0.75, 'camera_azimuth': 0.75, 'base': 0.75,
        'shoulder': 0.75, 'elbow': 0.75}
    assert found.joint_accuracy == 0.75
    assert math.degrees(found.joint_error) == pytest.approx((3 * 9 + 3 * 11 + 9) / 12, abs=1e-3)
    assert found.error['camera_distance'] == pytest.approx(0.09 / 4, abs=1e-6)
    assert (found.confident, found.confident_accuracy) == (0.75, 1.0)
    printed = found.as_dict()
    assert printed['joint_accuracy_10deg'] == 0.75
    assert printed['mean_error']['base_deg'] == pytest.approx((9 + 11 + 9) / 4, abs=1e-3)


def test_standard_deviations_are_calibrated():
    estimate, truth = estimates(4000)
    wrong = estimate._replace(std=estimate.std * np.float32([1, 2, 0.5, 1, 1, 3]))
    calibration = calibrate(wrong, truth)
    np.testing.assert_allclose(calibration['scale'], [1, 0.5, 2, 1, 1, 1 / 3], rtol=0.06)
    again, truth = estimates(4000, seed=1)
    wrong = again._replace(std=again.std * np.float32([1, 2, 0.5, 1, 1, 3]))
    for share in score(calibrated(wrong, calibration), truth).within_std.values():
        assert share == pytest.approx(0.683, abs=0.04)


def test_the_threshold_separates_accurate_estimates():
    # Stated uncertainties from 1 to 30 degrees, and errors to match.
    std = np.radians(np.linspace(1, 30, 3000))[:, None]
    estimate, truth = estimates(3000, std)
    calibration = calibrate(estimate, truth)
    found = score(calibrated(estimate, calibration), truth)
    assert found.joint_accuracy < 0.7
    assert found.confident_accuracy >= 0.98
    assert 0.1 < found.confident < 0.5
    # Nothing to distrust: nearly all are confident.
    estimate, truth = estimates(3000, std / 20)
    found = score(calibrated(estimate, calibrate(estimate, truth)), truth)
    assert found.confident == pytest.approx(0.99, abs=0.005)


@pytest.mark.usefixtures('small_network')
def test_the_command_prints_attacks_plots_and_reports_errors(bags, tmp_path, capsys):
    torch.manual_seed(0)
    model = tmp_path / 'model.pt'
    save_model(model, 'resnet', make_model('resnet').state_dict(),
               {'scale': [1.0] * 6, 'threshold': 0.1}, {})
    picture = tmp_path / 'picture.png'
    data = ['--threads', '1', '--model', str(model), '--data', str(bags.write('one', 4)),
            str(bags.write('two', 3))]
    assert evaluate_pose.main([
        *data, '--json', '--picture', str(picture), '--adversarial_mode', 'fgsm',
        '--adversarial_epsilon', '0.003', '0.02']) == 0
    output, notes = capsys.readouterr()
    printed = json.loads(output)
    assert printed['architecture'] == 'resnet'
    assert {name: each['frames'] for name, each in printed['data'].items()} == {
        f'{name}{attack}': count for name, count in (('one', 4), ('two', 3))
        for attack in ('', ', fgsm 0.003', ', fgsm 0.02')}
    clean, small, large = (printed['data'][name]['mean_error'] for name in (
        'one', 'one, fgsm 0.003', 'one, fgsm 0.02'))
    # Less than the distance of two bytes: nothing changes, which is said.
    assert clean == small
    assert clean != large
    assert '1/255 = 0.0039' in notes
    assert 0.0 <= printed['data']['one']['joint_accuracy_10deg'] < 0.5
    assert picture.read_bytes()[:4] == b'\x89PNG'
    assert evaluate_pose.main([*data, '--architecture', 'alexnet']) == 2
    assert capsys.readouterr().err == (
        f'evaluate_pose: {model}: the architecture is resnet, not alexnet\n')
