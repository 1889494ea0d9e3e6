"""DQN: its loss, the target network, and its replay: when and how often it is learned from."""

import copy

import numpy as np
import pytest
import torch

from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.distributions import EpsilonGreedy


def huber(error):
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


def target(replay, b, t):
    """Return sum of rewards, factor and time of the bootstrap of a step."""
    return tuple(each[b, t].item() for each in (replay.returns, replay.factors, replay.times))


def filled(schema, batch, n, alpha=0.0):
    replay = Replay(schema, 9 * 8, 0.9, n, alpha)
    replay.add(batch, batch.rewards)
    return replay


def are_drawn_by(replay, priority):
    """Assert that steps are drawn by their priority [columns, T]."""
    drawn, weights = replay.sample(3000), priority ** 0.7
    expected = weights[drawn.column, drawn.time] / weights.sum()
    torch.testing.assert_close(drawn.probabilities, expected, rtol=1e-3, atol=0.0)


def make(algorithm, policy, settings, **options):
    """Return the algorithm with a target network that is not the policy."""
    learner = algorithm(policy, settings, **{
        'replay_size': 72, 'replay_start': 1, 'replay_batch': 32, **options})
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter += torch.randn_like(parameter)
    return learner


@pytest.mark.parametrize(('double', 'n', 'prioritized'), [
    (True, 1, False), (False, 3, False), (True, 3, True)])
def test_loss_and_gradient_are_those_of_the_definition(
        batch, linear, algorithm, config, schema, check_gradient, double, n, prioritized):
    policy = linear(EpsilonGreedy(4))
    learner = make(algorithm, policy, config('dqn'), double_q=double, n_step=n,
                   prioritized=prioritized, importance_exponent=0.5)
    replay = filled(schema, batch, n, 0.7)
    columns, times = torch.nonzero(replay.valid, as_tuple=True)
    priorities = torch.linspace(0.1, 3.0, len(columns))
    replay.update_priorities(columns, times, priorities)
    torch.manual_seed(0)
    sample, count = replay.sample(32), replay.steps

    def q(network, b, t):
        return network(batch.observations[t, b]).parameters[:4].detach().numpy()

    targets, weights = [], []
    other_choice = 0
    for b, t, odds in zip(*(each.tolist() for each in vars(sample).values()), strict=True):
        total, factor, later = target(replay, b, t)
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
            weight * huber(wanted - q(policy, b, t)[batch.actions[t, b]])
            for b, t, wanted, weight in zip(
                sample.column.tolist(), sample.time.tolist(), targets, weights, strict=True)])

    loss, parts = learner.loss(replay, sample)
    check_gradient(policy, loss, definition)
    errors = np.array([wanted - q(policy, b, t)[batch.actions[t, b]] for b, t, wanted in zip(
        sample.column.tolist(), sample.time.tolist(), targets, strict=True)])
    assert float(parts['losses/td_error'].detach()) == pytest.approx(
        np.abs(errors).mean(), rel=1e-5)
    assert all(each.grad is None for each in learner.target.parameters())
    assert len(sample.probabilities.unique()) > 10
    if prioritized:
        # What was learned from is drawn by its error from now on.
        priority = torch.zeros(9, 8)
        priority[columns, times] = priorities
        priority[sample.column, sample.time] = torch.from_numpy(np.abs(errors)).float()
        are_drawn_by(replay, priority)


@pytest.mark.parametrize('double', [True, False])
def test_with_a_memory_whole_columns_are_learned_from(random_unroll, real, config, spaces, double):
    """Each column is walked through from the state that its actor had, and forgets at resets."""
    settings = config('dqn', lstm_size=5)
    learner = make(lambda policy, settings, **options: real(settings, **options), None, settings,
                   double_q=double, n_step=2, prioritized=True)
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
    for b in (3, 8, 3, 0):
        of_policy, of_target = walk(learner.policy, b), walk(learner.target, b)
        for t in range(8):
            if batch.valid[t, b]:
                reward, factor, later = target(replay, b, t)
                best = of_target[later][of_policy[later].argmax()] if double \
                    else of_target[later].max()
                errors[b, t] = reward + factor * best - of_policy[t][batch.actions[t, b]]
                total += huber(errors[b, t])
                count += 1
    assert count < 32
    loss, _ = learner.loss(replay, sample)
    assert float(loss.detach()) == pytest.approx(total / count, rel=1e-5)
    priority = replay.valid.float()
    for place, error in errors.items():
        priority[place] = float(abs(error))
    are_drawn_by(replay, priority)


def test_the_target_network_is_copied_at_each_period(batch, real, config, same, monkeypatch):
    learner = real(config('dqn'), replay_size=72, replay_start=1, replay_batch=16,
                   replay_ratio=1.0, target_period=3)
    step, seen = learner.optimizer.step, []

    def spy(*args):
        seen.append([copy.deepcopy(dict(network.state_dict()))
                     for network in (learner.target, learner.policy)])
        return step(*args)

    monkeypatch.setattr(learner.optimizer, 'step', spy)
    for _ in range(4):
        learner.update(batch)
    assert len(seen) > 9
    # Before steps 0, 3, 6, ... the target is the policy; in between it is what it was.
    for number, (target, policy) in enumerate(seen):
        assert same(target, policy) == (number % 3 == 0)
        assert same(target, seen[number - number % 3][0])


@pytest.fixture
def unlike(random_unroll, spaces):
    """Return a function that makes a batch of three columns, each with one step that resets."""
    def make(seed, state_size=0):
        unroll = random_unroll(seed, state_size=state_size)
        resets = unroll.arrays['is_reset']
        resets[:] = False
        resets[1 + np.random.default_rng(seed).integers(0, 8, 3), np.arange(3)] = True
        return make_batch([unroll], UnrollSchema(*spaces, 8, 1, state_size))
    return make


@pytest.mark.parametrize(('memory', 'size', 'ratio'), [
    ({}, 16, 0.3), ({}, 16, 4.0), ({'lstm_size': 3}, 7, 2.0), ({'lstm_size': 3}, 39, 0.5)])
def test_steps_are_made_as_often_as_the_ratio_says(unlike, real, config, memory, size, ratio):
    """With a memory from columns of 7 valid steps each, and at least from one."""
    learner = real(config('dqn', **memory), replay_size=160, replay_start=40, replay_batch=size,
                   replay_ratio=ratio)
    learned_from = 7 * max(size // 8, 1) if memory else size
    assert learner.update(unlike(0, learner.policy.state_size)) == {'losses/replayed_steps': 21}
    for number in range(1, 12):
        before = learner.optimizer.steps
        metrics = learner.update(unlike(number, learner.policy.state_size))
        assert learner.optimizer.steps == int(21 * number * ratio / learned_from)
        assert ('losses/loss' in metrics) == (learner.optimizer.steps > before)
    assert learner.optimizer.steps >= 3


def test_a_full_replay_is_learned_from_however_few_steps_are_in_it(unlike, real, config):
    """Six columns have room for 48 of 50 steps, and six of these only reset."""
    for memory, start in (({}, 50), ({'lstm_size': 3}, 50), ({}, 43)):
        learner = real(config('dqn', **memory), replay_size=50, replay_start=start,
                       replay_batch=16)
        metrics = [learner.update(unlike(seed, learner.policy.state_size)) for seed in range(3)]
        assert [each['losses/replayed_steps'] for each in metrics] == [21, 42, 42], memory
        assert ['losses/loss' in each for each in metrics] == [False, True, True], memory
