"""Distributions of actions: densities, entropies, divergences and samples are those of torch."""

import itertools
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from vdl_ros.rl.policy.distributions import (
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
    make_distribution,
)

COUNT = 40_000


@pytest.fixture
def parameters():
    """Two sets of parameters of two dimensions, log-stds within the clamp, float64."""
    return [torch.cat([torch.randn(4, 3, 2), torch.rand(4, 3, 2) * 2 - 1.5], -1).double()
            for _ in range(2)]


def normal(parameters):
    mean, log_std = parameters.chunk(2, -1)
    return reference.Normal(mean, log_std.exp())


def test_categorical_is_torchs():
    family, (p, q) = Categorical(5), torch.randn(2, 7, 3, 5) * 3
    torchs, others = (reference.Categorical(logits=each) for each in (p, q))
    actions = torchs.sample()
    torch.testing.assert_close(family.log_prob(p, actions), torchs.log_prob(actions))
    torch.testing.assert_close(family.entropy(p), torchs.entropy())
    # An offset of the logits does not matter.
    torch.testing.assert_close(
        family.kl(p, q + 3.0), reference.kl_divergence(torchs, others))
    assert torch.equal(family.mode(p), torchs.mode)
    probabilities = torch.tensor([0.5, 0.3, 0.13, 0.05, 0.02])
    drawn = family.sample((probabilities.log() + 12.0).expand(COUNT, 5))
    assert drawn.dtype == torch.int64
    expected = probabilities.numpy() * COUNT
    statistic = ((np.bincount(drawn.numpy(), minlength=5) - expected) ** 2 / expected).sum()
    assert statistic < 18.5  # chi-square, 4 degrees of freedom, p = 0.001


def test_gaussian_is_torchs(parameters):
    family, (p, q) = DiagonalGaussian(2), parameters
    torchs = reference.Independent(normal(p), 1)
    actions = torchs.sample()
    torch.testing.assert_close(family.log_prob(p, actions), torchs.log_prob(actions))
    torch.testing.assert_close(family.entropy(p), torchs.entropy())
    assert torch.equal(family.mode(p), p[..., :2])
    expected = reference.kl_divergence(normal(p), normal(q)).sum(-1)
    torch.testing.assert_close(family.kl(p, q), expected)
    assert not torch.allclose(family.kl(q, p), expected)
    assert not family.kl(p, p).any()
    actions = actions.numpy()
    assert family.to_environment(actions) is actions


def test_gaussian_samples_with_its_mean_and_deviation():
    parameters = torch.tensor([1.0, -2.0, math.log(0.5), math.log(2.0)])
    drawn = DiagonalGaussian(2).sample(parameters.expand(COUNT, 4))
    assert drawn.shape == (COUNT, 2)
    deviation = torch.tensor([0.5, 2.0])
    error = (drawn.mean(0) - parameters[:2]) / deviation * math.sqrt(COUNT)
    assert error.abs().max() < 3.5
    assert (drawn.std(0) / deviation - 1).abs().max() < 3.5 / math.sqrt(2 * COUNT)
    assert abs(float(torch.corrcoef(drawn.T)[0, 1])) < 3.5 / math.sqrt(COUNT)


def test_deviations_stay_within_bounds():
    family, other = DiagonalGaussian(1), torch.tensor([-0.1, 0.2])
    for log_std, used in ((-50.0, -5.0), (50.0, 2.0)):
        given, clamped = torch.tensor([0.3, log_std]), torch.tensor([0.3, used])
        action = torch.tensor([0.31])
        assert family.log_prob(given, action) == family.log_prob(clamped, action)
        assert family.entropy(given) == family.entropy(clamped)
        assert family.kl(given, other) == family.kl(clamped, other)
        assert family.kl(other, given) == family.kl(other, clamped)
        assert family.sample(given.expand(1000, 2)).std().log() == pytest.approx(used, abs=0.1)


# Parts of the same size, of different sizes, with one that has no choice; one part.
SIZES = [(3, 3), (2, 4, 3), (1, 5, 2), (6,)]


def joint(parameters, sizes):
    """Return the probability of each joint action, by the definition: one part after the other."""
    found = {}
    for actions in itertools.product(*map(range, sizes)):
        found[actions], start = 1.0, 0
        for action, size in zip(actions, sizes, strict=True):
            weights = [math.exp(float(each)) for each in parameters[start:start + size]]
            found[actions] *= weights[action] / sum(weights)
            start += size
    return found


