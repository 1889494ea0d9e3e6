"""Exploration: its schedule, and the distributions of action values that follow it."""

import numpy as np
import pytest
import torch
from torch import distributions as reference

from vdl_ros.rl.policy.distributions import Boltzmann, EpsilonGreedy
from vdl_ros.rl.settings import DqnConfig, PpoConfig, exploration_schedule

NAMES = [f'actor-{i}' for i in range(200)]


def test_exploration_is_linear_from_start_to_end_and_then_constant():
    for exploration in ('epsilon', 'boltzmann'):
        own = DqnConfig(exploration=exploration, exploration_start=0.9, exploration_end=0.1,
                        exploration_steps=1000)
        explore = exploration_schedule(own, 'a')
        assert [explore(steps) for steps in (0, 250, 500, 1000, 10**9)] == pytest.approx(
            [0.9, 0.7, 0.5, 0.1, 0.1]), exploration
        assert exploration_schedule(own, 'a', frozen=True)(0) == pytest.approx(0.1)
    assert exploration_schedule(PpoConfig(), 'a')(0) == 0.0, 'no action values'


def test_actors_differ_by_their_names_if_there_is_a_spread():
    """Epsilon is raised to a power from 1 to 1 + spread; a temperature is divided by as much."""
    def explored(**own):
        return sorted(exploration_schedule(DqnConfig(**own), name)(0) for name in NAMES)

    assert len(set(explored())) == 1
    own = {'exploration_start': 0.5, 'exploration_end': 0.5, 'exploration_spread': 7.0}
    found = explored(**own)
    assert found == explored(**own)
    assert len(set(found)) == len(NAMES)
    assert 0.5**8 <= found[0] < 0.5**7.5
    assert 0.5**1.5 < found[-1] <= 0.5
    assert 0.5**5.5 < found[len(found) // 2] < 0.5**3.5
    found = explored(exploration='boltzmann', exploration_start=3.0, exploration_end=3.0,
                     exploration_spread=2.0)
    assert 1.0 <= found[0] < 1.05
    assert 2.7 < found[-1] <= 3.0


VALUES = torch.tensor([0.3, -1.0, 2.0, 1.9])


def greedy(values, epsilon):
    """Return the probabilities: epsilon shared by all, the rest for the best."""
    probs = [epsilon / len(values)] * len(values)
    probs[int(values.argmax())] += 1 - epsilon
    return torch.tensor(probs)


def boltzmann(values, temperature):
    odds = [np.exp(value / temperature) for value in values.tolist()]
    return torch.tensor([each / sum(odds) for each in odds], dtype=torch.float32)


def given(exploration, values=VALUES):
    return torch.cat([values, torch.tensor([exploration])])


@pytest.mark.parametrize(('family', 'probabilities', 'explorations'), [
    (EpsilonGreedy(4), greedy, (0.0, 0.1, 0.7, 1.0)), (Boltzmann(4), boltzmann, (0.2, 1.0, 7.0))])
def test_samples_probabilities_entropy_and_divergence_are_those_of_the_definition(
        family, probabilities, explorations):
    count = 40_000
    for exploration in explorations:
        expected = probabilities(VALUES, exploration)
        drawn = family.sample(given(exploration).expand(count, 5))
        assert (drawn.dtype, drawn.shape) == (torch.int64, (count,))
        bound = 4 * (count * expected * (1 - expected)).sqrt()
        error = (torch.bincount(drawn, minlength=4) - count * expected).abs()
        assert (error <= bound + 1e-3).all(), exploration
        found = family.log_prob(given(exploration).expand(4, 5), torch.arange(4))
        torch.testing.assert_close(found, expected.log(), rtol=1e-5, atol=1e-5)
        entropy = -sum(p * np.log(p) for p in expected.tolist() if p)
        assert float(family.entropy(given(exploration))) == pytest.approx(entropy, abs=1e-5)
    others = torch.tensor([1.0, 0.5, -0.2, 0.1])
    expected = reference.kl_divergence(
        reference.Categorical(probabilities(VALUES, 0.4)),
        reference.Categorical(probabilities(others, 0.8)))
    torch.testing.assert_close(family.kl(given(0.4), given(0.8, others)), expected)
    assert float(expected) > 0.1
    torch.testing.assert_close(family.kl(given(0.4), given(0.4)), torch.tensor(0.0))
    values = torch.randn(7, 3, 4)
    for exploration in (0.01, 1.0):
        parameters = torch.cat([values, torch.full((7, 3, 1), exploration)], -1)
        assert torch.equal(family.mode(parameters), values.argmax(-1)), 'the best, however much'
    large = given(0.5, VALUES * 1e4)
    assert torch.isfinite(family.entropy(large))
    assert family.log_prob(large, torch.tensor(2)) > -0.5
    actions = np.array([0, 3, 2])
    assert family.to_environment(actions) is actions


def test_actions_with_probability_0_add_nothing_to_the_divergence():
    sure, sometimes = given(0.0), given(0.4)
    assert float(EpsilonGreedy(4).kl(sure, sure)) == 0.0
    assert float(EpsilonGreedy(4).kl(sure, sometimes)) == pytest.approx(-np.log(1 - 0.4 * 3 / 4))
    assert float(EpsilonGreedy(4).kl(sometimes, sure)) == np.inf


def test_a_temperature_of_0_is_greedy():
    own = Boltzmann(4)
    for temperature in (0.0, 1e-9, 1e-6):
        parameters = given(temperature).expand(50, 5)
        assert own.sample(parameters).tolist() == [2] * 50
        assert own.log_prob(parameters, torch.full((50,), 2)).tolist() == [0.0] * 50
        assert own.entropy(parameters).tolist() == [0.0] * 50
