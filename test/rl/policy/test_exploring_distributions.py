"""Distributions of action values: probabilities of epsilon-greedy and Boltzmann."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from vdl_ros.rl.policy.distributions import Boltzmann, EpsilonGreedy, for_values

VALUES = torch.tensor([0.3, -1.0, 2.0, 1.9])


def greedy(values, epsilon):
    """Return the probabilities: epsilon shared by all, the rest for the best."""
    probs = [epsilon / len(values)] * len(values)
    probs[int(values.argmax())] += 1 - epsilon
    return torch.tensor(probs)


def boltzmann(values, temperature):
    odds = [np.exp(value / temperature) for value in values.tolist()]
    return torch.tensor([each / sum(odds) for each in odds], dtype=torch.float32)


CASES = [(EpsilonGreedy, greedy, 0.0), (EpsilonGreedy, greedy, 0.1), (EpsilonGreedy, greedy, 0.7),
         (EpsilonGreedy, greedy, 1.0), (Boltzmann, boltzmann, 0.2), (Boltzmann, boltzmann, 1.0),
         (Boltzmann, boltzmann, 7.0)]


def given(exploration, values=VALUES):
    return torch.cat([values, torch.tensor([exploration])])


@pytest.mark.parametrize(('family', 'probabilities', 'exploration'), CASES)
def test_actions_are_sampled_with_their_probabilities(family, probabilities, exploration):
    torch.manual_seed(0)
    count, expected = 40_000, probabilities(VALUES, exploration)
    drawn = family(4).sample(given(exploration).expand(count, 5))
    assert drawn.dtype == torch.int64
    assert drawn.shape == (count,)
    counts = torch.bincount(drawn, minlength=4)
    bound = 4 * (count * expected * (1 - expected)).sqrt()
    assert ((counts - count * expected).abs() <= bound + 1e-3).all()


@pytest.mark.parametrize(('family', 'probabilities', 'exploration'), CASES)
def test_log_probabilities_and_entropy_are_those(family, probabilities, exploration):
    own, expected = family(4), probabilities(VALUES, exploration)
    found = own.log_prob(given(exploration).expand(4, 5), torch.arange(4))
    torch.testing.assert_close(found.exp(), expected)
    torch.testing.assert_close(found, expected.log(), rtol=1e-5, atol=1e-5)
    entropy = -sum(p * np.log(p) for p in expected.tolist() if p)
    assert float(own.entropy(given(exploration))) == pytest.approx(entropy, abs=1e-5)


@pytest.mark.parametrize('family', [EpsilonGreedy, Boltzmann])
def test_the_most_likely_action_is_the_best_however_much_it_explores(family):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(7, 3, 4, generator=generator)
    for exploration in (0.01, 1.0):
        parameters = torch.cat([values, torch.full((7, 3, 1), exploration)], -1)
        assert torch.equal(family(4).mode(parameters), values.argmax(-1))


@pytest.mark.parametrize(('family', 'probabilities'), [
    (EpsilonGreedy, greedy), (Boltzmann, boltzmann)])
def test_the_divergence_is_that_of_the_probabilities(family, probabilities):
    others = torch.tensor([1.0, 0.5, -0.2, 0.1])
    found = family(4).kl(given(0.4), given(0.8, others))
    expected = reference.kl_divergence(
        reference.Categorical(probabilities(VALUES, 0.4)),
        reference.Categorical(probabilities(others, 0.8)))
    torch.testing.assert_close(found, expected)
    assert float(expected) > 0.1
    torch.testing.assert_close(family(4).kl(given(0.4), given(0.4)), torch.tensor(0.0))


def test_actions_with_probability_0_add_nothing_to_the_divergence():
    sure, sometimes = given(0.0), given(0.4)
    assert float(EpsilonGreedy(4).kl(sure, sure)) == 0.0
    assert float(EpsilonGreedy(4).kl(sure, sometimes)) == pytest.approx(-np.log(1 - 0.4 * 3 / 4))
    assert float(EpsilonGreedy(4).kl(sometimes, sure)) == np.inf


def test_each_row_has_its_own_exploration():
    epsilons = torch.tensor([[0.0], [0.5], [1.0]])
    parameters = torch.cat([VALUES.expand(3, 4), epsilons], -1)
    expected = torch.stack([greedy(VALUES, float(each)) for each in epsilons])
    for action in range(4):
        torch.testing.assert_close(
            EpsilonGreedy(4).log_prob(parameters, torch.full((3,), action)).exp(),
            expected[:, action])


def test_a_temperature_of_0_is_greedy():
    own = Boltzmann(4)
    for temperature in (0.0, 1e-9, 1e-6):
        parameters = given(temperature).expand(50, 5)
        assert own.sample(parameters).tolist() == [2] * 50
        assert own.log_prob(parameters, torch.full((50,), 2)).tolist() == [0.0] * 50
        assert own.entropy(parameters).tolist() == [0.0] * 50


def test_large_values_stay_finite():
    parameters = given(0.5, VALUES * 1e4)
    for family in (EpsilonGreedy, Boltzmann):
        assert torch.isfinite(family(4).entropy(parameters))
        assert family(4).log_prob(parameters, torch.tensor(2)) > -0.5


def test_for_values_returns_the_family_of_the_exploration():
    assert type(for_values(spaces.Discrete(4), 'epsilon')) is EpsilonGreedy
    assert type(for_values(spaces.Discrete(4), 'boltzmann')) is Boltzmann
    assert for_values(spaces.Discrete(4), 'epsilon').size == 5


@pytest.mark.parametrize('space', [
    spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2]), spaces.Box(0, 1, (2,))], ids=str)
def test_spaces_that_are_not_discrete_are_rejected(space):
    with pytest.raises(ValueError, match=r"^algorithm: 'dqn' cannot act in [^\n]*: Discrete from "
                                         '0; for other spaces one of impala, a3c, ppo, reinf'):
        for_values(space, 'epsilon')


def test_actions_are_passed_to_the_environment_unchanged():
    actions = np.array([0, 3, 2])
    assert EpsilonGreedy(4).to_environment(actions) is actions
