"""SAC: a policy of large entropy and its action values, learned from a replay.

Haarnoja et al. 2018, arXiv:1812.05905: twin critics, target critics that follow slowly, and a
temperature that keeps the entropy at a target. For discrete actions expectations over all actions
take the place of samples (Christodoulou 2019, arXiv:1910.07207). Continuous actions are squashed
by tanh; densities and entropies are of actions scaled to -1 to 1.

With V the soft value E[min_i Q_i(x, a) - alpha log pi(a|x)], a from the policy as it is, each
optimizer step lowers the sum of three losses, each with gradients of its own parameters only:

    critics      sum_i (r + gamma V_target(x') - Q_i(x, a))^2 / 2
    policy       -V(x)
    temperature  alpha (H(pi) - target entropy)

With ``n_step`` the rewards of n steps are summed; of their entropies only that of the bootstrap
observation counts, and nothing corrects for actions that the policy would no longer take.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.rl.algorithms import algorithm, replay_algorithm
from vdl_ros.rl.algorithms.algorithm import PolicyOptimizer
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import gather, send
from vdl_ros.rl.policy.distributions import SquashedGaussian
from vdl_ros.rl.policy.networks import make_torso, orthogonal
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.settings import SacConfig


class Critics(nn.Module):
    """Two critics whose smaller value is used (Fujimoto et al. 2018, arXiv:1802.09477).

    Each has a torso of its own for images, as the policy's, and two ReLU layers over the torso's
    features, or the numbers, and the action, of ``actions`` numbers or 0. The policy prepares
    their inputs, so they see normalized observations as it does.
    """

    def __init__(self, policy: Policy, hidden_size: int, actions: int, outputs: int) -> None:
        super().__init__()
        self._critics = nn.ModuleList(
            _Critic(policy, hidden_size, actions, outputs) for _ in range(2))

    def forward(
        self, inputs: Tensor, numbers: Tensor | None, actions: Tensor | None = None,
    ) -> Tensor:
        """Return the values, float [2, N, outputs], for inputs from :meth:`Policy.prepare`."""
        return torch.stack([critic(inputs, numbers, actions) for critic in self._critics])


class _Critic(nn.Module):
    def __init__(self, policy: Policy, hidden_size: int, actions: int, outputs: int) -> None:
        super().__init__()
        self.torso: nn.Module | None = None
        if policy.of_images:
            self.torso, features = make_torso(policy.network, policy.image_shape, hidden_size)
        else:
            features = math.prod(policy.image_shape)
        self.layers = nn.Sequential(
            orthogonal(nn.Linear(features + policy.num_numbers + actions, hidden_size)),
            nn.ReLU(), orthogonal(nn.Linear(hidden_size, hidden_size)), nn.ReLU(),
            orthogonal(nn.Linear(hidden_size, outputs), 1.0))

    def forward(self, inputs: Tensor, numbers: Tensor | None, actions: Tensor | None) -> Tensor:
        features = inputs
        if self.torso is not None:
            with torch.autocast(inputs.device.type, torch.bfloat16,
                                enabled=inputs.dtype == torch.bfloat16):
                features = self.torso(inputs)
        rest = [each for each in (numbers, actions) if each is not None]
        values: Tensor = self.layers(torch.cat([features.float(), *rest], -1))
        return values


# Beyond it an error counts linearly, so that one trajectory of huge numbers cannot end a run.
_HUBER_DELTA = 1e4


class Algorithm(replay_algorithm.ReplayAlgorithm):
    """Soft actor-critic; ``log_temperature`` is log alpha, float [1]."""

    algorithm_config: SacConfig

    def setup(self, schema: UnrollSchema) -> None:
        super().setup(schema)
        policy, config, algorithm_config = self.policy, self.config, self.algorithm_config
        count = policy.distribution.num_inputs
        self._gaussian: SquashedGaussian | None = None
        if isinstance(policy.distribution, SquashedGaussian):
            self._gaussian = policy.distribution
            self.critics = Critics(policy, config.hidden_size, count, 1)
            self.target_entropy = algorithm_config.target_entropy * count
        else:
            self.critics = Critics(policy, config.hidden_size, 0, count)
            self.target_entropy = algorithm_config.target_entropy_share * math.log(count)
        self.critics.to(self.device)
        self.target = copy.deepcopy(self.critics)
        self.target.requires_grad_(requires_grad=False)
        self.log_temperature = nn.Parameter(
            torch.full((1,), math.log(algorithm_config.temperature), device=self.device),
            requires_grad=algorithm_config.automatic_temperature)
        learned = nn.ModuleDict({'policy': policy, 'critics': self.critics})
        learned.register_parameter('log_temperature', self.log_temperature)
        self.optimizer = PolicyOptimizer(learned, config, self.group)

    def loss(self, replay: Replay, sample: Sample) -> tuple[Tensor, algorithm.Metrics]:
        place = sample.column, sample.time
        later = sample.column, replay.times[place]
        observations, following = (
            gather(replay.observations, each, self.device) for each in (place, later))
        actions, returns, factors = (send(each[place], self.device) for each in (
            replay.actions, replay.returns, replay.factors))
        temperature = self.log_temperature.exp()
        fixed = temperature.detach()
        with torch.no_grad():
            targets = returns + factors * self._soft_values(self.target, following, fixed)[0]
        # The loss of the policy has no gradient for the critics.
        self.critics.requires_grad_(requires_grad=False)
        soft_values, entropies = self._soft_values(self.critics, observations, fixed)
        self.critics.requires_grad_(requires_grad=True)
        q_values = self._q_values(observations, actions)
        ones = torch.ones_like(returns)
        critic_loss = self.mean(functional.huber_loss(
            q_values, targets.expand_as(q_values), reduction='none', delta=_HUBER_DELTA).sum(0),
            ones)
        policy_loss = -self.mean(soft_values, ones)
        temperature_loss = self.mean(
            temperature * (entropies.detach() - self.target_entropy), ones)
        loss = critic_loss + policy_loss + temperature_loss
        return loss, {
            'losses/loss': loss, 'losses/critic_loss': critic_loss,
            'losses/policy_loss': policy_loss, 'losses/entropy': self.mean(entropies, ones),
            'losses/temperature': self.mean(fixed * ones, ones),
            'losses/q_values': self.mean(q_values.mean(0), ones)}

    def _q_values(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return both critics' values of actions in the replay, [2, N]."""
        prepared = self.policy.prepare(*self.policy.split(observations))
        if self._gaussian is not None:
            q: Tensor = self.critics(*prepared, actions.tanh())
        else:
            q = self.critics(*prepared).gather(-1, actions.expand(2, -1).unsqueeze(-1))
        return q.squeeze(-1)

    def _soft_values(
        self, critics: nn.Module, observations: Tensor, temperature: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return soft values and entropies of the policy at observations, [N] each."""
        parameters = self.policy(observations).parameters
        prepared = self.policy.prepare(*self.policy.split(observations))
        if self._gaussian is not None:
            actions = self._gaussian.sample(parameters)
            entropies = -self._gaussian.squashed_log_prob(parameters, actions)
            values = critics(*prepared, actions.tanh()).amin(0).squeeze(-1)
        else:
            log_probs = functional.log_softmax(parameters, -1)
            entropies = -(log_probs.exp() * log_probs).sum(-1)
            values = (log_probs.exp() * critics(*prepared).amin(0)).sum(-1)
        return values + temperature * entropies, entropies

    @torch.no_grad()
    def update_target(self) -> None:
        for target, critic in zip(
                self.target.parameters(), self.critics.parameters(), strict=True):
            target.lerp_(critic, self.algorithm_config.target_smoothing)

    def state(self) -> dict[str, Any]:
        return {**super().state(), 'critics': self.critics.state_dict(),
                'log_temperature': self.log_temperature.detach()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.critics.load_state_dict(state['critics'])
        with torch.no_grad():
            self.log_temperature.copy_(state['log_temperature'])
