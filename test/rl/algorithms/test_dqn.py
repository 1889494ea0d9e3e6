"""DQN: the loss of what is drawn, what is noted of it, and the target network."""

import numpy as np
import pytest
import torch

from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema


def huber(error):
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


def filled(schema, batch, n, alpha=0.0):
    replay = Replay(schema, 9 * 8, 0.9, n, alpha)
    replay.add(batch, batch.rewards)
    return replay


def make(algorithm, policy, settings, **options):
    """Return the algorithm with a target network that is not the policy."""
    learner = algorithm(policy, settings, **{
        'replay_size': 72, 'replay_start': 1, 'replay_batch': 32, **options})
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter += torch.randn_like(parameter)
    return learner


@pytest.mark.parametrize('double', [True, False])
@pytest.mark.parametrize('n', [1, 3])
@pytest.mark.parametrize('prioritized', [False, True])
def test_loss_and_gradient_are_those_of_the_definition(
        batch, linear_values, algorithm, config, schema, check_gradient, table, double,
        n, prioritized):
    policy = linear_values()
    learner = make(algorithm, policy, config('dqn'), double_q=double, n_step=n,
                   prioritized=prioritized, importance_exponent=0.5)
    replay = filled(schema, batch, n, 0.7)
    columns, times = torch.nonzero(replay.valid, as_tuple=True)
    replay.update_priorities(columns, times, torch.linspace(0.1, 3.0, len(columns)))
    torch.manual_seed(0)
    sample, rows, count = replay.sample(32), table(batch, n), replay.steps

    def q(network, b, t):
        return network(batch.observations[t, b]).parameters[:4].detach().numpy()

    targets, weights = [], []
    other_choice = 0
    for b, t, odds in zip(*(each.tolist() for each in vars(sample).values()), strict=True):
        total, factor, later = rows[b, t]
        of_target, of_policy = q(learner.target, b, later), q(policy, b, later)
        other_choice += of_target.argmax() != of_policy.argmax()
        best = of_target[of_policy.argmax()] if double else of_target.max()
        targets.append(total + factor * best)
        # Of the paper: (1 / N * 1 / P) ^ beta, over the largest of them.
        weights.append((count * odds) ** -0.5 if prioritized else 1.0)
    weights = np.array(weights) / max(weights)
    assert other_choice > 5

    def definition():
        return np.mean([
            weight * huber(target - q(policy, b, t)[batch.actions[t, b]])
            for b, t, target, weight in zip(
                sample.column.tolist(), sample.time.tolist(), targets, weights, strict=True)])

    loss, parts = learner.loss(replay, sample)
    check_gradient(policy, loss, definition)
    errors = np.array([target - q(policy, b, t)[batch.actions[t, b]] for b, t, target in zip(
        sample.column.tolist(), sample.time.tolist(), targets, strict=True)])
    assert float(parts['losses/td_error'].detach()) == pytest.approx(
        np.abs(errors).mean(), rel=1e-5)
    assert all(each.grad is None for each in learner.target.parameters())
    assert len(sample.probabilities.unique()) > 10


def test_what_was_learned_from_is_drawn_by_its_error(
        batch, linear_values, algorithm, config, schema, table):
    learner = make(algorithm, linear_values(), config('dqn'), prioritized=True)
    replay = filled(schema, batch, 1, 0.7)
    place = torch.nonzero(replay.valid)[[5, 30]].T
    learner.loss(replay, Sample(*place, torch.full((2,), 0.02)))
    with torch.no_grad():
        errors = []
        for b, t in place.T.tolist():
            total, factor, later = table(batch, 1)[b, t]
            following = batch.observations[later, b]
            best = learner.policy(following).parameters[:4].argmax()
            value = learner.policy(batch.observations[t, b]).parameters[batch.actions[t, b]]
            errors.append(float(
                total + factor * learner.target(following).parameters[best] - value))
    drawn = replay.sample(4000)
    weights = [abs(each) ** 0.7 for each in errors]
    # All others still have the weight 1 of what is new.
    rest = replay.steps - 2 + sum(weights)
    for (b, t), weight in zip(place.T.tolist(), weights, strict=True):
        odds = drawn.probabilities[(drawn.column == b) & (drawn.time == t)]
        assert len(odds) > 5
        assert odds.tolist() == pytest.approx([weight / rest] * len(odds), rel=1e-4)


