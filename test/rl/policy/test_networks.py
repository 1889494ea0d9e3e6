"""Torsos: layers as in the papers, independence of the batch, gradients."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from vdl_ros.rl.policy.networks import Smoothing, make_torso
from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.settings import NETWORKS, TrainConfig

# Filters, kernel, stride of each convolution, what is put out, for pictures [4, 84, 84].
DRAWN = {
    'impala': ([(16, 8, 4), (32, 4, 2)], 256),
    'nature': ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512),
    'resnet': ([(16, 3, 1)] * 5 + [(32, 3, 1)] * 10, 256),
    'universe': ([(32, 3, 2)] * 4, 32 * 6 * 6),
}


def pictures(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_a_torso_has_the_layers_of_its_paper_and_each_learns():
    assert DRAWN.keys() == set(NETWORKS) - {'mlp'}
    for network, expected in DRAWN.items():
        torso, features = make_torso(network, (4, 84, 84), 1)
        found = [(layer.out_channels, layer.kernel_size[0], layer.stride[0])
                 for layer in torso.modules() if isinstance(layer, nn.Conv2d)]
        assert (found, features) == expected, network
        outputs = torso(pictures(2, 4, 84, 84))
        assert outputs.shape == (2, features), network
        # So that an LSTM behind it is not saturated.
        assert outputs.square().mean().sqrt() < 5, network
        optimizer = torch.optim.SGD(torso.parameters(), 1e-3)
        # After a step also what is before a layer of zeros learns.
        for _ in range(2):
            optimizer.zero_grad()
            torso(pictures(2, 4, 84, 84)).square().sum().backward()
            optimizer.step()
        for name, parameter in torso.named_parameters():
            assert parameter.grad.abs().sum() > 0, (network, name)


def test_smoothing_is_a_gaussian_filter_of_each_channel():
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(2, 3, 12, 15)).astype(np.float32)
    found = Smoothing(1.5)(torch.from_numpy(images)).numpy()
    x, y = np.mgrid[-5:6, -5:6]
    weights = np.exp(-(x**2 + y**2) / (2 * 1.5**2))
    weights /= weights.sum()
    padded = np.pad(images, ((0, 0), (0, 0), (5, 5), (5, 5)), mode='edge')
    for row, column in ((0, 0), (6, 7), (11, 14)):
        window = padded[:, :, row:row + 11, column:column + 11]
        assert found[:, :, row, column] == pytest.approx((window * weights).sum((2, 3)), abs=1e-6)


def test_a_policy_without_smoothing_can_be_smoothed():
    space = spaces.Box(0, 255, (3, 42, 42), np.uint8)
    images = torch.from_numpy(np.random.default_rng(0).integers(
        0, 256, (2, *space.shape), np.uint8))
    plain, smooth = (make_policy(
        TrainConfig(network='universe', precision='float32', observation_smoothing=deviation),
        space, spaces.Discrete(2)) for deviation in (0.0, 1.0))
    smooth.load_state_dict(plain.state_dict())
    expected = plain(Smoothing(1.0)(images / 255)).values
    assert smooth(images).values.tolist() == pytest.approx(expected.tolist(), rel=1e-4)
    assert smooth(images).values.tolist() != pytest.approx(plain(images).values.tolist(), rel=1e-2)
