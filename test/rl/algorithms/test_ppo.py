"""PPO: the losses of the paper's equations, and what an update does with a batch."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vdl_ros.rl.algorithms.ppo import PpoBatch
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema

# The named tensors that an update adds to a batch.
TARGETS = ('old_parameters', 'advantages', 'returns')


def with_targets(batch, policy, seed=0):
    """Return the batch with random targets; the old policy differs a little."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        parameters = policy(batch.observations).parameters[:-1]

    def noise(like):
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)
    return PpoBatch(
        **vars(batch), old_parameters=parameters + 0.3 * noise(parameters),
        advantages=noise(batch.rewards), returns=noise(batch.rewards))


@pytest.mark.parametrize('form', ['clip', 'kl', 'hinge'])
def test_loss_and_gradient_are_those_of_the_paper(
        batch, linear, algorithm, config, log_probs, check_gradient, form):
    """Equation (7), or (8) with beta, and WALL-E's hinge; with the terms of equation (9)."""
    policy = linear()
    learner = algorithm(policy, config('ppo'), ppo_form=form, ppo_clip=0.3)
    learner.penalty.beta = 1.7
    batch = with_targets(batch, policy)
    actions, valid = batch.actions.numpy(), batch.valid.numpy()
    old = batch.old_parameters.numpy()
    old = old - np.log(np.exp(old).sum(-1, keepdims=True))
    behaviour = batch.behaviour_log_probs.numpy()
    counts = {'clipped': 0, 'kept': 0}

    def definition():
        log_pi, values = log_probs(policy, batch.observations)
        total, counts['clipped'], counts['kept'], kl = 0.0, 0, 0, 0.0
        for t, b in np.argwhere(valid):
            ratio = np.exp(log_pi[t, b][actions[t, b]] - behaviour[t, b])
            advantage = float(batch.advantages[t, b])
            if form == 'clip':
                surrogate = min(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage)
                counts['clipped' if abs(ratio - 1) > 0.3 else 'kept'] += 1
            else:
                divergence = (np.exp(old[t, b]) * (old[t, b] - log_pi[t, b])).sum()
                surrogate = ratio * advantage - 1.7 * divergence
                kl += divergence / valid.sum()
            total -= surrogate
            total += 0.4 * 0.5 * (float(batch.returns[t, b]) - values[t, b]) ** 2
            total += 0.03 * (np.exp(log_pi[t, b]) * log_pi[t, b]).sum()
        hinge = 50 * max(0, kl - 0.02) ** 2 if form == 'hinge' else 0
        return total / valid.sum() + hinge

    loss, parts = learner.loss(batch)
    check_gradient(policy, loss, definition)
    if form == 'hinge':
        assert float(parts['losses/approx_kl'].detach()) > 0.02
    if form == 'clip':
        definition()
        assert min(counts.values()) > 5
        assert float(parts['losses/clipfrac']) == pytest.approx(counts['clipped'] / valid.sum())


@pytest.mark.parametrize('form', ['clip', 'kl'])
def test_ignored_steps_contribute_nothing(
        batch, linear, algorithm, config, ignored_changed, form):
    """Also not to advantages, returns and what they are standardised with."""
    settings = config('ppo', normalize_advantages=True)
    policies = []
    for given in (batch, ignored_changed(batch),
                  dataclasses.replace(batch, rewards=batch.rewards * (1.0 + batch.valid))):
        learner = algorithm(linear(), settings, ppo_form=form, normalize_returns=True,
                            ppo_minibatches=1, ppo_epochs=2, ppo_kl_target=10.0)
        torch.manual_seed(0)
        learner.update(given)
        policies.append(learner.policy.layer.weight.detach())
    assert torch.equal(policies[0], policies[1])
    assert not torch.allclose(policies[0], policies[2])


class Spied:
    """Records the calls of an algorithm's ``loss``: minibatches and divergences."""

    def __init__(self, learner, monkeypatch):
        self.calls, loss = [], learner.loss

        def spy(batch):
            found = loss(batch)
            self.calls.append(SimpleNamespace(
                batch=batch, kl=float(found[1]['losses/approx_kl'].detach())))
            return found

        monkeypatch.setattr(learner, 'loss', spy)


def numbered(batch):
    """Return the batch with the number of a step in its observation's first place."""
    observations = batch.observations.clone()
    observations[..., 0] = torch.arange(observations[..., 0].numel()).reshape(
        observations.shape[:2])
    return dataclasses.replace(batch, observations=observations)


def steps_of(batch):
    return batch.observations[:len(batch.rewards), :, 0].flatten().long()


