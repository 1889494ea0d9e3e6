"""The estimator: flip averaging, blank pictures, and rejected inputs."""

import numpy as np
import pytest
import torch

from vdl_ros.pose.estimator import PoseEstimator, average_flipped
from vdl_ros.pose.networks import Raw, make_model
from vdl_ros.pose.outputs import MIRROR, encode

PLAIN = {'scale': [1.0] * 6, 'threshold': 10.0}
TRUTH = torch.tensor([[0.8, 0.4, 3.1, -0.5, 0.3, 1.2]])


def both(first, second, first_std=0.1, second_std=0.1):
    """Return the average of estimates of a picture and, unflipped, of its mirror image."""
    log_std = torch.tensor([[first_std] * 6, [second_std] * 6]).log()
    return average_flipped(Raw(encode(torch.cat([first, second * MIRROR])), log_std, None))


def test_equal_estimates_are_unchanged_by_the_average():
    values, std = both(TRUTH, TRUTH)
    assert values[0].tolist() == pytest.approx(TRUTH[0].tolist(), abs=1e-5)
    assert std[0, 1:].tolist() == pytest.approx([0.1] * 5, rel=1e-4)


def test_different_estimates_average_with_a_larger_std():
    off = torch.tensor([[0.02, 0.1, 0.2, 0.3, -0.1, 0.1]])
    values, std = both(TRUTH - off, TRUTH + off)
    # Azimuth passes from pi to -pi between the two.
    assert values[0].tolist() == pytest.approx(TRUTH[0].tolist(), abs=1e-5)
    expected = np.hypot(0.1, off[0, 1:].abs().numpy())
    assert std[0, 1:].tolist() == pytest.approx(expected.tolist(), rel=1e-3)


def test_the_average_weights_by_certainty():
    off = torch.full((1, 6), 0.1)
    values, _ = both(TRUTH, TRUTH + off, 0.1, 0.2)
    assert values[0, 3].item() == pytest.approx(TRUTH[0, 3].item() + 0.02, abs=1e-4)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return make_model('resnet').eval()


def test_a_flipped_picture_gives_the_mirrored_pose(network):
    picture = np.random.default_rng(0).integers(0, 256, (3, 128, 128, 3), np.uint8)
    estimator = PoseEstimator(network, 'resnet', PLAIN, {})
    seen = estimator.estimate(picture)
    mirrored = estimator.estimate(np.ascontiguousarray(picture[:, :, ::-1]))
    assert np.allclose(seen.values * MIRROR.numpy(), mirrored.values, atol=1e-3)
    assert np.allclose(seen.std, mirrored.std, rtol=1e-3)


def test_blank_pictures_are_neither_readable_nor_confident(network):
    estimator = PoseEstimator(network, 'resnet', {**PLAIN, 'threshold': 1e9}, {})
    pictures = np.zeros((3, 128, 128, 3), np.uint8)
    pictures[1] = 255
    pictures[2] = np.random.default_rng(0).integers(0, 256, (128, 128, 3))
    found = estimator.estimate(pictures)
    assert found.readable.tolist() == [False, False, True]
    assert found.confident.tolist() == [False, False, True]


@pytest.mark.parametrize('pictures', [
    np.zeros((1, 64, 128, 3), np.uint8), np.zeros((128, 128, 3), np.uint8),
    np.zeros((1, 128, 128, 3), np.float32)])
def test_pictures_of_another_shape_or_type_are_errors(network, pictures):
    with pytest.raises(ValueError, match='is not allowed: uint8'):
        PoseEstimator(network, 'resnet', PLAIN, {}).estimate(pictures)
