"""Action distributions as functions of a network's outputs.

Of policy networks: Categorical, MultiCategorical, DiagonalGaussian, SquashedGaussian. Of networks
of action values Q: EpsilonGreedy, Boltzmann. In all of them:

``parameters``         float [..., ``size``]
``sample``, ``mode``   int64 [...], int64 [..., A] (discrete in A parts) or float [..., A]
``log_prob``           float [...], the log-probability, or log-density, of actions
``entropy``, ``kl``    float [...], in nats; KL(parameters || others)
``to_environment``     actions for the environment, before they are clipped to its bounds
``from_environment``   the other way round
``to_network``         actions as input of a network, float [..., ``num_inputs``]
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vdl_ros.rl.policy.numpy_policy import LOG_2PI, LOG_STD, NEVER, BoxActions, family_of
from vdl_ros.rl.settings import AlgorithmConfig, TrainConfig


class Categorical:
    """One of ``size`` actions; the parameters are logits."""

    def __init__(self, size: int) -> None:
        self.size = self.num_inputs = size

    def logits(self, parameters: Tensor) -> Tensor:
        return parameters

    def to_environment(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions

    from_environment = to_environment

    def to_network(self, actions: Tensor) -> Tensor:
        return functional.one_hot(actions, self.num_inputs).float()

    def sample(self, parameters: Tensor) -> Tensor:
        logits = self.logits(parameters)
        # The Gumbel-max trick: one pass, no normalisation.
        noise = torch.empty_like(logits).exponential_().log_().neg_()
        return (logits + noise).argmax(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return self.logits(parameters).argmax(-1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        log_probs = functional.log_softmax(self.logits(parameters), -1)
        return log_probs.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log_probs = functional.log_softmax(self.logits(parameters), -1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def kl(self, parameters: Tensor, others: Tensor) -> Tensor:
        log_probs, other_log_probs = (
            functional.log_softmax(self.logits(each), -1) for each in (parameters, others))
        return (log_probs.exp() * (log_probs - other_log_probs)).sum(-1)


class MultiCategorical(Categorical):
    """A parts, each one of its ``sizes`` actions, independently; the parameters are their logits.

    Log-probabilities, entropies and divergences are sums over the parts.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(sum(sizes))
        self._sizes = list(sizes)

    def logits(self, parameters: Tensor) -> Tensor:
        """Return the logits of each part, [..., A, largest size]; shorter ones are padded."""
        sizes, most = self._sizes, max(self._sizes)
        if min(sizes) == most:
            return parameters.reshape(*parameters.shape[:-1], len(sizes), most)
        return torch.stack([
            functional.pad(each, (0, most - each.shape[-1]), value=NEVER)
            for each in torch.split(parameters, sizes, -1)], -2)

    def to_network(self, actions: Tensor) -> Tensor:
        return torch.cat([functional.one_hot(each, size) for each, size in zip(
            actions.unbind(-1), self._sizes, strict=True)], -1).float()

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return super().log_prob(parameters, actions).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        return super().entropy(parameters).sum(-1)

    def kl(self, parameters: Tensor, others: Tensor) -> Tensor:
        return super().kl(parameters, others).sum(-1)


class DiagonalGaussian(BoxActions):
    """A normal distribution in each action dimension; the parameters are means, then log-stds.

    The log-density is that of the sampled action, before it is scaled and clipped for the
    environment.
    """

    def to_network(self, actions: Tensor) -> Tensor:
        return actions

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD)

    def sample(self, parameters: Tensor) -> Tensor:
        mean, log_std = self._split(parameters)
        return mean + log_std.exp() * torch.randn_like(mean)

    def mode(self, parameters: Tensor) -> Tensor:
        return self._split(parameters)[0]

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = self._split(parameters)
        scaled = (actions - mean) * (-log_std).exp()
        return (-0.5 * (scaled.square() + LOG_2PI) - log_std).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        return (self._split(parameters)[1] + 0.5 * (1 + LOG_2PI)).sum(-1)

    def kl(self, parameters: Tensor, others: Tensor) -> Tensor:
        mean, log_std = self._split(parameters)
        other_mean, other_log_std = self._split(others)
        ratio = (2 * (log_std - other_log_std)).exp()
        moved = (mean - other_mean).square() * (-2 * other_log_std).exp()
        return (0.5 * (ratio + moved - 1) + other_log_std - log_std).sum(-1)


