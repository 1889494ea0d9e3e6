"""Networks, losses, keypoints, augmentation, model files and the estimator."""

import math

import numpy as np
import pytest
import torch
from projection import project

from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation import render
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.common.tensor_file import TensorFileError, save_tensor_file
from vdl_ros.pose.dataset import PoseDataset
from vdl_ros.pose.estimator import PoseEstimator, average_flipped, flip, load_model, save_model
from vdl_ros.pose.networks import (
    MIRROR,
    POINTS,
    Raw,
    decode,
    encode,
    errors,
    make_model,
    project_points,
)
from vdl_ros.pose.training import pose_loss

CALIBRATION = {'scale': [1.0] * 6, 'threshold': 0.1}


@pytest.fixture(autouse=True)
def one_thread():
    # Two that wait for each other at every layer are slow where others use the machine.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def targets(count):
    generator = torch.Generator().manual_seed(3)
    low = torch.tensor([0.55, 0.0, -math.pi, -2.0, -1.3, -2.7])
    high = torch.tensor([1.0, 1.0, math.pi, 2.0, 1.5, 2.7])
    return low + (high - low) * torch.rand(count, 6, generator=generator)


def test_encoding_is_invertible_and_continuous():
    truth = targets(50)
    torch.testing.assert_close(decode(encode(truth)), truth)
    torch.testing.assert_close(decode(encode(truth) * 3.0)[:, 1:], truth[:, 1:])
    two = torch.tensor([[0.7, 0.1, math.radians(degrees), 0, 0, 0] for degrees in (359, 1)])
    assert (encode(two)[0] - encode(two)[1]).norm() < 0.04
    assert errors(two[:1], two[1:])[0, 2] == pytest.approx(math.radians(-2), abs=1e-5)


def test_the_loss_is_minimal_at_the_truth_and_the_true_std():
    truth, points = targets(20), torch.zeros(20, len(POINTS), 3)

    def of(estimate, log_std):
        return pose_loss(Raw(encode(estimate), log_std, points), truth, points)

    unsure = torch.full((20, 6), -1.0)
    assert float(of(truth, unsure).pose) < 1e-6
    off = truth + torch.tensor([0.0, 0.2, 0.2, 0.2, 0.2, 0.2])
    turned = truth + torch.tensor([0.0, 2.0, 2.0, 2.0, 2.0, 2.0]) * math.pi
    assert float(of(off, unsure).pose) > 0.05
    assert float(of(turned, unsure).pose) < 1e-4
    losses = {std: float(of(off, torch.full((20, 6), math.log(std))).sureness)
            for std in (0.05, 0.18, 0.6)}
    assert min(losses, key=losses.get) == 0.18
    # To be unsure does not make an error smaller: its gradient is the same.
    gradients = []
    for value in (-3.0, 1.0):
        encoded = encode(off).requires_grad_()
        pose_loss(Raw(encoded, torch.full((20, 6), value), points), truth, points).total.backward()
        gradients.append(encoded.grad)
    assert torch.equal(*gradients)


def test_map_targets_are_the_cells_around_a_point_inside_the_picture():
    truth = targets(1)
    points = torch.zeros(1, len(POINTS), 3)
    # Column 2.25 and row 1 of four: three quarters of it in one cell, one in the next.
    points[0, 0] = torch.tensor([(2.25 + 0.5) / 2.0 - 1.0, (1.0 + 0.5) / 2.0 - 1.0, 5.0])
    points[0, 1:, 0] = 1.3

    def of(maps):
        raw = Raw(encode(truth), torch.zeros(1, 6), points, maps)
        return float(pose_loss(raw, truth, points).maps)

    maps = torch.full((1, len(POINTS), 4, 4), -20.0)
    maps[0, 0, 1, 2], maps[0, 0, 1, 3] = math.log(0.75), math.log(0.25)
    best = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    maps[0, 1:] = torch.randn(len(POINTS) - 1, 4, 4)
    assert of(maps) == pytest.approx(best, abs=1e-5)
    assert of(maps.transpose(2, 3)) > 5.0


