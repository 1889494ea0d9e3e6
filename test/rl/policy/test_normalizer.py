"""Normalizer: running mean and variance of all numbers, however they are split."""

import numpy as np
import pytest
import torch

from vdl_ros.rl.policy.networks import Normalizer

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
