"""The IMPALA loss: its gradient is the one intended, and steps that do not count do not."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from vdl_ros.rl.config import TrainConfig
from vdl_ros.rl.distributions import Categorical
from vdl_ros.rl.impala import Batch, impala_loss, standardized, transform_rewards
from vdl_ros.rl.learner import make_batch
from vdl_ros.rl.networks import make_policy
from vdl_ros.rl.unroll import UnrollSchema


class Linear(nn.Module):
    """The smallest policy there is, in float64."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.distribution = Categorical(4)
        self.layer = nn.Linear(3, 5, dtype=torch.float64)

    def forward(self, observations):
        out = self.layer(observations.double())
        return out[..., :4], out[..., 4]


@pytest.fixture
def batch(random_unroll, spaces):
    made = make_batch([random_unroll(seed) for seed in range(3)], UnrollSchema(*spaces, 8, 1))
    assert not made.valid.all()
    assert made.terminated.any()
    return made


def gradients(policy, batch, config):
    policy.zero_grad()
    loss, _ = impala_loss(policy, batch, config)
    loss.backward()
    return [loss.detach()] + [each.grad.clone() for each in policy.parameters()]


CONFIG = TrainConfig(discount=0.9, rho_clip=1.3, c_clip=0.7, baseline_cost=0.4, entropy_cost=0.03)


def test_loss_and_gradient_are_those_of_the_definition(batch, naive_vtrace):
    policy = Linear()

    def outputs():
        parameters, values = policy(batch.observations)
        parameters = parameters[:-1].detach().numpy()
        log_probs = parameters - np.log(np.exp(parameters).sum(-1, keepdims=True))
        return log_probs, values.detach().numpy()

    actions = batch.actions.numpy()[..., None]
    valid = batch.valid.numpy()
    log_probs, values = outputs()
    targets, advantages = naive_vtrace(
        np.take_along_axis(log_probs, actions, -1)[..., 0] - batch.behaviour_log_probs.numpy(),
        np.where(batch.terminated.numpy(), 0.0, 0.9), batch.rewards.numpy(), values, valid,
        1.3, 0.7)

    def definition():
        """Return the loss with targets and advantages held fixed."""
        log_probs, values = outputs()
        chosen = np.take_along_axis(log_probs, actions, -1)[..., 0]
        total, count = 0.0, 0
        for t, b in np.argwhere(valid):
            entropy = -(np.exp(log_probs[t, b]) * log_probs[t, b]).sum()
            total += -chosen[t, b] * advantages[t, b]
            total += 0.4 * 0.5 * (targets[t, b] - values[t, b]) ** 2
            total -= 0.03 * entropy
            count += 1
        return total / count

    loss, *found = gradients(policy, batch, CONFIG)
    assert float(loss) == pytest.approx(definition(), rel=1e-6)
    for parameter, gradient in zip(policy.parameters(), found, strict=True):
        flat, step = parameter.data.view(-1), 1e-6
        for i in range(len(flat)):
            flat[i] += step
            above = definition()
            flat[i] -= 2 * step
            below = definition()
            flat[i] += step
            assert float(gradient.view(-1)[i]) == pytest.approx(
                (above - below) / (2 * step), rel=1e-4, abs=1e-7)


def test_ignored_steps_contribute_nothing(batch, spaces):
    policy = make_policy('mlp', *spaces, 8)
    before = gradients(policy, batch, CONFIG)
    ignored = ~batch.valid
    changed = dataclasses.replace(
        batch,
        actions=torch.where(ignored, 3 - batch.actions, batch.actions),
        rewards=torch.where(ignored, batch.rewards - 50.0, batch.rewards),
        behaviour_log_probs=torch.where(ignored, -9.0, batch.behaviour_log_probs),
        terminated=batch.terminated ^ ignored)
    assert all(map(torch.equal, before, gradients(policy, changed, CONFIG)))
    counted = dataclasses.replace(batch, rewards=batch.rewards + batch.valid)
    assert not torch.equal(before[0], gradients(policy, counted, CONFIG)[0])


def test_nothing_valid_is_no_loss(batch, spaces):
    policy = make_policy('mlp', *spaces, 8)
    empty = dataclasses.replace(batch, valid=torch.zeros_like(batch.valid))
    assert all(not each.any() for each in gradients(policy, empty, CONFIG))


