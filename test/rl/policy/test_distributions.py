"""Action distributions agree with torch's and with their samples."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from vdl_ros.rl.policy.distributions import Categorical, DiagonalGaussian, for_space


@pytest.fixture
def logits():
    return torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(0)) * 3


@pytest.fixture
def gaussian_parameters():
    """Parameters of two dimensions; log-stds within the clamp."""
    generator = torch.Generator().manual_seed(1)
    return torch.cat([torch.randn(7, 3, 2, generator=generator),
                      torch.rand(7, 3, 2, generator=generator) * 3 - 2], -1)


def test_categorical_is_torchs(logits):
    ours, torchs = Categorical(5), reference.Categorical(logits=logits)
    actions = torchs.sample()
    torch.testing.assert_close(ours.log_prob(logits, actions), torchs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(logits), torchs.entropy())
    assert torch.equal(ours.mode(logits), torchs.mode)


def test_gaussian_is_torchs(gaussian_parameters):
    mean, log_std = gaussian_parameters.chunk(2, -1)
    torchs = reference.Independent(reference.Normal(mean, log_std.exp()), 1)
    ours, actions = DiagonalGaussian(2), torchs.sample()
    torch.testing.assert_close(
        ours.log_prob(gaussian_parameters, actions), torchs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(gaussian_parameters), torchs.entropy())
    assert torch.equal(ours.mode(gaussian_parameters), mean)


def test_categorical_samples_with_its_probabilities():
    torch.manual_seed(0)
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    count = 40_000
    # An offset of the logits must not matter.
    drawn = Categorical(4).sample((probabilities.log() + 12.0).expand(count, 4))
    assert drawn.dtype == torch.int64
    expected = probabilities.numpy() * count
    statistic = ((np.bincount(drawn.numpy(), minlength=4) - expected) ** 2 / expected).sum()
    assert statistic < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


def test_gaussian_samples_with_its_mean_and_deviation():
    torch.manual_seed(0)
    count = 40_000
    parameters = torch.tensor([1.0, -2.0, math.log(0.5), math.log(2.0)])
    drawn = DiagonalGaussian(2).sample(parameters.expand(count, 4))
    assert drawn.shape == (count, 2)
    deviation = torch.tensor([0.5, 2.0])
    error = (drawn.mean(0) - parameters[:2]) / deviation * math.sqrt(count)
    assert error.abs().max() < 3.5
    assert (drawn.std(0) / deviation - 1).abs().max() < 3.5 / math.sqrt(2 * count)
    assert abs(float(torch.corrcoef(drawn.T)[0, 1])) < 3.5 / math.sqrt(count)


@pytest.mark.parametrize(('log_std', 'used'), [(-50.0, -5.0), (50.0, 2.0)])
def test_deviations_stay_within_bounds(log_std, used):
    family = DiagonalGaussian(1)
    given, clamped = torch.tensor([0.0, log_std]), torch.tensor([0.0, used])
    action = torch.tensor([0.01])
    assert family.log_prob(given, action) == family.log_prob(clamped, action)
    assert family.entropy(given) == family.entropy(clamped)
    assert family.sample(given.expand(1000, 2)).std().log() == pytest.approx(used, abs=0.1)


def test_for_space_returns_the_family_of_the_space():
    assert for_space(spaces.Discrete(6)).size == 6
    assert isinstance(for_space(spaces.Discrete(6)), Categorical)
    box = for_space(spaces.Box(-1, 1, (3,), np.float64))
    assert isinstance(box, DiagonalGaussian)
    assert box.size == 6


@pytest.mark.parametrize('space', [
    spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2]), spaces.Box(0, 1, (2, 2)),
    spaces.Box(0, 5, (2,), np.int32), spaces.MultiBinary(3)], ids=str)
def test_other_spaces_are_refused_in_one_line(space):
    with pytest.raises(ValueError, match=r'^action space .* is not supported: [^\n]*$'):
        for_space(space)
