"""Torsos as in the papers, and the normalizer, however numbers are split."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from vdl_ros.rl.policy import networks
from vdl_ros.rl.policy.networks import (
    Normalizer,
    Smoothing,
    make_torso,
    orthogonal,
    random_shift,
)
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


@pytest.mark.parametrize('axis', [1, 2])
def test_images_are_shifted_by_whole_pixels_at_most_the_share_and_the_edge_is_repeated(axis):
    image = np.arange(2 * 20 * 40, dtype=np.int32).reshape(2, 20, 40)
    padded = np.pad(image, ((0, 0), (1, 1), (2, 2)), mode='edge')
    parts = {(row, column): padded[:, row:row + 20, column:column + 40]
             for row in range(3) for column in range(5)}
    batch = torch.from_numpy(image).expand(300, -1, -1, -1)
    if axis == 1:
        batch = batch.movedim(1, -1)
    found = random_shift(batch, 0.05, axis)
    assert (found.shape, found.dtype) == (batch.shape, batch.dtype)
    if axis == 1:
        found = found.movedim(-1, 1)
    seen = [place for each in found for place, part in parts.items() if np.array_equal(each, part)]
    assert len(seen) == 300
    assert set(seen) == parts.keys()


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


SHAPES = [(), (3,), (2, 3)]


def numbers(shape, count=50, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.1, 30.0, shape)
    return (rng.normal(size=(count, *shape)) * scale + 5 * scale).astype(np.float32)


def check(normalizer, seen, tolerance=1e-9):
    assert float(normalizer.count) == len(seen)
    exact = seen.astype(np.float64)
    np.testing.assert_allclose(normalizer.mean.numpy(), exact.mean(0), rtol=tolerance)
    np.testing.assert_allclose(normalizer.variance.numpy(), exact.var(0), rtol=tolerance)


@pytest.mark.parametrize('shape', SHAPES)
def test_any_split_gives_the_mean_and_variance_of_all(shape):
    for parts in ([50], [1, 49], [0, 20, 0, 30], [10] * 5, [1] * 50):
        seen, normalizer, start = numbers(shape), Normalizer(shape), 0
        for size in parts:
            normalizer.update(torch.from_numpy(seen[start:start + size]))
            start += size
            if start:
                check(normalizer, seen[:start])
        assert start == 50


def test_numbers_far_from_zero_keep_their_variance():
    seen = numbers((3,), 1000) / 100 + 1e5
    normalizer = Normalizer((3,))
    for part in np.split(seen, 10):
        normalizer.update(torch.from_numpy(part))
    np.testing.assert_allclose(
        normalizer.variance.numpy(), seen.astype(np.float64).var(0), rtol=1e-6)


@pytest.mark.parametrize('shape', SHAPES)
def test_normalized_numbers_have_mean_0_and_deviation_1_and_undo_restores_them(shape):
    seen, normalizer = torch.from_numpy(numbers(shape)), Normalizer(shape)
    normalizer.update(seen)
    found = normalizer(seen)
    assert found.dtype == torch.float32
    exact = seen.double().numpy()
    np.testing.assert_allclose(
        found.numpy(), (exact - exact.mean(0)) / exact.std(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(normalizer.undo(found), seen)


def test_it_only_clips_before_the_first_update():
    given = torch.linspace(-10.0, 10.0, 33)[:, None]
    normalizer = Normalizer((1,))
    normalizer.update(torch.zeros(0, 1))
    assert torch.equal(normalizer(given), given)
    assert torch.equal(normalizer.undo(given), given)
    assert normalizer(torch.tensor([10.5])).tolist() == [10.0]


def test_the_weights_of_large_images_are_those_of_pytorch_without_its_slow_decomposition(
        monkeypatch):
    torch.manual_seed(1)
    expected = nn.init.orthogonal_(torch.empty(8, 200), 2.0)
    monkeypatch.setattr(networks, '_LARGE', 1000)
    monkeypatch.setattr(torch.linalg, 'qr', pytest.fail)
    layer = nn.Linear(200, 8)
    torch.manual_seed(1)
    torch.testing.assert_close(orthogonal(layer, 2.0).weight, expected, atol=1e-5, rtol=0.0,
                               check_stride=False)
