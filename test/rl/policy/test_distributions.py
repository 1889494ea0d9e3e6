"""Distributions of actions: densities, entropies, divergences and samples are those of torch."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from vdl_ros.rl.policy.distributions import (
    Boltzmann,
    DiagonalGaussian,
    EpsilonGreedy,
    MultiCategorical,
    make_distribution,
)
from vdl_ros.rl.policy.numpy_policy import make_numpy_policy
from vdl_ros.rl.settings import TrainConfig

COUNT = 40_000
UNIT = spaces.Box(-1, 1, (2,))
SQUASHED = TrainConfig(action_distribution='squashed')


@pytest.fixture
def parameters():
    """Two sets of parameters of two dimensions, log-stds within the clamp, float64."""
    return [torch.cat([torch.randn(4, 3, 2), torch.rand(4, 3, 2) * 2 - 1.5], -1).double()
            for _ in range(2)]


def normal(parameters):
    mean, log_std = parameters.chunk(2, -1)
    return reference.Normal(mean, log_std.exp())


def follow(drawn, probabilities):
    """Return whether counts of the drawn numbers are within four deviations of the expected."""
    expected = len(drawn) * probabilities
    error = (torch.bincount(drawn, minlength=len(probabilities)) - expected).abs()
    return bool((error <= 4 * (expected * (1 - probabilities)).sqrt() + 1e-3).all())


# Parts of the same size, of different sizes, with one that has no choice; one part.
@pytest.mark.parametrize('sizes', [(3, 3), (2, 4, 3), (1, 5, 2), (6,)], ids=str)
def test_parts_are_independent_categoricals_of_torch(sizes):
    family = MultiCategorical(sizes)
    p, q = torch.randn(2, 7, 3, sum(sizes)) * 3
    torchs, others = ([reference.Categorical(logits=each) for each in torch.split(x, sizes, -1)]
                      for x in (p, q))

    def total(values):
        return torch.stack(list(values)).sum(0)

    actions = [each.sample() for each in torchs]
    torch.testing.assert_close(family.log_prob(p, torch.stack(actions, -1)), total(
        each.log_prob(action) for each, action in zip(torchs, actions, strict=True)))
    torch.testing.assert_close(family.entropy(p), total(each.entropy() for each in torchs))
    # An offset of the logits does not matter.
    torch.testing.assert_close(
        family.kl(p, q + 3.0), total(map(reference.kl_divergence, torchs, others)))
    assert torch.equal(family.mode(p), torch.stack([each.mode for each in torchs], -1))
    drawn = family.sample(p[0, 0].expand(COUNT, -1))
    assert drawn.dtype == torch.int64
    for column, each in zip(drawn.T, torchs, strict=True):
        assert follow(column, each.probs[0, 0])


VALUES = torch.tensor([0.3, -1.0, 2.0, 1.9])


def greedy(values, epsilon):
    """Return the distribution: epsilon shared by all, the rest for the best."""
    probs = torch.full_like(values, epsilon / len(values))
    probs[values.argmax()] += 1 - epsilon
    return reference.Categorical(probs)


def boltzmann(values, temperature):
    return reference.Categorical(logits=values / temperature)


def given(exploration, values=VALUES):
    return torch.cat([values, torch.tensor([exploration])])


@pytest.mark.parametrize(('family', 'definition', 'explorations'), [
    (EpsilonGreedy(4), greedy, (0.0, 0.1, 0.7, 1.0)), (Boltzmann(4), boltzmann, (0.2, 1.0, 7.0))])
def test_exploration_has_the_probabilities_of_its_definition(family, definition, explorations):
    for exploration in explorations:
        expected, parameters = definition(VALUES, exploration), given(exploration)
        assert follow(family.sample(parameters.expand(COUNT, 5)), expected.probs), exploration
        found = family.log_prob(parameters.expand(4, 5), torch.arange(4)).exp()
        torch.testing.assert_close(found, expected.probs, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            family.entropy(parameters), expected.entropy(), rtol=1e-4, atol=1e-5)
        assert family.mode(parameters) == 2, 'the best, however much is explored'
    others = torch.tensor([1.0, 0.5, -0.2, 0.1])
    expected = reference.kl_divergence(definition(VALUES, 0.4), definition(others, 0.8))
    torch.testing.assert_close(family.kl(given(0.4), given(0.8, others)), expected)
    large = given(0.5, VALUES * 1e4)
    assert torch.isfinite(family.entropy(large))
    assert family.log_prob(large, torch.tensor(2)) > -0.5


def test_actions_with_probability_0_add_nothing_to_the_divergence():
    sure, sometimes = given(0.0), given(0.4)
    assert float(EpsilonGreedy(4).kl(sure, sure)) == 0.0
    assert float(EpsilonGreedy(4).kl(sure, sometimes)) == pytest.approx(-np.log(1 - 0.4 * 3 / 4))
    assert float(EpsilonGreedy(4).kl(sometimes, sure)) == np.inf


def test_a_temperature_of_0_is_greedy():
    parameters = given(0.0).expand(50, 5)
    assert Boltzmann(4).sample(parameters).tolist() == [2] * 50
    assert not Boltzmann(4).log_prob(parameters, torch.full((50,), 2)).any()
    assert not Boltzmann(4).entropy(parameters).any()


def test_gaussian_is_torchs(parameters):
    family, (p, q) = make_distribution(UNIT), parameters
    torchs = reference.Independent(normal(p), 1)
    actions = torchs.sample()
    torch.testing.assert_close(family.log_prob(p, actions), torchs.log_prob(actions))
    torch.testing.assert_close(family.entropy(p), torchs.entropy())
    assert torch.equal(family.mode(p), p[..., :2])
    expected = reference.kl_divergence(normal(p), normal(q)).sum(-1)
    torch.testing.assert_close(family.kl(p, q), expected)
    assert not torch.allclose(family.kl(q, p), expected)
    assert not family.kl(p, p).any()


def test_deviations_stay_within_bounds():
    family = make_distribution(spaces.Box(-1, 1, (1,)))
    other = torch.tensor([-0.1, 0.2])
    for log_std, used in ((-50.0, -5.0), (50.0, 2.0)):
        given, clamped = torch.tensor([0.3, log_std]), torch.tensor([0.3, used])
        action = torch.tensor([0.31])
        assert family.log_prob(given, action) == family.log_prob(clamped, action)
        assert family.entropy(given) == family.entropy(clamped)
        assert family.kl(given, other) == family.kl(clamped, other)
        assert family.kl(other, given) == family.kl(other, clamped)
        assert family.sample(given.expand(1000, 2)).std().log() == pytest.approx(used, abs=0.1)


def test_actions_are_scaled_by_the_finite_bounds_of_each_component():
    low = np.array([-1.0, 0.0, -np.inf, -np.inf, 2.0])
    high = np.array([1.0, 512.0, 5.0, np.inf, 2.0])
    actions = np.array([[-1] * 5, [0] * 5, [1] * 5], np.float32)
    raw = actions.tolist()
    scaled = [[-1, 0, -1, -1, -1], [0, 256, 0, 0, 0], [1, 512, 1, 1, 1]]
    for config, wanted in ((TrainConfig(), scaled), (TrainConfig(scale_actions=False), raw)):
        for dtype in (np.float16, np.float32, np.float64):
            space = spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
            for family in (make_distribution(space, config),
                           make_numpy_policy(config, UNIT, space).distribution):
                found = family.to_environment(actions)
                assert (found.tolist(), found.dtype) == (wanted, dtype)
                assert family.from_environment(found).tolist() == raw
                assert family.unscaled == ([2, 3] if wanted is scaled else [0, 1, 2, 3, 4])


BOXES = [([-1.0, 0.0], [1.0, 10.0]), ([-0.4, -0.1], [0.4, 0.3]), ([-7.7, 1e-3], [0.1, 2e-3])]


def test_squashed_actions_are_within_the_range_and_fill_it():
    for low, high in BOXES:
        space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        family = make_distribution(space, SQUASHED)
        wide = torch.tensor([0.0, 0.0, 2.0, 2.0]).expand(2000, 4)
        acted = family.to_environment(family.sample(wide).numpy())
        assert acted.dtype == space.dtype
        # Within what rounding of the middle and the reach leaves; environments clip.
        share = (acted - space.low) / (space.high - space.low)
        assert (share.min(0) > -1e-6).all(), space
        assert (share.max(0) < 1 + 1e-6).all(), space
        assert (share.min(0) < 0.001).all(), space
        assert (share.max(0) > 0.999).all(), space
        assert abs(np.corrcoef(share.T)[0, 1]) < 0.1, 'components are independent'
        own = np.array([[-1.0, 0.5]], np.float32)
        back = family.from_environment(family.to_environment(own))
        np.testing.assert_allclose(back, own, rtol=1e-3)
        assert np.isfinite(family.from_environment(space.high)).all()
        middle = family.to_environment(np.zeros((1, 2), np.float32))[0]
        np.testing.assert_allclose(middle, (space.low + space.high) / 2, rtol=1e-6)


def test_the_density_of_a_squashed_action_is_the_slope_of_its_distribution():
    """The probability of an action up to y is that of a sample up to atanh(y)."""
    family, two = (make_distribution(spaces.Box(-1, 1, (size,)), SQUASHED) for size in (1, 2))
    y = torch.linspace(-0.999, 0.999, 41, dtype=torch.float64)
    for mean, log_std in ((0.0, 0.0), (1.5, -1.0), (-0.4, 0.6)):
        below, above = (reference.Normal(mean, math.exp(log_std)).cdf((y + step).atanh())
                        for step in (-1e-6, 1e-6))
        found = family.squashed_log_prob(
            torch.tensor([mean, log_std]).double().expand(41, 2), y.atanh().unsqueeze(-1))
        torch.testing.assert_close(found.exp(), (above - below) / 2e-6, rtol=1e-4, atol=1e-6)
        # The entropy is the mean of minus its logarithm.
        given = torch.tensor([mean, log_std])
        drawn = family.sample(given.expand(COUNT, 2))
        assert float(family.entropy(given)) == pytest.approx(
            -float(family.squashed_log_prob(given, drawn).mean()), abs=0.05)
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
