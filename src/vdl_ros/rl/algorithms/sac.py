"""SAC: a policy of large entropy and its action values, learned from a replay.

Haarnoja et al. 2018, arXiv:1812.05905: twin critics, target critics that follow slowly, and a
temperature that keeps the entropy at a target. For discrete actions expectations over all actions
take the place of samples (Christodoulou 2019, arXiv:1910.07207); the value of actions in several
parts is a sum over the parts (Sunehag et al. 2017, arXiv:1706.05296). Continuous actions are
squashed by tanh; densities and entropies are of actions scaled to -1 to 1.

With V the soft value E[min_i Q_i(x, a) - alpha log pi(a|x)], a from the policy as it is, each
optimizer step lowers the sum of three losses, each with gradients of its own parameters only:

    critics      sum_i (r + gamma V_target(x') - Q_i(x, a))^2 / 2
    policy       -V(x)
    temperature  alpha (H(pi) - target entropy)

Of images, shifted at random (DrQ, Kostrikov et al. 2021, arXiv:2004.13649), all critics take what
the policy's convolutions make of them. Only the critics' loss changes these, and the target
critics have none of their own (DrQ-v2, Yarats et al. 2022, arXiv:2107.09645).

With ``n_step`` the rewards of n steps are summed; of their entropies only that of the bootstrap
observation counts, and nothing corrects for actions that the policy would no longer take.

With demonstrations a share of each optimizer step is of them (RLPD, Ball et al. 2023,
arXiv:2302.02948, which also has ``critic_layer_norm``, ten ``critics`` and two
``target_critics``), and the first steps are made before anybody acts. The steps in which a person
had taken over a robot are demonstrations, too (Luo et al. 2024, arXiv:2410.21845). With
``cloning_cost`` c the loss has -c log pi(a|x) of them, too, and the temperature is at most
its first value. Of a task that is the same in a mirror half of each step's are mirrored.
"""

import copy
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.algorithms.algorithm import PolicyOptimizer
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import gather, send
from vdl_ros.rl.policy.distributions import Categorical, MultiCategorical, SquashedGaussian
from vdl_ros.rl.policy.networks import autocast, orthogonal
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.settings import SacConfig


class Critics(nn.Module):
    """Critics whose least value is used (Fujimoto et al. 2018, arXiv:1802.09477).

    Each has two ReLU layers over the features or numbers and the action, of ``actions`` numbers
    or 0. For images all have one copy of the layers between the policy's convolutions and its
    features. The policy prepares their inputs, so they see normalized observations as it does.
    """

    def __init__(
        self, policy: Policy, config: SacConfig, hidden_size: int, actions: int, outputs: int,
    ) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(policy.parts()[1])
        features = policy.num_torso_features
        if not policy.of_images:
            self.trunk, features = nn.Sequential(), math.prod(policy.image_shape)
        self._critics = nn.ModuleList(
            _critic(features + policy.num_numbers + actions, hidden_size, outputs,
                    normalizes=config.critic_layer_norm)
            for _ in range(config.critics))

    def forward(
        self, inputs: Tensor, numbers: Tensor | None, actions: Tensor | None = None,
        chosen: Sequence[int] | None = None,
    ) -> Tensor:
        """Return the values of the ``chosen`` critics, or of all, float [critics, N, outputs].

        Inputs are of the policy's convolutions or, as numbers, from :meth:`Policy.prepare`.
        """
        with autocast(inputs):
            features = self.trunk(inputs).float()
        rest = [each for each in (numbers, actions) if each is not None]
        features = torch.cat([features, *rest], -1)
        numbers_of = range(len(self._critics)) if chosen is None else chosen
        return torch.stack([self._critics[each](features) for each in numbers_of])


