"""Action distributions agree with torch's and with their samples."""

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
    for_space,
)


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
def test_parts_have_the_probabilities_of_joint_actions(sizes):
    torch.manual_seed(0)
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


@pytest.mark.parametrize('sizes', SIZES, ids=str)
def test_parts_are_sampled_with_the_probabilities_of_joint_actions(sizes):
    torch.manual_seed(0)
    family, parameters, count = MultiCategorical(sizes), torch.randn(sum(sizes)), 40_000
    drawn = family.sample(parameters.expand(count, -1))
    assert drawn.shape == (count, len(sizes))
    assert drawn.dtype == torch.int64
    found, numbers = np.unique(drawn.numpy(), axis=0, return_counts=True)
    wanted = joint(parameters, sizes)
    expected = np.array([wanted[tuple(each)] for each in found.tolist()]) * count
    statistic = ((numbers - expected) ** 2 / expected).sum()
    assert statistic < 52.6  # chi-square, at most 23 degrees of freedom, p = 0.0004
    assert expected.sum() > 0.999 * count


def test_gradients_of_parts_are_those_of_torchs_families():
    """Padding of shorter parts has no part in them."""
    torch.manual_seed(0)
    sizes, parameters = (2, 4, 3), torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    others = torch.randn(5, 9, dtype=torch.float64)
    actions = MultiCategorical(sizes).sample(parameters.detach())

    def by_torch(what):
        p, q = ([reference.Categorical(logits=each) for each in logits.split(sizes, -1)]
                for logits in (parameters, others))
        return {'log_prob': sum(each.log_prob(chosen) for each, chosen in zip(
                    p, actions.unbind(-1), strict=True)),
                'entropy': sum(each.entropy() for each in p),
                'kl': sum(map(reference.kl_divergence, p, q))}[what]

    for what, more in (('log_prob', actions), ('entropy', None), ('kl', others)):
        ours = getattr(MultiCategorical(sizes), what)(
            parameters, *([] if more is None else [more]))
        torch.testing.assert_close(ours, by_torch(what))
        torch.testing.assert_close(
            *(torch.autograd.grad(each.square().sum(), parameters)[0]
              for each in (ours, by_torch(what))))


def test_parts_are_one_hot_inputs_of_a_network():
    family = MultiCategorical((2, 3))
    found = family.to_network(torch.tensor([[0, 2], [1, 0]]))
    assert found.tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
    assert found.dtype == torch.float32


def test_for_space_returns_the_family_of_the_space():
    assert for_space(spaces.Discrete(6)).size == 6
    assert isinstance(for_space(spaces.Discrete(6)), Categorical)
    parts = for_space(spaces.MultiDiscrete([2, 3]))
    assert isinstance(parts, MultiCategorical)
    assert parts.size == 5
    box = for_space(spaces.Box(-1, 1, (3,), np.float64))
    assert isinstance(box, DiagonalGaussian)
    assert box.size == 6


@pytest.mark.parametrize('space', [
    spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2], start=[0, 1]),
    spaces.MultiDiscrete([[2, 2]]), spaces.Box(0, 1, (2, 2)), spaces.Box(0, 5, (2,), np.int32),
    spaces.MultiBinary(3)], ids=str)
def test_other_spaces_are_refused_in_one_line(space):
    with pytest.raises(ValueError, match=r'^action space .* is not supported: [^\n]*$'):
        for_space(space)