@pytest.mark.parametrize('minibatches', [1, 4, 7, 50, 72])
def test_each_step_is_learned_from_once_an_epoch(
        batch, linear, algorithm, config, monkeypatch, minibatches):
    batch = numbered(batch)
    learner = algorithm(linear(), config('ppo', learning_rate=0.0), ppo_epochs=3,
                        ppo_minibatches=minibatches, ppo_kl_target=10.0)
    spied = Spied(learner, monkeypatch)
    metrics = learner.update(batch)
    epoch = len(spied.calls) // 3
    assert metrics['losses/minibatches'] == len(spied.calls) == 3 * epoch
    assert epoch == minibatches
    batch, _ = learner.add_targets(batch)
    orders = []
    for first in range(0, len(spied.calls), epoch):
        calls = spied.calls[first:first + epoch]
        order = torch.cat([steps_of(each.batch) for each in calls])
        assert order.sort().values.tolist() == list(range(72))
        orders.append(order)
        for each in calls:
            # A step goes with what belongs to it.
            steps = steps_of(each.batch)
            for name in ('actions', 'rewards', 'terminated', 'behaviour_log_probs', 'valid'):
                assert torch.equal(getattr(each.batch, name).flatten(),
                                   getattr(batch, name).flatten()[steps])
            for name in TARGETS:
                assert torch.equal(getattr(each.batch, name).flatten(0, 1),
                                   getattr(batch, name).flatten(0, 1)[steps])
    assert not torch.equal(orders[0], orders[1])


@pytest.mark.parametrize('minibatches', [1, 3, 7, 9])
def test_minibatches_of_a_recurrent_policy_are_whole_columns(
        random_unroll, real, config, monkeypatch, minibatches, schema):
    batch = numbered(make_batch([random_unroll(seed) for seed in range(3)], schema))
    batch = dataclasses.replace(batch, state=torch.randn(9, 10))
    learner = real(config('ppo', lstm_size=5, learning_rate=0.0), ppo_epochs=2,
                   ppo_minibatches=minibatches, ppo_kl_target=10.0)
    spied = Spied(learner, monkeypatch)
    learner.update(batch)
    batch, _ = learner.add_targets(batch)
    assert len(spied.calls) == 2 * minibatches
    for first in (0, minibatches):
        columns = []
        for each in spied.calls[first:first + minibatches]:
            here = each.batch.observations[0, :, 0].long()
            columns += here.tolist()
            for name in ('observations', 'actions', 'rewards', 'is_reset', 'valid', *TARGETS):
                assert torch.equal(getattr(each.batch, name), getattr(batch, name)[:, here])
            assert torch.equal(each.batch.state, batch.state[here])
        assert sorted(columns) == list(range(9))


def test_targets_are_gae_of_the_policy_at_the_start(
        batch, linear, algorithm, config, log_probs, naive_gae, monkeypatch):
    policy = linear()
    values = log_probs(policy, batch.observations)[1]
    valid = batch.valid.numpy()
    advantages = naive_gae(np.where(batch.terminated.numpy(), 0.0, 0.9), batch.rewards.numpy(),
                           values, valid, 0.8)
    standardized = (advantages - advantages[valid].mean()) / advantages[valid].std()
    learner = algorithm(policy, config('ppo', normalize_advantages=True, learning_rate=0.1),
                        ppo_minibatches=1, ppo_epochs=3, ppo_kl_target=10.0)
    spied = Spied(learner, monkeypatch)
    learner.update(batch)
    assert spied.calls[-1].kl > 0.0
    for call in spied.calls:
        order = np.argsort([tuple(each) for each in call.batch.observations[0].tolist()], 0)[:, 0]
        whole = np.argsort(batch.observations[:-1, ..., 0].flatten().numpy())
        for found, expected in (
                (call.batch.advantages, np.where(valid, standardized, 0.0)),
                (call.batch.returns, advantages + values[:-1])):
            np.testing.assert_allclose(
                found.numpy()[0][order], expected.flatten()[whole], rtol=1e-5, atol=1e-6)


def test_returns_are_normalised_by_all_that_came(
        batch, linear, algorithm, config, log_probs, naive_gae, monkeypatch):
    """Values are undone by the old statistics, returns normalised by the new ones."""
    policy = linear()
    learner = algorithm(policy, config('ppo', learning_rate=0.1), normalize_returns=True,
                        ppo_minibatches=1, ppo_epochs=2, ppo_kl_target=10.0)
    spied, seen, mean, deviation = Spied(learner, monkeypatch), [], 0.0, 1.0
    valid = batch.valid.numpy()
    for number in range(3):
        given = dataclasses.replace(batch, rewards=batch.rewards * 10 + 7 * number)
        values = log_probs(policy, batch.observations)[1] * deviation + mean
        returns = values[:-1] + naive_gae(
            np.where(batch.terminated.numpy(), 0.0, 0.9), given.rewards.numpy(), values, valid,
            0.8)
        seen += returns[valid].tolist()
        learner.update(given)
        mean, deviation = np.mean(seen), np.std(seen)
        expected = ((returns - mean) / deviation)[valid]
        for call in spied.calls[2 * number:]:
            found = call.batch.returns[call.batch.valid].numpy()
            np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-4, atol=1e-5)
    assert abs(mean) > 5.0
    assert deviation > 5.0