def _critic(inputs: int, hidden_size: int, outputs: int, *, normalizes: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in (inputs, hidden_size):
        layers.append(orthogonal(nn.Linear(size, hidden_size)))
        if normalizes:
            layers.append(nn.LayerNorm(hidden_size))
        layers.append(nn.ReLU())
    layers.append(orthogonal(nn.Linear(hidden_size, outputs), 1.0))
    # Named as in the checkpoints that there are.
    return nn.Sequential(OrderedDict(layers=nn.Sequential(*layers)))


# Of the demonstrations, among the arrays of the replay.
_DEMONSTRATED = 'demonstrated_'
# Optimizer steps before anybody acts; they take seconds.
_MOST_FIRST = 5000
# Beyond it an error counts linearly, so that one trajectory of huge numbers cannot end a run.
_HUBER_DELTA = 1e4


class Algorithm(algorithm.ReplayAlgorithm):
    """Soft actor-critic; ``log_temperature`` is log alpha, float [1]."""

    algorithm_config: SacConfig

    def setup(self, schema: UnrollSchema) -> None:
        super().setup(schema)
        policy, config, algorithm_config = self.policy, self.config, self.algorithm_config
        count = policy.distribution.num_inputs
        self._convolutions, self._rest = policy.parts()
        self._gaussian: SquashedGaussian | None = None
        self._discrete: Categorical | None = None
        self._has_parts = isinstance(policy.distribution, MultiCategorical)
        if isinstance(policy.distribution, SquashedGaussian):
            self._gaussian = policy.distribution
            inputs, outputs = count, 1
            self.target_entropy = algorithm_config.target_entropy * count
        else:
            assert isinstance(policy.distribution, Categorical)
            self._discrete = policy.distribution
            inputs, outputs = 0, count
            self.target_entropy = algorithm_config.target_entropy_share * float(
                self._discrete.entropy(torch.zeros(count)))
        if algorithm_config.target_critics > algorithm_config.critics:
            raise ValueError(
                f'target_critics: {algorithm_config.target_critics} is not allowed: at most '
                f'critics, {algorithm_config.critics}')
        self.critics = Critics(policy, algorithm_config, config.hidden_size, inputs, outputs)
        self._demonstrated = Replay(schema, algorithm_config.replay_size, config.discount,
                                    algorithm_config.n_step, 0.0, self.group.size)
        # Which of its columns :meth:`demonstrate` was given; the others are of takeovers.
        self._given = torch.zeros(len(self._demonstrated.actions), dtype=torch.bool)
        # Optimizer steps that a run makes before anybody acts.
        self._first_steps = 0
        self.critics.to(self.device)
        self.target = copy.deepcopy(self.critics)
        self.target.requires_grad_(requires_grad=False)
        self._follow = get_ema_multi_avg_fn(  # type: ignore[no-untyped-call]
            1.0 - algorithm_config.target_smoothing)
        self._followed = [*self.target.parameters()], [*self.critics.parameters()]
        self.log_temperature = nn.Parameter(
            torch.full((1,), math.log(algorithm_config.temperature), device=self.device),
            requires_grad=algorithm_config.automatic_temperature)
        learned = nn.ModuleDict({'policy': policy, 'critics': self.critics})
        learned.register_parameter('log_temperature', self.log_temperature)
        self.optimizer = PolicyOptimizer(learned, config, self.group)

    def demonstrate(self, batch: Batch) -> None:
        """Learn from these steps as if they were own ones, and in ``demonstration_share``.

        The optimizer steps for them, at most ``_MOST_FIRST``, are those of :meth:`warm_up`.
        ValueError: they are more than the replay holds.
        """
        steps, own = batch.valid.numel(), self.algorithm_config
        if steps > own.replay_size:
            raise ValueError(f'replay_size: {own.replay_size} is not allowed with demonstrations '
                             f'of {steps} steps: at least {steps}')
        self._given[self._demonstrated.add(batch, self.rewards(batch))] = True
        self._replay.add(batch, self.rewards(batch))
        # Else they would lie far outside of what the robot has met in its first steps.
        self.update_normalizer(batch)
        self._share()
        self._first_steps = min(_MOST_FIRST, int(
            self._demonstrated.steps * own.replay_ratio / own.replay_batch))

    def warm_up(self) -> None:
        self._share()
        # A run that goes on may have made some, and may have no demonstrations any more.
        left = self._first_steps - self.optimizer.steps if self._demonstrated.steps else 0
        # Learner 0 says how many: the folders of others may hold other demonstrations.
        mine = 0 if self.group.rank else max(0, left)
        self._make_steps(int(self.group.all_reduce_sum(torch.tensor(mine))))

    def _share(self) -> None:
        """Draw from the demonstrations, too, once every learner has enough of them."""
        own = self.algorithm_config
        # Of a few steps of takeovers the critics would learn nothing but these.
        least = 1 if self._given.any() else own.replay_batch
        if self.group.all_reduce_min(int(self._demonstrated.steps >= least)):
            self._sample_size = self._sampled_steps = max(
                1, round(own.replay_batch * (1.0 - own.demonstration_share)))

    @property
    def _shown(self) -> int:
        """Return how many steps of an optimizer step are demonstrated."""
        return self.algorithm_config.replay_batch - self._sample_size

    @property
    def _clones(self) -> bool:
        return self._shown > 0 and self.algorithm_config.cloning_cost > 0.0

    def update(self, batch: Batch) -> dict[str, float]:
        if batch.intervened.any():
            columns = batch.intervened.any(0).nonzero()[:, 0]
            persons = batch.columns(columns)
            self._given[self._demonstrated.add(
                persons, self.rewards(persons), persons.intervened)] = False
        self._share()
        metrics = super().update(batch)
        if self._demonstrated.steps:
            metrics['losses/demonstrated_steps'] = float(self._demonstrated.steps)
        return metrics

    def _steps(self, replay: Replay, sample: Sample) -> list[Tensor]:
        """Return observations, those of the bootstrap, actions, returns and factors, [N, ...]."""
        place = sample.column, sample.time
        later = sample.column, replay.times[place]
        return [*(gather(replay.observations, each, self.device) for each in (place, later)),
                *(send(each[place], self.device) for each in (
                    replay.actions, replay.returns, replay.factors))]

    def loss(self, replay: Replay, sample: Sample) -> tuple[Tensor, algorithm.Metrics]:
        steps = self._steps(replay, sample)
        if rest := self._shown:
            shown = self._demonstrated.sample(rest)
            steps = [torch.cat(each) for each in zip(
                steps, self._steps(self._demonstrated, shown), strict=True)]
        observations, following, actions, returns, factors = steps
        actions, observations, following = self.mirrored(actions, observations, following)
        temperature = self.log_temperature.exp()
        fixed = temperature.detach()
        with torch.no_grad():
            later, numbers = self._see(following)
            targets = returns + factors * self._soft_values(
                self.target, later, numbers, self._parameters(later, numbers), fixed)[0]
        seen, numbers = self._see(observations)
        # Only the critics' loss changes what both see.
        parameters = self._parameters(seen.detach(), numbers)
        q_values, known = self._q_values(seen, numbers, actions)
        soft_values, entropies = self._soft_values(
            self.critics, seen.detach(), numbers, parameters, fixed, known)
        ones = torch.ones_like(returns)
        critic_loss = self.mean(functional.huber_loss(
            q_values, targets.expand_as(q_values), reduction='none', delta=_HUBER_DELTA).sum(0),
            ones)
        policy_loss = -self.mean(soft_values, ones)
        temperature_loss = self.mean(
            temperature * (entropies.detach() - self.target_entropy), ones)
        loss = critic_loss + policy_loss + temperature_loss
        if self._clones:
            loss = loss - self.algorithm_config.cloning_cost * self.mean(
                self.policy.distribution.log_prob(parameters, actions)[-rest:], ones[-rest:])
        return loss, {
            'losses/loss': loss, 'losses/critic_loss': critic_loss,
            'losses/policy_loss': policy_loss, 'losses/entropy': self.mean(entropies, ones),
            'losses/temperature': self.mean(fixed * ones, ones),
            'losses/q_values': self.mean(q_values.mean(0), ones)}

    def _see(self, observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what policy and critics have in common, [N, ...], and the numbers beside it."""
        inputs, numbers = self.policy.prepare(
            *self.policy.split(observations), shift=self.algorithm_config.random_shift)
        with autocast(inputs):
            return self._convolutions(inputs), numbers

    def _q_values(
        self, seen: Tensor, numbers: Tensor | None, actions: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the critics' values of actions in the replay, [critics, N].

        With them are those of all actions without their gradient, [critics, N, ...], if actions
        are not a Box.
        """
        if self._gaussian is not None:
            return self.critics(seen, numbers, actions.tanh()).squeeze(-1), None
        assert self._discrete is not None
        values = self._discrete.logits(self.critics(seen, numbers))
        q = values.gather(
            -1, actions.expand(len(values), *actions.shape).unsqueeze(-1)).squeeze(-1)
        return q.sum(-1) if self._has_parts else q, values.detach()

    def _parameters(self, seen: Tensor, numbers: Tensor | None) -> Tensor:
        """Return the parameters of the policy's distribution at observations, [N, inputs]."""
        with autocast(seen):
            features = self._rest(seen).float()
        parameters: Tensor = self.policy.policy_head(self.policy.join(features, numbers))
        return parameters

    def _soft_values(
        self, critics: nn.Module, seen: Tensor, numbers: Tensor | None, parameters: Tensor,
        temperature: Tensor, known: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return soft values and entropies of the policy at observations, [N] each.

        ``known`` are the values of all actions, if they have been computed.
        """
        count, most = self.algorithm_config.target_critics, self.algorithm_config.critics
        takes_mean = critics is self.critics and count < most
        chosen = (torch.randperm(most)[:count].tolist()
                  if critics is self.target and count < most else None)
        if self._gaussian is not None:
            actions = self._gaussian.sample(parameters)
            entropies = -self._gaussian.squashed_log_prob(parameters, actions)
            # The loss of the policy has no gradient for the critics and what they see.
            critics.requires_grad_(requires_grad=False)
            q = critics(seen, numbers, actions.tanh(), chosen=chosen).squeeze(-1)
            critics.requires_grad_(critics is self.critics)
            values = q.mean(0) if takes_mean else q.amin(0)
        else:
            assert self._discrete is not None
            probs = functional.softmax(self._discrete.logits(parameters), -1)
            entropies = self._discrete.entropy(parameters)
            q = known if known is not None else self._discrete.logits(
                critics(seen, numbers, chosen=chosen))
            if self._has_parts:
                # Only the sums of the parts' values are learned.
                q = (probs * q).sum((-2, -1))
                values = q.mean(0) if takes_mean else q.amin(0)
            else:
                values = (probs * (q.mean(0) if takes_mean else q.amin(0))).sum(-1)
        return values + temperature * entropies, entropies

    @torch.no_grad()
    def update_target(self) -> None:
        self._follow(*self._followed, 0)
        if self._clones:
            # Cloning holds the entropy below its target, for which the temperature would rise
            # without end, and count in the values more than rewards.
            self.log_temperature.clamp_(max=math.log(self.algorithm_config.temperature))

    def replay_arrays(self) -> dict[str, NDArray[Any]]:
        shown = {**self._demonstrated.arrays(), 'given': self._given.numpy()}
        return super().replay_arrays() | {
            f'{_DEMONSTRATED}{name}': each for name, each in shown.items()}

    def load_replay_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        # Those of takeovers are kept, those of files only if this run was given none.
        own = {name for name in arrays if name.startswith(_DEMONSTRATED)}
        super().load_replay_arrays({name: arrays[name] for name in arrays.keys() - own})
        if own:
            shown = {name.removeprefix(_DEMONSTRATED): arrays[name] for name in own}
            # Older replays do not have it.
            given = shown.pop('given', np.zeros_like(self._given.numpy()))
            if given.shape != self._given.shape or given.dtype != np.bool_:
                raise ValueError(f'{_DEMONSTRATED}given: not bool [{len(self._given)}]')
            if self._given.any():
                self._demonstrated.add_arrays(shown, ~given)
            else:
                self._demonstrated.load_arrays(shown)
                self._given[:] = torch.from_numpy(given)

    def state(self) -> dict[str, Any]:
        return {**super().state(), 'critics': self.critics.state_dict(),
                'first_steps': self._first_steps, 'log_temperature': self.log_temperature.detach()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        # Older checkpoints do not have it.
        self._first_steps = int(state.get('first_steps', 0))
        self.critics.load_state_dict(state['critics'])
        found = state['log_temperature']
        if self.algorithm_config.automatic_temperature:
            with torch.no_grad():
                self.log_temperature.copy_(found)
