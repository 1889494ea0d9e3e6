"""The IMPALA loss: its gradient is the one intended, and steps that do not count do not."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from vdl_ros.rl.algorithm_config import ImpalaConfig
from vdl_ros.rl.algorithms import make_algorithm
from vdl_ros.rl.data.batch import Batch, make_batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.factory import make_policy
from vdl_ros.rl.train_config import TrainConfig

CONFIG = TrainConfig(discount=0.9, baseline_cost=0.4, entropy_cost=0.03, hidden_size=8)
OWN = ImpalaConfig(rho_clip=1.3, c_clip=0.7, vtrace_lambda=0.8)


def batch_of(random_unroll, spaces, seeds, state_size=0):
    return make_batch([random_unroll(seed, state_size=state_size) for seed in seeds],
                      UnrollSchema(*spaces, 8, 1, state_size))


def algorithm(policy, config=CONFIG, algorithm_config=OWN, group=None):
    return make_algorithm(policy, config, algorithm_config, None, group)


def gradients(policy, batch, config=CONFIG, algorithm_config=OWN):
    policy.zero_grad()
    loss, _ = algorithm(policy, config, algorithm_config).loss(batch)
    loss.backward()
    return [loss.detach()] + [each.grad.clone() for each in policy.parameters()]


@pytest.mark.parametrize('lambda_', [0.0, 0.8, 1.0])
def test_loss_and_gradient_are_those_of_the_definition(
        batch, linear, log_probs, check_gradient, naive_vtrace, lambda_):
    policy = linear()

    def outputs():
        found, values = log_probs(policy, batch.observations)
        return found[:-1], values

    actions = batch.actions.numpy()[..., None]
    valid = batch.valid.numpy()
    before, values = outputs()
    targets, advantages = naive_vtrace(
        np.take_along_axis(before, actions, -1)[..., 0] - batch.behaviour_log_probs.numpy(),
        np.where(batch.terminated.numpy(), 0.0, 0.9), batch.rewards.numpy(), values, valid,
        1.3, 0.7, lambda_)

    def definition():
        """Return the loss with targets and advantages held fixed."""
        now, values = outputs()
        chosen = np.take_along_axis(now, actions, -1)[..., 0]
        total, count = 0.0, 0
        for t, b in np.argwhere(valid):
            entropy = -(np.exp(now[t, b]) * now[t, b]).sum()
            total += -chosen[t, b] * advantages[t, b]
            total += 0.4 * 0.5 * (targets[t, b] - values[t, b]) ** 2
            total -= 0.03 * entropy
            count += 1
        return total / count

    loss, _ = algorithm(
        policy, algorithm_config=dataclasses.replace(OWN, vtrace_lambda=lambda_)).loss(batch)
    check_gradient(policy, loss, definition)


@pytest.mark.parametrize('memory', [
    {}, {'lstm_size': 4}, {'lstm_size': 4, 'last_action_reward': True}], ids=str)
def test_ignored_steps_contribute_nothing(random_unroll, spaces, ignored_changed, memory):
    config = dataclasses.replace(CONFIG, **memory)
    policy = make_policy(config, *spaces)
    batch = batch_of(random_unroll, spaces, range(3), policy.state_size)
    before = gradients(policy, batch, config)
    assert not batch.valid.all()
    assert all(map(torch.equal, before, gradients(policy, ignored_changed(batch), config)))
    counted = dataclasses.replace(batch, rewards=batch.rewards + batch.valid)
    assert not torch.equal(before[0], gradients(policy, counted, config)[0])


def test_a_policy_that_remembers_goes_on_from_the_state_of_the_unroll(random_unroll, spaces):
    config = dataclasses.replace(CONFIG, lstm_size=4)
    policy = make_policy(config, *spaces)
    batch = batch_of(random_unroll, spaces, range(3), policy.state_size)
    found, *_ = gradients(policy, batch, config)
    without = dataclasses.replace(batch, state=torch.zeros_like(batch.state))
    assert not torch.equal(found, gradients(policy, without, config)[0])
    # Where an episode begins nothing is remembered, and it does not matter.
    begun = dataclasses.replace(batch, is_reset=batch.is_reset.index_fill(
        0, torch.tensor([0]), torch.tensor(True)))
    without = dataclasses.replace(begun, state=torch.zeros_like(batch.state))
    assert torch.equal(gradients(policy, begun, config)[0],
                       gradients(policy, without, config)[0])


def test_nothing_valid_is_no_loss(batch, spaces):
    policy = make_policy(CONFIG, *spaces)
    empty = dataclasses.replace(batch, is_reset=torch.ones_like(batch.is_reset))
    assert not empty.valid.any()
    assert all(not each.any() for each in gradients(policy, empty))


def test_a_rewarded_action_becomes_likelier_and_its_state_more_valued(spaces):
    policy = make_policy(CONFIG, *spaces)
    observations = torch.full((2, 1, 3), 0.5)
    batch = Batch(
        observations, actions=torch.tensor([[2]]), rewards=torch.tensor([[1.0]]),
        terminated=torch.tensor([[True]]), truncated=torch.tensor([[False]]),
        is_reset=torch.tensor([[True], [False]]),
        behaviour_log_probs=torch.tensor([[float(np.log(0.25))]]), state=torch.zeros(1, 0))

    def now():
        parameters, values, _ = policy(observations[0])
        return float(parameters.softmax(-1)[0, 2].detach()), float(values[0].detach())

    probability, value = now()
    optimizer = torch.optim.SGD(policy.parameters(), 0.1)
    algorithm(policy, TrainConfig(entropy_cost=0.0), ImpalaConfig()).loss(batch)[0].backward()
    optimizer.step()
    assert now()[0] > probability
    assert now()[1] > value


def test_the_entropy_bonus_flattens_the_policy(batch, linear):
    policy = linear()
    entropy_only = algorithm(policy, TrainConfig(entropy_cost=1.0, baseline_cost=0.0))
    nothing = dataclasses.replace(batch, rewards=batch.rewards * 0)
    with torch.no_grad():
        policy.layer.weight[4] = policy.layer.bias[4] = 0.0  # all values and advantages are 0
    before = entropy_only.loss(nothing)[1]['losses/entropy']
    optimizer = torch.optim.SGD(policy.parameters(), 0.1)
    entropy_only.loss(nothing)[0].backward()
    optimizer.step()
    assert entropy_only.loss(nothing)[1]['losses/entropy'] > before


def test_parts_add_up_to_the_total(batch, linear):
    loss, parts = algorithm(linear()).loss(batch)
    assert all(value.shape == () for value in parts.values())
    parts = {name: float(value.detach()) for name, value in parts.items()}
    assert float(loss.detach()) == parts['losses/loss']
    assert parts['losses/loss'] == pytest.approx(
        parts['losses/policy_loss'] + 0.4 * parts['losses/value_loss']
        - 0.03 * parts['losses/entropy'])


def test_the_mean_ratio_is_of_the_steps_that_count(batch, linear):
    policy = linear()
    chosen = policy.distribution.log_prob(policy(batch.observations)[0][:-1], batch.actions)
    ratios = (chosen - batch.behaviour_log_probs).exp()[batch.valid]
    found = algorithm(policy).loss(batch)[1]['losses/mean_rho']
    assert float(found.detach()) == pytest.approx(float(ratios.mean().detach()))


def test_the_loss_sees_transformed_rewards(batch, linear):
    policy = linear()
    large = dataclasses.replace(batch, rewards=batch.rewards.sign() * 5.0)
    clipped = dataclasses.replace(CONFIG, reward_transform='abs_one')
    units = dataclasses.replace(batch, rewards=batch.rewards.sign())
    expected = gradients(policy, units)[0]
    assert torch.equal(gradients(policy, large, clipped)[0], expected)
    assert not torch.equal(gradients(policy, large)[0], expected)


def test_the_loss_sees_scaled_rewards(batch, linear):
    scaled = dataclasses.replace(CONFIG, reward_scale=0.25)
    small = dataclasses.replace(batch, rewards=batch.rewards * 0.25)
    expected = gradients(linear(), small)
    assert all(map(torch.equal, gradients(linear(), batch, scaled), expected))


def test_standardized_advantages_do_not_depend_on_the_size_of_rewards(batch, linear):
    normal = dataclasses.replace(CONFIG, normalize_advantages=True, baseline_cost=0.0)
    nothing = batch.observations * 0  # so that values are those of the bias: small
    few, many = (dataclasses.replace(batch, observations=nothing, rewards=batch.rewards * size)
                 for size in (1e3, 1e5))
    for small, large in zip(gradients(linear(), few, normal), gradients(linear(), many, normal),
                            strict=True):
        torch.testing.assert_close(small, large, rtol=2e-2, atol=2e-3)


def test_an_update_is_one_step_down_the_loss(batch, linear):
    policy = linear()
    config = dataclasses.replace(CONFIG, max_grad_norm=1e-2)
    learning = algorithm(policy, config)
    loss, *expected = gradients(policy, batch, config)
    norm = torch.cat([each.flatten() for each in expected]).norm()
    before = copy.deepcopy(policy.state_dict())
    metrics = learning.update(batch)
    assert learning.optimizer.steps == 1
    assert metrics['losses/loss'] == pytest.approx(float(loss))
    assert norm > 1e-2
    assert metrics['losses/grad_norm'] == pytest.approx(float(norm))
    # Clipped for the step, in the same direction.
    for parameter, gradient in zip(policy.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient * 1e-2 / norm, rtol=1e-3, atol=1e-9)
    assert not torch.equal(before['layer.weight'], policy.layer.weight)


def test_observations_that_count_are_taken_into_the_statistics_after_the_step(
        random_unroll, spaces):
    config = dataclasses.replace(CONFIG, normalize_observations=True)
    policy = make_policy(config, *spaces)
    batch = batch_of(random_unroll, spaces, range(3))
    expected = float(gradients(policy, batch, config)[0])
    metrics = algorithm(policy, config).update(batch)
    assert metrics['losses/loss'] == pytest.approx(expected, rel=1e-5)
    seen = batch.observations[:-1][batch.valid].double()
    assert float(policy.normalizer.count) == len(seen)
    torch.testing.assert_close(policy.normalizer.mean, seen.mean(0))
    torch.testing.assert_close(policy.normalizer.variance, seen.var(0, correction=0))


@pytest.mark.parametrize('lstm_size', [0, 4])
def test_two_learners_make_the_step_of_one_with_the_joined_batch(
        pair, random_unroll, spaces, lstm_size):
    config = dataclasses.replace(CONFIG, lstm_size=lstm_size, normalize_advantages=True,
                                 normalize_observations=True)
    torch.manual_seed(3)
    alone = make_policy(config, *spaces)
    both = copy.deepcopy(alone), copy.deepcopy(alone)
    joined, *halves = (batch_of(random_unroll, spaces, seeds, alone.state_size)
                       for seeds in ((0, 1, 2), (0,), (1, 2)))
    expected = algorithm(alone, config).update(joined)
    found = pair(*(
        lambda group, which=which: algorithm(both[which], config, group=group).update(
            halves[which]) for which in (0, 1)))
    assert found[0] == found[1] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for policy in both:
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(
                dict(policy.named_parameters())[name].grad, parameter.grad, rtol=1e-4, atol=1e-5)
        for name, value in alone.normalizer.state_dict().items():
            torch.testing.assert_close(policy.normalizer.state_dict()[name], value)