def test_epochs_end_early_when_the_policy_moved_too_far(
        batch, linear, algorithm, config):
    def minibatches(**changes):
        learner = algorithm(linear(), config('ppo', max_grad_norm=1e6, **changes),
                            ppo_epochs=6, ppo_minibatches=4, ppo_kl_target=0.01)
        return learner.update(batch)

    far, near = minibatches(learning_rate=0.3), minibatches(learning_rate=1e-5)
    assert far['losses/minibatches'] == 4
    assert far['losses/last_kl'] > 0.04
    assert near['losses/minibatches'] == 24
    assert 0.0 <= near['losses/last_kl'] < 0.04


def test_epochs_end_early_at_four_times_ppo_kl_target(batch, linear, algorithm, config):
    def update(target):
        learner = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_epochs=2,
                            ppo_minibatches=4, ppo_kl_target=target)
        torch.manual_seed(0)
        return learner.update(batch)

    first = update(1e-6)
    assert first['losses/minibatches'] == 4
    kl = first['losses/last_kl']
    assert update(kl / 4 * 0.999)['losses/minibatches'] == 4
    assert update(kl / 4 * 1.001)['losses/minibatches'] == 8


def test_approx_kl_is_from_the_policy_at_the_start_of_the_update(
        batch, linear, algorithm, config, log_probs, monkeypatch):
    learner = algorithm(linear(), config('ppo', learning_rate=0.05), ppo_epochs=3,
                        ppo_minibatches=1, ppo_kl_target=10.0)
    old = log_probs(learner.policy, batch.observations)[0]
    steps, kls = learner.optimizer.step, []

    def spy(loss, parts):
        new = log_probs(learner.policy, batch.observations)[0]
        kls.append((np.exp(old) * (old - new)).sum(-1)[:-1][batch.valid.numpy()].mean())
        return steps(loss, parts)

    monkeypatch.setattr(learner.optimizer, 'step', spy)
    metrics = learner.update(batch)
    assert kls[0] == pytest.approx(0.0, abs=1e-9)
    assert kls[2] > 1e-3
    assert metrics['losses/last_kl'] == pytest.approx(kls[2], rel=1e-4)
    assert metrics['losses/approx_kl'] == pytest.approx(np.mean(kls), rel=1e-4)


@pytest.mark.parametrize('options', [
    {}, {'ppo_form': 'kl'}, {'ppo_form': 'hinge'}, {'normalize_returns': True}], ids=str)
def test_two_learners_are_one_with_a_joined_batch(together, config, options):
    alone, members = together(
        config('ppo', normalize_advantages=True, normalize_observations=True), updates=3,
        ppo_epochs=3, ppo_minibatches=1, ppo_kl_target=1e-3, **options)
    assert [each.penalty.beta for each in members] == [alone.penalty.beta] * 2
    if 'ppo_form' in options:
        assert alone.penalty.beta != 1.0


@pytest.mark.parametrize(('changes', 'parts'), [({}, 7), ({'lstm_size': 4}, 2)], ids=str)
def test_all_of_a_group_make_the_same_number_of_steps(
        random_unroll, spaces, pair, real, config, alike, changes, parts):
    """Whose batches are of different sizes: of columns the smaller one has two."""
    members = [real(config('ppo', **changes), ppo_minibatches=7, ppo_epochs=2,
                    ppo_kl_target=10.0) for _ in range(2)]
    schema = UnrollSchema(*spaces, 8, 1, members[0].policy.state_size)

    def learn(rank):
        def run(group):
            member = members[rank]
            member.group = member.optimizer.group = group
            batch = make_batch([random_unroll(rank, batch=2 + 6 * rank,
                                              state_size=schema.state_size)], schema)
            return member.update(batch)['losses/minibatches']
        return run

    assert pair(learn(0), learn(1)) == [2 * parts] * 2
    alike(members[0].policy, members[1].policy)


def test_explained_variance_is_that_of_the_values_before_the_update(
        batch, linear, algorithm, config, log_probs):
    policy = linear()
    values = log_probs(policy, batch.observations)[1][:-1]
    learner = algorithm(policy, config('ppo', learning_rate=0.1), ppo_minibatches=2)
    valid = batch.valid.numpy()
    returns = learner.add_targets(batch)[0].returns.numpy()
    expected = 1.0 - np.var((returns - values)[valid]) / np.var(returns[valid])
    found = learner.update(batch)['losses/explained_variance']
    assert found == pytest.approx(expected, rel=1e-5)
    assert found < 1.0