@pytest.mark.parametrize('prioritized', [False, True])
@pytest.mark.parametrize('double', [True, False])
def test_with_a_memory_whole_columns_are_learned_from(
        random_unroll, real, config, spaces, table, double, prioritized):
    """Each column is walked through from the state that its actor had, and forgets at resets."""
    settings = config('dqn', lstm_size=5)
    learner = make(lambda policy, settings, **options: real(settings, **options), None, settings,
                   double_q=double, n_step=2, prioritized=prioritized)
    schema = UnrollSchema(*spaces, 8, 1, 10)
    batch = make_batch([random_unroll(seed, state_size=10) for seed in range(3)], schema)
    replay = filled(schema, batch, 2, 0.7)
    sample = Sample(torch.tensor([3, 8, 3, 0]), torch.zeros(4, dtype=torch.int64),
                    torch.full((4,), 0.02))

    def walk(network, b):
        state, found = batch.state[b:b + 1], []
        for t in range(9):
            if batch.is_reset[t, b]:
                state = torch.zeros(1, 10)
            parameters, _, state = network(
                batch.observations[t:t + 1, b:b + 1], torch.zeros(1, 1, dtype=torch.bool), state)
            found.append(parameters[0, 0, :-1].detach().numpy())
        return found

    total, count, errors = 0.0, 0, {}
    rows = table(batch, 2)
    for b in (3, 8, 3, 0):
        of_policy, of_target = walk(learner.policy, b), walk(learner.target, b)
        for t in range(8):
            if (b, t) in rows:
                reward, factor, later = rows[b, t]
                best = of_target[later][of_policy[later].argmax()] if double \
                    else of_target[later].max()
                errors[b, t] = reward + factor * best - of_policy[t][batch.actions[t, b]]
                total += huber(errors[b, t])
                count += 1
    assert count < 32
    loss, _ = learner.loss(replay, sample)
    assert float(loss.detach()) == pytest.approx(total / count, rel=1e-5)
    assert replay.steps == len(rows)
    drawn = replay.sample(3000)
    if not prioritized:
        return
    weights = {place: abs(errors.get(place, 1.0)) ** 0.7 for place in rows}
    for b, t, odds in zip(*(each.tolist() for each in vars(drawn).values()), strict=True):
        assert odds == pytest.approx(weights[b, t] / sum(weights.values()), rel=1e-3)


def test_the_memory_is_learned_through_time(real, config):
    """The loss of one step at the end has a gradient in what was observed long before."""
    learner = make(lambda policy, settings, **options: real(settings, **options), None,
                   config('dqn', lstm_size=5))
    observations = torch.randn(9, 1, 3, requires_grad=True)
    resets = torch.zeros(9, 1, dtype=torch.bool)
    learner.policy(observations, resets, torch.zeros(1, 10)).parameters[7, 0, 0].backward()
    assert observations.grad[0].abs().max() > 0
    resets[3] = True
    observations.grad = None
    learner.policy(observations, resets, torch.zeros(1, 10)).parameters[7, 0, 0].backward()
    assert not observations.grad[2].any()
    assert observations.grad[3].any()


def test_ignored_steps_contribute_nothing(
        batch, real, config, ignored_changed, same):
    weights = []
    for given in (batch, ignored_changed(batch)):
        learner = real(config('dqn'), replay_size=72, replay_start=1, replay_batch=16,
                       prioritized=True)
        for _ in range(3):
            learner.update(given)
        weights.append(learner.policy.state_dict())
    assert same(dict(weights[0]), dict(weights[1]))


def test_the_target_network_is_copied_at_each_period(batch, real, config, same, monkeypatch):
    learner = real(config('dqn'), replay_size=72, replay_start=1, replay_batch=16,
                   replay_ratio=1.0, target_period=3)
    step, seen = learner.optimizer.step, []

    def state(network):
        return {name: each.clone() for name, each in network.state_dict().items()}

    def spy(*args):
        seen.append((state(learner.target), state(learner.policy)))
        return step(*args)

    monkeypatch.setattr(learner.optimizer, 'step', spy)
    for _ in range(4):
        learner.update(batch)
    assert len(seen) > 9
    # Before steps 0, 3, 6, ... the target is the policy; in between it is what it was.
    for number, (target, policy) in enumerate(seen):
        assert same(target, policy) == (number % 3 == 0)
        assert same(target, seen[number - number % 3][0])


def test_figures_are_means_over_the_steps_of_an_update(batch, real, config, monkeypatch):
    learner = real(config('dqn'), replay_size=72, replay_start=1, replay_batch=16)
    loss, losses = learner.loss, []

    def spy(*args):
        found = loss(*args)
        losses.append(float(found[0].detach()))
        return found

    monkeypatch.setattr(learner, 'loss', spy)
    metrics = learner.update(batch)
    assert len(losses) > 5
    assert metrics['losses/loss'] == pytest.approx(np.mean(losses))
