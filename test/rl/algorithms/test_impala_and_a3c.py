"""IMPALA and A3C: losses and gradients are those of the definitions; what they are told of."""

import dataclasses

import numpy as np
import pytest
import torch

from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema

CLIPS = {'rho_clip': 1.3, 'c_clip': 0.7, 'vtrace_lambda': 0.8}


def transformed(rewards, settings):
    """Return rewards as a loss sees them."""
    if settings.reward_transform == 'abs_one':
        rewards = np.clip(rewards, -1.0, 1.0)
    return settings.reward_scale * rewards


def gradients(learner, batch):
    learner.policy.zero_grad()
    loss, _ = learner.loss(batch)
    loss.backward()
    return [loss.detach(), *(each.grad.clone() for each in learner.policy.parameters())]


@pytest.mark.parametrize(('name', 'changes', 'options'), [
    ('impala', {}, {}), ('impala', {'normalize_advantages': True}, {'vtrace_lambda': 0.0}),
    ('impala', {'reward_scale': 0.25, 'reward_transform': 'abs_one'}, {'vtrace_lambda': 1.0}),
    ('a3c', {}, {}), ('a3c', {'gae_lambda': 1.0, 'normalize_advantages': True}, {}),
    ('a3c', {'reward_scale': 0.25, 'reward_transform': 'abs_one'}, {})], ids=str)
def test_loss_and_gradient_are_those_of_the_definition(
        batch, linear, algorithm, config, log_probs, check_gradient, naive_vtrace, naive_gae,
        name, changes, options):
    """With targets and advantages held fixed."""
    policy, settings = linear(), config(name, **changes)
    actions, valid = batch.actions.numpy()[..., None], batch.valid.numpy()
    discounts = np.where(batch.terminated.numpy(), 0.0, 0.9)
    rewards = transformed(batch.rewards.numpy(), settings)
    assert np.abs(batch.rewards.numpy()).max() > 1.0

    def outputs():
        found, values = log_probs(policy, batch.observations)
        return found[:-1], values

    log_pi, values = outputs()
    if name == 'impala':
        options = {**CLIPS, **options}
        ratios = np.take_along_axis(log_pi, actions, -1)[..., 0]
        targets, advantages = naive_vtrace(
            ratios - batch.behaviour_log_probs.numpy(), discounts, rewards, values, valid,
            1.3, 0.7, options['vtrace_lambda'])
    else:
        advantages = naive_gae(discounts, rewards, values, valid, settings.gae_lambda)
        targets = advantages + values[:-1]
    if settings.normalize_advantages:
        advantages = (advantages - advantages[valid].mean()) / advantages[valid].std()

    def definition():
        log_pi, values = outputs()
        total = 0.0
        for t, b in np.argwhere(valid):
            total -= log_pi[t, b][actions[t, b, 0]] * advantages[t, b]
            total += 0.4 * 0.5 * (targets[t, b] - values[t, b]) ** 2
            total += 0.03 * (np.exp(log_pi[t, b]) * log_pi[t, b]).sum()
        return total / valid.sum()

    loss, parts = algorithm(policy, settings, **options).loss(batch)
    check_gradient(policy, loss, definition)
    assert parts['losses/loss'] is loss
    assert all(part.shape == () for part in parts.values())
    parts = {each: float(part.detach()) for each, part in parts.items()}
    assert parts['losses/loss'] == pytest.approx(
        parts['losses/policy_loss'] + 0.4 * parts['losses/value_loss']
        - 0.03 * parts['losses/entropy'])
    if name == 'impala':
        rhos = np.exp(ratios - batch.behaviour_log_probs.numpy())[valid]
        assert parts['losses/mean_rho'] == pytest.approx(rhos.mean(), rel=1e-5)


def test_a3c_corrects_nothing_for_the_policy_that_acted(batch, linear, algorithm, config):
    learner = algorithm(linear(), config('a3c'))
    other = dataclasses.replace(batch, behaviour_log_probs=batch.behaviour_log_probs - 2.0)
    with torch.no_grad():
        (loss, parts), (other_loss, other_parts) = learner.loss(batch), learner.loss(other)
    assert torch.equal(loss, other_loss)
    # But says how far off it was.
    difference = parts['losses/approx_kl'] - other_parts['losses/approx_kl']
    assert float(difference) == pytest.approx(2.0, abs=1e-5)


def test_a_policy_that_remembers_goes_on_from_the_state_of_the_unroll(
        random_unroll, spaces, real, config):
    learner = real(config('impala', lstm_size=4))
    batch = make_batch([random_unroll(seed, state_size=8) for seed in range(3)],
                       UnrollSchema(*spaces, 8, 1, 8))
    # Where an episode begins nothing is remembered, and it does not matter.
    begun = dataclasses.replace(batch, is_reset=batch.is_reset.index_fill(
        0, torch.tensor([0]), torch.tensor(True)))
    for given, matters in ((batch, True), (begun, False)):
        without = dataclasses.replace(given, state=torch.zeros_like(given.state))
        found, other = gradients(learner, given)[0], gradients(learner, without)[0]
        assert torch.equal(found, other) != matters
