"""PPO: the losses of the paper's equations, what an update does with a batch, the penalty."""

import dataclasses

import numpy as np
import pytest
import torch

from vdl_ros.rl.algorithms.ppo import KlPenalty, PpoBatch
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.settings import PpoConfig

# Tensors of a batch with a value for each step; an update adds the last three.
STEPWISE = ('actions', 'rewards', 'terminated', 'behaviour_log_probs', 'valid',
            'old_parameters', 'advantages', 'returns')


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


def minibatches_of(learner):
    """Return the list that the minibatches of an algorithm's updates are appended to."""
    found, loss = [], learner.loss
    learner.loss = lambda batch: (found.append(batch), loss(batch))[1]
    return found


def numbered(batch):
    """Return the batch with the number of a step in its observation's first place."""
    observations = batch.observations.clone()
    observations[..., 0] = torch.arange(observations[..., 0].numel()).reshape(
        observations.shape[:2])
    return dataclasses.replace(batch, observations=observations)


def steps_of(batch):
    return batch.observations[:len(batch.rewards), :, 0].flatten().long()


@pytest.mark.parametrize(('lstm_size', 'minibatches'), [(0, 7), (5, 1), (5, 7)])
def test_each_step_is_learned_from_once_an_epoch_with_a_memory_in_whole_columns(
        batch, real, config, lstm_size, minibatches):
    batch = dataclasses.replace(numbered(batch), state=torch.randn(9, 2 * lstm_size))
    learner = real(config('ppo', lstm_size=lstm_size, learning_rate=0.0), ppo_epochs=2,
                   ppo_minibatches=minibatches, ppo_kl_target=10.0)
    seen = minibatches_of(learner)
    metrics = learner.update(batch)
    assert metrics['losses/minibatches'] == len(seen) == 2 * minibatches
    batch, _ = learner.add_targets(batch)
    orders = []
    for first in (0, minibatches):
        epoch = seen[first:first + minibatches]
        orders.append([step for each in epoch for step in steps_of(each).tolist()])
        assert sorted(orders[-1]) == list(range(72))
        for each in epoch:
            steps = steps_of(each)
            for name in STEPWISE:
                found, expected = (getattr(one, name).flatten(0, 1) for one in (each, batch))
                assert torch.equal(found, expected[steps]), name
            if lstm_size:
                columns = steps[:each.rewards.shape[1]]
                for name in ('observations', 'is_reset'):
                    assert torch.equal(getattr(each, name), getattr(batch, name)[:, columns])
                assert torch.equal(each.state, batch.state[columns])
    assert orders[0] != orders[1]


def test_targets_are_gae_of_the_policy_at_the_start(
        batch, linear, algorithm, config, log_probs, naive_gae):
    policy = linear()
    values = log_probs(policy, batch.observations)[1]
    valid = batch.valid.numpy()
    advantages = naive_gae(np.where(batch.terminated.numpy(), 0.0, 0.9), batch.rewards.numpy(),
                           values, valid, 0.8)
    standardized = (advantages - advantages[valid].mean()) / advantages[valid].std()
    found, _ = algorithm(policy, config('ppo', normalize_advantages=True)).add_targets(batch)
    for one, expected in ((found.advantages, np.where(valid, standardized, 0.0)),
                          (found.returns, advantages + values[:-1])):
        np.testing.assert_allclose(one.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_returns_are_normalised_by_all_that_came(
        batch, linear, algorithm, config, log_probs, naive_gae):
    """Values are undone by the old statistics, returns normalised by the new ones."""
    policy = linear()
    learner = algorithm(policy, config('ppo', learning_rate=0.1), normalize_returns=True,
                        ppo_minibatches=1, ppo_epochs=2, ppo_kl_target=10.0)
    minibatches, seen, mean, deviation = minibatches_of(learner), [], 0.0, 1.0
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
        for each in minibatches[2 * number:]:
            found = each.returns[each.valid].numpy()
            np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-4, atol=1e-5)
    assert abs(mean) > 5.0
    assert deviation > 5.0


