"""A3C: the loss and its gradient are those of the definition."""

import dataclasses

import numpy as np
import pytest
import torch


@pytest.mark.parametrize('changes', [
    {}, {'gae_lambda': 1.0}, {'normalize_advantages': True},
    {'reward_scale': 0.25, 'reward_transform': 'abs_one'}], ids=str)
def test_loss_and_gradient_are_those_of_the_definition(
        batch, linear, algorithm, config, log_probs, naive_gae, check_gradient, changes):
    policy, settings = linear(), config('a3c', **changes)
    actions, valid = batch.actions.numpy()[..., None], batch.valid.numpy()
    rewards = batch.rewards.numpy()
    if 'reward_scale' in changes:
        rewards = 0.25 * np.clip(rewards, -1.0, 1.0)
        assert np.abs(batch.rewards.numpy()).max() > 1.0
    values = log_probs(policy, batch.observations)[1]
    advantages = naive_gae(np.where(batch.terminated.numpy(), 0.0, 0.9), rewards, values, valid,
                           settings.gae_lambda)
    returns = advantages + values[:-1]
    if settings.normalize_advantages:
        counted = advantages[valid]
        advantages = (advantages - counted.mean()) / counted.std()

    def definition():
        """Return the loss with advantages and returns held fixed."""
        log_pi, values = log_probs(policy, batch.observations)
        total = 0.0
        for t, b in np.argwhere(valid):
            total -= log_pi[t, b][actions[t, b, 0]] * advantages[t, b]
            total += 0.4 * 0.5 * (returns[t, b] - values[t, b]) ** 2
            total += 0.03 * (np.exp(log_pi[t, b]) * log_pi[t, b]).sum()
        return total / valid.sum()

    loss, parts = algorithm(policy, settings).loss(batch)
    check_gradient(policy, loss, definition)
    assert parts['losses/loss'] is loss
    parts = {name: float(part.detach()) for name, part in parts.items()}
    assert parts['losses/loss'] == pytest.approx(
        parts['losses/policy_loss'] + 0.4 * parts['losses/value_loss']
        - 0.03 * parts['losses/entropy'])


def test_it_corrects_nothing_for_the_policy_that_acted(batch, linear, algorithm, config):
    learner = algorithm(linear(), config('a3c'))
    other = dataclasses.replace(batch, behaviour_log_probs=batch.behaviour_log_probs - 2.0)
    with torch.no_grad():
        (loss, parts), (other_loss, other_parts) = learner.loss(batch), learner.loss(other)
    assert torch.equal(loss, other_loss)
    # But says how far off it was.
    difference = parts['losses/approx_kl'] - other_parts['losses/approx_kl']
    assert float(difference) == pytest.approx(2.0, abs=1e-5)


@pytest.mark.parametrize('name', ['a3c', 'impala'])
@pytest.mark.parametrize('normalize', [False, True])
def test_ignored_steps_contribute_nothing(
        batch, linear, algorithm, config, ignored_changed, name, normalize):
    learner = algorithm(linear(), config(name, normalize_advantages=normalize))

    def gradients(batch):
        learner.policy.zero_grad()
        loss, _ = learner.loss(batch)
        loss.backward()
        return [loss.detach(), *(each.grad.clone() for each in learner.policy.parameters())]

    before = gradients(batch)
    assert all(map(torch.equal, before, gradients(ignored_changed(batch))))
    counted = dataclasses.replace(batch, rewards=batch.rewards * (1.0 + batch.valid))
    assert not torch.equal(before[0], gradients(counted)[0])


def test_where_no_step_counts_there_is_no_loss(batch, linear, algorithm, config):
    resets = torch.ones_like(batch.is_reset)
    loss, _ = algorithm(linear(), config('a3c')).loss(
        dataclasses.replace(batch, is_reset=resets))
    assert float(loss.detach()) == 0.0


@pytest.mark.parametrize('name', ['a3c', 'impala'])
@pytest.mark.parametrize('normalize', [False, True])
def test_two_learners_are_one_with_a_joined_batch(together, config, name, normalize):
    together(config(name, normalize_advantages=normalize, normalize_observations=normalize))


@pytest.mark.parametrize(('name', 'options'), [
    ('a3c', {}), ('impala', {}), ('ppo', {}), ('reinforce', {'reinforce_episodes': 1}),
    ('dqn', {'replay_start': 1, 'replay_size': 1000}),
    ('sac', {'replay_start': 1, 'replay_size': 1000})])
def test_observations_are_seen_after_the_step_and_without_ignored_ones(
        batch, real, config, monkeypatch, name, options):
    learner = real(config(name, normalize_observations=True), **options)
    counts, loss = [], learner.loss

    def spy(*given):
        counts.append(float(learner.policy.normalizer.count))
        return loss(*given)

    monkeypatch.setattr(learner, 'loss', spy)
    for _ in range(2):
        learner.update(batch)
    seen = batch.observations[:-1][batch.valid].numpy()
    assert list(dict.fromkeys(counts)) == [0.0, len(seen)]
    np.testing.assert_allclose(
        learner.policy.normalizer.mean.numpy(), seen.astype(np.float64).mean(0), rtol=1e-9)