class SquashedGaussian(DiagonalGaussian):
    """A normal distribution whose samples are squashed by tanh into the environment's range.

    Actions and log-densities are those of the sample before tanh: ratios of densities and
    divergences are the same before and after it. :meth:`squashed_log_prob` and entropies are
    those after it.
    """

    squashes = True

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return the entropy of tanh of samples, by Gauss-Hermite quadrature of its slope."""
        mean, log_std = self._split(parameters)
        nodes, weights = (parameters.new_tensor(each) for each in _QUADRATURE)
        slopes = _log_slopes(mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * nodes)
        return super().entropy(parameters) + (slopes @ weights).sum(-1)

    def squashed_log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the log-density of tanh(``actions``), actions scaled to -1 to 1, float [...].

        As in appendix C of Haarnoja et al. 2018, arXiv:1812.05905.
        """
        slopes = _log_slopes(actions)
        return self.log_prob(parameters, actions) - slopes.sum(-1)


# Nodes and weights for the mean of a function of a standard normal number.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
_QUADRATURE = _NODES, _WEIGHTS / _WEIGHTS.sum()


def _log_slopes(actions: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2) in a form that is finite for each finite u."""
    return 2 * (math.log(2.0) - actions - functional.softplus(-2 * actions))


class EpsilonGreedy(Categorical):
    """The action of the largest value, or with probability epsilon a random action.

    The parameters are the action values Q, then epsilon, 0 to 1.
    """

    def __init__(self, actions: int) -> None:
        super().__init__(actions + 1)
        self.num_inputs = actions

    def logits(self, parameters: Tensor) -> Tensor:
        values, epsilon = parameters[..., :-1], parameters[..., -1:]
        best = functional.one_hot(values.argmax(-1), self.size - 1).to(values.dtype)
        return (epsilon / (self.size - 1) + (1 - epsilon) * best).log()

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters[..., :-1].argmax(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        probs = self.logits(parameters).softmax(-1)
        entropy: Tensor = -torch.special.xlogy(probs, probs).sum(-1)
        return entropy

    def kl(self, parameters: Tensor, others: Tensor) -> Tensor:
        probs, wanted = (self.logits(each).softmax(-1) for each in (parameters, others))
        # With epsilon 0 some probabilities are 0; xlogy makes their terms 0.
        divergence: Tensor = (torch.special.xlogy(probs, probs)
                              - torch.special.xlogy(probs, wanted)).sum(-1)
        return divergence


class Boltzmann(EpsilonGreedy):
    """Actions with probabilities proportional to exp(Q / temperature).

    The parameters are the action values Q, then the temperature, above 0.
    """

    def logits(self, parameters: Tensor) -> Tensor:
        return parameters[..., :-1] / parameters[..., -1:].clamp(min=1e-9)


ActionDistribution = Categorical | DiagonalGaussian
_FAMILIES: Mapping[str, Callable[..., ActionDistribution]] = {
    'categorical': Categorical, 'parts': MultiCategorical, 'gaussian': DiagonalGaussian,
    'squashed': SquashedGaussian, 'epsilon': EpsilonGreedy, 'boltzmann': Boltzmann}


def make_distribution(
    space: gymnasium.Space[Any], config: TrainConfig | None = None,
    algorithm_config: AlgorithmConfig | None = None,
) -> ActionDistribution:
    """Return the family for actions in ``space``; see :func:`family_of`."""
    name, arguments = family_of(space, config or TrainConfig(), algorithm_config)
    return _FAMILIES[name](*arguments)