def test_keypoints_match_the_renderer_and_flips_the_mirrored_pose(data_sets, tmp_path):
    # Of two arms.
    longer = 'forearm_length=0.2 hand_length=0.13'
    data = PoseDataset([data_sets.write('some', 6),
                        data_sets.write('longer', 6, xacro_args=longer)])
    data.focal[:] = 0.5 / math.tan(0.375)
    found = project_points(data)
    scenes = [build_scene(), build_scene(GeometryConfig(xacro_args=longer).load())]
    for index in range(12):
        scene = scenes[index // 6]
        kinematics = Kinematics(scene.geometry)
        camera = [float(each) for each in data.targets[index, :3]]
        render.place_camera(scene.model, *camera, data.roll[index])
        poses = kinematics.poses(data.joints[index])
        points = np.array([(poses[frame] @ [*place, 1.0])[:3] for frame, place in POINTS])
        seen = project(scene, points, 128, 128)
        np.testing.assert_allclose((found[index, :, :2] + 1.0) * 64 - 0.5, seen, atol=1e-2)
    data = PoseDataset([tmp_path / 'some'])
    data.roll[:] = 0.0
    points = torch.from_numpy(project_points(data))
    chosen = torch.tensor([True, False, True, True, False, True])
    pictures, data.targets, moved = flip(data.pictures(range(6)), data.targets, points, chosen)
    assert torch.equal(pictures[0], data.pictures([0])[0].flip(1))
    assert torch.equal(pictures[1], data.pictures([1])[0])
    data.joints[chosen.numpy(), 0] *= -1.0
    torch.testing.assert_close(moved, torch.from_numpy(project_points(data)),
                               atol=1e-4, rtol=0)


def test_a_model_file_restores_the_network_or_is_an_error_with_the_reason(tmp_path):
    torch.manual_seed(1)
    model = make_model('resnet').eval()
    path, state = tmp_path / 'model.pt', model.state_dict()
    save_model(path, 'resnet', state, CALIBRATION, {'seed': 4})
    assert path.stat().st_size < 8e6
    again, found = load_model(path)
    pictures = torch.rand(2, 3, 128, 128)
    with torch.no_grad():
        torch.testing.assert_close(again(pictures).encoded, model(pictures).encoded,
                                   atol=3e-3, rtol=0)
    assert found['origin'] == {'seed': 4}
    assert PoseEstimator.load(tmp_path).name == 'resnet'

    def refused(reason, expected=''):
        with pytest.raises(TensorFileError) as raised:
            load_model(path, expected)
        assert reason in str(raised.value)
        assert str(path) in str(raised.value)
        assert '\n' not in str(raised.value)

    refused('the architecture is resnet, not alexnet', 'alexnet')
    save_model(path, 'transformer', state, CALIBRATION, {})
    refused("architecture 'transformer' is not one of resnet, alexnet")
    save_model(path, 'alexnet', state, CALIBRATION, {})
    refused('not the weights of this alexnet')
    save_model(path, 'resnet', state, {'scale': [1.0], 'threshold': 0.1}, {})
    refused('not the weights of this resnet: calibration')
    save_tensor_file(path, {'policy': torch.zeros(3)})
    refused('not a pose model of this program')


class Sure(torch.nn.Module):
    """A network for which all angles are 0, also in the flipped picture."""

    def forward(self, pictures):
        count = len(pictures)
        encoded = torch.tensor([1.0] + 5 * [0.0, 1.0]).expand(count, -1)
        return Raw(encoded, torch.full((count, 6), -5.0), torch.zeros(count, len(POINTS), 3))


def test_pictures_without_an_arm_are_neither_readable_nor_confident():
    estimator = PoseEstimator(Sure(), 'resnet', **CALIBRATION)
    random = np.random.default_rng(0)
    pictures = np.stack([
        random.integers(0, 256, (128, 128, 3)), np.zeros((128, 128, 3)),
        np.full((128, 128, 3), 255), np.full((128, 128, 3), 90),
        np.where(random.random((128, 128, 3)) < 0.1, 120, 255)]).astype(np.uint8)
    estimate = estimator.estimate(pictures)
    assert estimate.confident.tolist() == estimate.readable.tolist() == [True] + 4 * [False]


def both(first, second, second_std=0.1):
    """Return the average of estimates of a picture and, unflipped, of its mirror image."""
    log_std = torch.tensor([[0.1] * 6, [second_std] * 6]).log()
    values, std = average_flipped(Raw(encode(torch.cat([first, second * MIRROR])), log_std, None))
    return values[0].tolist(), std[0].tolist()


def test_estimates_of_a_picture_and_its_mirror_image_are_averaged_by_certainty():
    truth = torch.tensor([[0.8, 0.4, 3.1, -0.5, 0.3, 1.2]])
    # Different ones have a larger std; azimuth passes from pi to -pi between the two.
    off = torch.tensor([[0.02, 0.1, 0.2, 0.3, -0.1, 0.1]])
    values, std = both(truth - off, truth + off)
    assert values == pytest.approx(truth[0].tolist(), abs=1e-5)
    expected = np.hypot(0.1, off[0, 1:].abs().numpy()).tolist()
    assert std[1:] == pytest.approx(expected, rel=1e-3)
    values, _ = both(truth, truth + 0.1, second_std=0.2)
    assert values[3] == pytest.approx(truth[0, 3].item() + 0.02, abs=1e-4)
