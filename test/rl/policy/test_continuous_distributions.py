"""Continuous actions: divergences agree with integrals, and squashing does not change them."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from vdl_ros.rl.policy.distributions import (
    Categorical,
    DiagonalGaussian,
    SquashedGaussian,
    for_space,
)


@pytest.fixture
def parameters():
    """Return two sets of parameters of two dimensions, log-stds within the clamp, float64."""
    generator = torch.Generator().manual_seed(1)

    def draw():
        return torch.cat([torch.randn(4, 3, 2, generator=generator),
                          torch.rand(4, 3, 2, generator=generator) * 2 - 1.5], -1).double()
    return draw(), draw()


def normal(parameters):
    mean, log_std = parameters.chunk(2, -1)
    return reference.Normal(mean, log_std.exp())


def test_the_divergence_is_torchs(parameters):
    expected = reference.kl_divergence(*map(normal, parameters)).sum(-1)
    torch.testing.assert_close(DiagonalGaussian(2).kl(*parameters), expected)
    assert not torch.allclose(DiagonalGaussian(2).kl(*parameters[::-1]), expected)
    assert not DiagonalGaussian(2).kl(parameters[0], parameters[0]).any()


def test_the_divergence_is_its_integral(parameters):
    """KL(p || q) is the integral of p log(p / q), here summed on a grid of two dimensions."""
    family = DiagonalGaussian(2)
    axis = torch.linspace(-12.0, 12.0, 481, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    area = float(axis[1] - axis[0]) ** 2
    for p, q in zip(*(each.flatten(0, 1)[:4] for each in parameters), strict=True):
        log_p, log_q = (family.log_prob(each.expand(len(grid), 4), grid) for each in (p, q))
        assert float(log_p.exp().sum()) * area == pytest.approx(1.0, abs=1e-6)
        integral = float((log_p.exp() * (log_p - log_q)).sum()) * area
        assert float(family.kl(p, q)) == pytest.approx(integral, rel=1e-5)


@pytest.mark.parametrize(('log_std', 'used'), [(-50.0, -5.0), (50.0, 2.0)])
def test_the_divergence_is_of_deviations_within_bounds(log_std, used):
    given, clamped = torch.tensor([0.3, log_std]), torch.tensor([0.3, used])
    other = torch.tensor([-0.1, 0.2])
    family = DiagonalGaussian(1)
    assert family.kl(given, other) == family.kl(clamped, other)
    assert family.kl(other, given) == family.kl(other, clamped)


def test_the_divergence_of_logits_is_torchs():
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(5, 3, 4, generator=generator) * 2 for _ in range(2))
    torch.testing.assert_close(
        Categorical(4).kl(p, q + 3.0),
        reference.kl_divergence(reference.Categorical(logits=p), reference.Categorical(logits=q)))


BOXES = [([-1.0, 0.0], [1.0, 10.0]), ([-0.4, -0.1], [0.4, 0.3]), ([-7.7, 1e-3], [0.1, 2e-3])]


@pytest.mark.parametrize(('low', 'high'), BOXES)
def test_squashed_actions_are_within_the_range_and_fill_it(low, high):
    space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
    family = for_space(space, 'squashed')
    torch.manual_seed(0)
    wide = torch.tensor([0.0, 0.0, 2.0, 2.0]).expand(2000, 4)
    acted = family.to_environment(family.sample(wide).numpy())
    assert acted.dtype == space.dtype
    reach = space.high - space.low
    # Within what rounding of the middle and the reach leaves; environments clip.
    assert (acted >= space.low - 1e-6 * reach).all()
    assert (acted <= space.high + 1e-6 * reach).all()
    assert (acted.min(0) < space.low + 0.001 * reach).all()
    assert (acted.max(0) > space.high - 0.001 * reach).all()
    middle = family.to_environment(np.zeros((1, 2), np.float32))[0]
    np.testing.assert_allclose(middle, (space.low + space.high) / 2, rtol=1e-6)


@pytest.mark.parametrize(('low', 'high'), BOXES)
def test_ratios_of_densities_and_the_divergence_are_the_same_behind_tanh(parameters, low, high):
    low, high = np.array(low), np.array(high)
    family = SquashedGaussian(low, high)
    p, q = parameters
    behind = [reference.TransformedDistribution(normal(each), [
        reference.TanhTransform(),
        reference.AffineTransform(torch.from_numpy((high + low) / 2),
                                  torch.from_numpy((high - low) / 2))]) for each in (p, q)]
    torch.manual_seed(0)
    drawn = family.sample(p).clamp(-3.0, 3.0)
    acted = torch.from_numpy(family.to_environment(drawn.numpy()))
    expected = (behind[0].log_prob(acted) - behind[1].log_prob(acted)).sum(-1)
    found = family.log_prob(p, drawn) - family.log_prob(q, drawn)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(family.kl(p, q), DiagonalGaussian(2).kl(p, q))


def test_the_density_behind_tanh_is_the_one_that_its_draws_have():
    """The density of a = tanh(u) is that of u over 1 - a^2; counted in bins of draws."""
    family = SquashedGaussian(np.array([-1.0], np.float32), np.array([1.0], np.float32))
    parameters = torch.tensor([0.4, math.log(0.8)])
    torch.manual_seed(0)
    count = 100_000
    acted = family.to_environment(family.sample(parameters.expand(count, 2)).numpy())[:, 0]
    edges = np.linspace(-0.9, 0.95, 12)
    found = np.histogram(acted, edges)[0]
    for n, low, high in zip(found, edges[:-1], edges[1:], strict=True):
        grid = torch.linspace(low, high, 2001)
        density = (family.log_prob(parameters.expand(2001, 2), torch.atanh(grid)[:, None]).exp()
                   / (1 - grid.square()))
        p = float(torch.trapezoid(density, grid))
        assert abs(n - count * p) < 4 * math.sqrt(count * p * (1 - p))


def test_for_space_returns_the_requested_kind():
    box = spaces.Box(-2, 3, (3,), np.float32)
    assert type(for_space(box)) is DiagonalGaussian
    assert type(for_space(box, 'squashed')) is SquashedGaussian
    assert for_space(box, 'squashed').size == 6
    assert type(for_space(spaces.Discrete(3), 'squashed')) is Categorical


def test_squashing_needs_a_finite_range():
    box = spaces.Box(np.array([-1.0, -np.inf]), np.array([1.0, 1.0]), dtype=np.float64)
    with pytest.raises(ValueError, match=r"^action_distribution: 'squashed' is not allowed for "):
        for_space(box, 'squashed')
    assert isinstance(for_space(box), DiagonalGaussian)


def test_unsquashed_actions_are_passed_to_the_environment_unchanged():
    actions = np.array([[5.0, -9.0]], np.float32)
    assert DiagonalGaussian(2).to_environment(actions) is actions


@pytest.mark.parametrize(('mean', 'log_std'), [(0.0, 0.0), (1.5, -1.0), (-0.4, 0.6)])
def test_the_density_of_a_squashed_action_is_the_slope_of_its_distribution(mean, log_std):
    """The probability of an action up to y is that of a sample up to atanh(y)."""
    low, high = np.full(1, -1, np.float32), np.ones(1, np.float32)
    y = torch.linspace(-0.999, 0.999, 41, dtype=torch.float64)
    below, above = (reference.Normal(mean, math.exp(log_std)).cdf((y + step).atanh())
                    for step in (-1e-6, 1e-6))
    found = SquashedGaussian(low, high).squashed_log_prob(
        torch.tensor([mean, log_std]).double().expand(41, 2), y.atanh().unsqueeze(-1))
    torch.testing.assert_close(found.exp(), (above - below) / 2e-6, rtol=1e-4, atol=1e-6)


def test_the_density_of_a_squashed_action_of_two_parts_is_their_product():
    family, parts = (SquashedGaussian(*(np.full(size, each, np.float32) for each in (-1, 1)))
                     for size in (2, 1))
    parameters, actions = torch.tensor([0.3, -1.0, 0.2, -0.5]), torch.tensor([0.7, -2.0])
    expected = sum(parts.squashed_log_prob(parameters[i::2], actions[i:i + 1]) for i in (0, 1))
    torch.testing.assert_close(family.squashed_log_prob(parameters, actions), expected)


def test_the_density_of_a_squashed_action_is_finite_at_its_limits():
    found = SquashedGaussian(np.full(1, -1, np.float32), np.ones(1, np.float32))
    actions = torch.tensor([[-1e6], [-50.0], [50.0], [1e6]])
    assert torch.isfinite(found.squashed_log_prob(torch.zeros(4, 2), actions)).all()