@pytest.fixture
def update(batch, linear, algorithm, config):
    """Return a function: an algorithm of these settings after one update, and its metrics."""
    def run(**options):
        learner = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_minibatches=4,
                            **options)
        torch.manual_seed(0)
        return learner, learner.update(batch)
    return run


def test_epochs_end_early_at_four_times_ppo_kl_target(update):
    _, first = update(ppo_epochs=2, ppo_kl_target=1e-6)
    assert first['losses/minibatches'] == 4
    kl = first['losses/last_kl']
    for share, count in ((0.999, 4), (1.001, 8)):
        _, found = update(ppo_epochs=2, ppo_kl_target=kl / 4 * share)
        assert found['losses/minibatches'] == count


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


def test_beta_adapts_to_the_divergence(update):
    """Twice where it is over 1.5 times the target, half where under the target / 1.5."""
    kl = update(ppo_form='kl', ppo_epochs=1)[1]['losses/last_kl']
    assert kl > 1e-5
    for share, beta in ((1.51, 2.0), (1.49, 1.0), (1 / 1.49, 1.0), (1 / 1.51, 0.5)):
        target = {'ppo_epochs': 1, 'ppo_kl_target': kl / share}
        learner, metrics = update(ppo_form='kl', **target)
        assert metrics['losses/last_kl'] == kl
        assert learner.penalty.beta == metrics['losses/kl_beta'] == beta, share
        assert update(ppo_form='clip', **target)[0].penalty.beta == 1.0, share


def test_a_hinge_changes_the_learning_rate_where_beta_cannot(batch, linear, algorithm, config):
    """WALL-E: beta by 1.5 from 1/35 to 35, the learning rate too beyond 30 or 1/30."""
    penalty = KlPenalty(PpoConfig(ppo_form='hinge', ppo_kl_target=0.01))
    penalty.adapt(0.019)
    penalty.adapt(0.0051)
    assert penalty.beta == 1.0
    penalty.adapt(0.021)
    assert penalty.beta == 1.5
    rates = []
    for _ in range(16):
        penalty.adapt(0.021)
        rates.append(penalty.learning_rate_factor)
    assert penalty.beta == 35.0
    assert rates[6:9] == [1.0, pytest.approx(1 / 1.5), pytest.approx(1 / 2.25)]
    assert rates[-1] == 0.1
    for _ in range(40):
        penalty.adapt(0.004)
    assert (penalty.beta, penalty.learning_rate_factor) == (pytest.approx(1 / 35), 10.0)
    # A run that goes on with another form has nothing of it.
    for form, beta in (('kl', 1 / 35), ('clip', 1.0)):
        other = KlPenalty(PpoConfig(ppo_form=form))
        other.load_state(penalty.state())
        assert (other.beta, other.learning_rate_factor) == (pytest.approx(beta), 1.0)
    learner = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_form='hinge',
                        ppo_epochs=1, ppo_minibatches=2, ppo_kl_target=1e-6)
    learner.penalty.beta = 34.0
    learner.update(batch)
    learner.optimizer.schedule(0)
    assert learner.optimizer.learning_rate == pytest.approx(0.01 / 1.5)
    other = algorithm(linear(), config('ppo', learning_rate=0.01), ppo_form='hinge')
    other.load_state(learner.state())
    other.optimizer.schedule(0)
    assert other.optimizer.learning_rate == pytest.approx(0.01 / 1.5)


def test_one_step_does_not_change_beta(random_unroll, spaces, real, config):
    """A single column is a single minibatch: the divergence before its step is always 0."""
    learner = real(config('ppo', lstm_size=3, learning_rate=0.01), ppo_form='kl', ppo_epochs=1,
                   ppo_minibatches=4, ppo_kl_target=0.5)
    size = learner.policy.state_size
    schema = UnrollSchema(*spaces, 8, 1, size)
    found = []
    for columns in (1, 1, 2, 1):
        metrics = learner.update(make_batch(
            [random_unroll(len(found), batch=columns, state_size=size)], schema))
        found.append((metrics['losses/minibatches'], learner.penalty.beta))
    assert found == [(1, 1.0), (1, 1.0), (2, 0.5), (1, 0.5)]