def test_a_rewarded_action_becomes_likelier_and_its_state_more_valued(spaces):
    policy = make_policy('mlp', *spaces, 8)
    observations = torch.full((2, 1, 3), 0.5)
    batch = Batch(observations, torch.tensor([[2]]), torch.tensor([[1.0]]),
                  torch.tensor([[True]]), torch.tensor([[True]]),
                  torch.tensor([[float(np.log(0.25))]]))

    def now():
        parameters, values = policy(observations[0])
        return float(parameters.softmax(-1)[0, 2].detach()), float(values[0].detach())

    probability, value = now()
    optimizer = torch.optim.SGD(policy.parameters(), 0.1)
    impala_loss(policy, batch, TrainConfig(entropy_cost=0.0))[0].backward()
    optimizer.step()
    assert now()[0] > probability
    assert now()[1] > value


def test_the_entropy_bonus_flattens_the_policy(batch):
    policy = Linear()
    entropy_only = TrainConfig(entropy_cost=1.0, baseline_cost=0.0)
    nothing = dataclasses.replace(batch, rewards=batch.rewards * 0)
    with torch.no_grad():
        policy.layer.weight[4] = policy.layer.bias[4] = 0.0  # all values and advantages are 0
    before = impala_loss(policy, nothing, entropy_only)[1]['losses/entropy']
    optimizer = torch.optim.SGD(policy.parameters(), 0.1)
    impala_loss(policy, nothing, entropy_only)[0].backward()
    optimizer.step()
    assert impala_loss(policy, nothing, entropy_only)[1]['losses/entropy'] > before


def test_parts_add_up_to_the_total(batch):
    loss, parts = impala_loss(Linear(), batch, CONFIG)
    assert float(loss.detach()) == float(parts['losses/total'])
    assert float(parts['losses/total']) == pytest.approx(float(
        parts['losses/policy'] + 0.4 * parts['losses/value'] - 0.03 * parts['losses/entropy']))
    assert all(value.shape == () for value in parts.values())


@pytest.mark.parametrize(('how', 'expected'), [
    ('none', [-10.0, -0.5, 0.0, 0.5, 10.0]),
    ('abs_one', [-1.0, -0.5, 0.0, 0.5, 1.0]),
    ('soft_asymmetric', [-1.5 * np.tanh(2), -1.5 * np.tanh(0.1), 0.0, 5 * np.tanh(0.1),
                         5 * np.tanh(2)]),
])
def test_rewards_are_transformed(how, expected):
    rewards = torch.tensor([-10.0, -0.5, 0.0, 0.5, 10.0])
    assert transform_rewards(rewards, how).tolist() == pytest.approx(expected)


def test_the_loss_sees_transformed_rewards(batch):
    policy = Linear()
    large = dataclasses.replace(batch, rewards=batch.rewards.sign() * 5.0)
    clipped = dataclasses.replace(CONFIG, reward_transform='abs_one')
    units = dataclasses.replace(batch, rewards=batch.rewards.sign())
    expected = gradients(policy, units, CONFIG)[0]
    assert torch.equal(gradients(policy, large, clipped)[0], expected)
    assert not torch.equal(gradients(policy, large, CONFIG)[0], expected)


def test_the_loss_sees_scaled_rewards(batch):
    scaled = dataclasses.replace(CONFIG, reward_scale=0.25)
    small = dataclasses.replace(batch, rewards=batch.rewards * 0.25)
    expected = gradients(Linear(), small, CONFIG)
    assert all(map(torch.equal, gradients(Linear(), batch, scaled), expected))


def test_standardized_values_ignore_what_does_not_count():
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    values = torch.tensor([[3.0, -1.0, 900.0], [7.0, float(2**20), 11.0]])
    found = standardized(values, mask)
    counted = np.array([3.0, -1.0, 7.0, 11.0])
    expected = (counted - counted.mean()) / counted.std()
    np.testing.assert_allclose(found[mask.bool()].numpy(), expected, rtol=1e-5)
    assert not found[~mask.bool()].any()
    assert not standardized(torch.full((2, 3), 4.0), mask).any()
    assert not standardized(values, torch.zeros(2, 3)).any()


def test_standardized_advantages_do_not_depend_on_the_size_of_rewards(batch):
    normal = dataclasses.replace(CONFIG, normalize_advantages=True, baseline_cost=0.0)
    nothing = batch.observations * 0  # so that values are those of the bias: small
    few, many = (dataclasses.replace(batch, observations=nothing, rewards=batch.rewards * size)
                 for size in (1e3, 1e5))
    for small, large in zip(gradients(Linear(), few, normal), gradients(Linear(), many, normal),
                            strict=True):
        torch.testing.assert_close(small, large, rtol=2e-2, atol=2e-3)