@pytest.mark.parametrize('sizes', SIZES, ids=str)
def test_parts_have_the_probabilities_of_joint_actions_and_samples_too(sizes):
    family = MultiCategorical(sizes)
    assert family.size == family.num_inputs == sum(sizes)
    p, q = (torch.randn(2, 3, sum(sizes)) * 2 for _ in range(2))
    actions = list(joint(p[0, 0], sizes))
    log_probs = family.log_prob(
        p.expand(len(actions), 2, 3, -1),
        torch.tensor(actions)[:, None, None].expand(-1, 2, 3, -1))
    entropy, divergence, best = family.entropy(p), family.kl(p, q), family.mode(p)
    for at in np.ndindex(2, 3):
        wanted, others = joint(p[at], sizes), joint(q[at], sizes)
        assert sum(wanted.values()) == pytest.approx(1.0)
        np.testing.assert_allclose(
            log_probs[(slice(None), *at)].exp(), [wanted[each] for each in actions], rtol=1e-4)
        assert float(entropy[at]) == pytest.approx(
            -sum(each * math.log(each) for each in wanted.values()), rel=1e-4, abs=1e-6)
        assert float(divergence[at]) == pytest.approx(
            sum(each * math.log(each / others[name]) for name, each in wanted.items()), rel=1e-4,
            abs=1e-6)
        assert tuple(best[at].tolist()) == max(wanted, key=wanted.get)
    parameters = torch.randn(sum(sizes))
    drawn = family.sample(parameters.expand(COUNT, -1))
    assert drawn.shape == (COUNT, len(sizes))
    assert drawn.dtype == torch.int64
    found, numbers = np.unique(drawn.numpy(), axis=0, return_counts=True)
    wanted = joint(parameters, sizes)
    expected = np.array([wanted[tuple(each)] for each in found.tolist()]) * COUNT
    statistic = ((numbers - expected) ** 2 / expected).sum()
    assert statistic < 52.6  # chi-square, at most 23 degrees of freedom, p = 0.0004
    assert expected.sum() > 0.999 * COUNT


BOXES = [([-1.0, 0.0], [1.0, 10.0]), ([-0.4, -0.1], [0.4, 0.3]), ([-7.7, 1e-3], [0.1, 2e-3])]


def test_squashed_actions_are_within_the_range_and_fill_it():
    for low, high in BOXES:
        space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        family = make_distribution(space, 'squashed')
        wide = torch.tensor([0.0, 0.0, 2.0, 2.0]).expand(2000, 4)
        acted = family.to_environment(family.sample(wide).numpy())
        assert acted.dtype == space.dtype
        # Within what rounding of the middle and the reach leaves; environments clip.
        share = (acted - space.low) / (space.high - space.low)
        assert (share.min(0) > -1e-6).all(), space
        assert (share.max(0) < 1 + 1e-6).all(), space
        assert (share.min(0) < 0.001).all(), space
        assert (share.max(0) > 0.999).all(), space
        middle = family.to_environment(np.zeros((1, 2), np.float32))[0]
        np.testing.assert_allclose(middle, (space.low + space.high) / 2, rtol=1e-6)


def test_the_density_of_a_squashed_action_is_the_slope_of_its_distribution():
    """The probability of an action up to y is that of a sample up to atanh(y)."""
    family, two = (SquashedGaussian(*(np.full(size, each, np.float32) for each in (-1, 1)))
                   for size in (1, 2))
    y = torch.linspace(-0.999, 0.999, 41, dtype=torch.float64)
    for mean, log_std in ((0.0, 0.0), (1.5, -1.0), (-0.4, 0.6)):
        below, above = (reference.Normal(mean, math.exp(log_std)).cdf((y + step).atanh())
                        for step in (-1e-6, 1e-6))
        found = family.squashed_log_prob(
            torch.tensor([mean, log_std]).double().expand(41, 2), y.atanh().unsqueeze(-1))
        torch.testing.assert_close(found.exp(), (above - below) / 2e-6, rtol=1e-4, atol=1e-6)
    # Of two parts it is their product.
    given, actions = torch.tensor([0.3, -1.0, 0.2, -0.5]), torch.tensor([0.7, -2.0])
    expected = sum(family.squashed_log_prob(given[i::2], actions[i:i + 1]) for i in (0, 1))
    torch.testing.assert_close(two.squashed_log_prob(given, actions), expected)
    at_limits = torch.tensor([[-1e6], [-50.0], [50.0], [1e6]])
    assert torch.isfinite(family.squashed_log_prob(torch.zeros(4, 2), at_limits)).all()


def test_spaces_without_a_distribution_are_refused_in_one_line():
    for space in (
            spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2], start=[0, 1]),
            spaces.MultiDiscrete([[2, 2]]), spaces.Box(0, 1, (2, 2)),
            spaces.Box(0, 5, (2,), np.int32), spaces.MultiBinary(3)):
        with pytest.raises(ValueError, match=r'^action space .* is not supported: [^\n]*$'):
            make_distribution(space)
    endless = spaces.Box(np.array([-1.0, -np.inf]), np.array([1.0, 1.0]), dtype=np.float64)
    assert isinstance(make_distribution(endless), DiagonalGaussian)
