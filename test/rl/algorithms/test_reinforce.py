"""REINFORCE: the loss of whole episodes, and when a step is made."""

import dataclasses

import numpy as np
import pytest
import torch

from vdl_ros.rl.algorithms.reinforce import Episode, EpisodeAssembly
from vdl_ros.rl.data.batch import make_batch


@pytest.fixture
def episodes():
    """Five episodes of 1 to 7 steps, ended by the task or by a time limit."""
    rng = np.random.default_rng(0)
    return [Episode(
        torch.from_numpy(rng.normal(size=(length + 1, 3)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 4, length)),
        torch.from_numpy(rng.normal(size=length).astype(np.float32)), terminated)
        for length, terminated in ((3, True), (7, False), (1, True), (1, False), (4, True))]


@pytest.mark.parametrize(('baseline', 'changes'), [
    (True, {}), (False, {}), (False, {'normalize_advantages': True}),
    (True, {'reward_scale': 0.5, 'reward_transform': 'abs_one', 'normalize_advantages': True})],
    ids=str)
def test_loss_and_gradient_are_those_of_the_definition(
        episodes, linear, algorithm, config, log_probs, check_gradient, baseline, changes):
    policy, settings = linear(), config('reinforce', **changes)
    returns, advantages = [], []
    for each in episodes:
        values, rewards = log_probs(policy, each.observations)[1], each.rewards.numpy()
        if 'reward_scale' in changes:
            rewards = 0.5 * np.clip(rewards, -1.0, 1.0)
        for t in range(len(rewards)):
            total = sum(0.9**k * reward for k, reward in enumerate(rewards[t:]))
            if baseline and not each.terminated:
                total += 0.9 ** (len(rewards) - t) * values[-1]
            returns.append(total)
            advantages.append(total - values[t] if baseline else total)
    advantages = np.array(advantages)
    if settings.normalize_advantages:
        advantages = (advantages - advantages.mean()) / advantages.std()

    def definition():
        total, place = 0.0, 0
        for each in episodes:
            log_pi, values = log_probs(policy, each.observations)
            for t in range(len(each.rewards)):
                total -= log_pi[t][each.actions[t]] * advantages[place]
                total += 0.03 * (np.exp(log_pi[t]) * log_pi[t]).sum()
                if baseline:
                    total += 0.4 * 0.5 * (returns[place] - values[t]) ** 2
                place += 1
        return total / place

    loss, parts = algorithm(policy, settings, reinforce_baseline=baseline).loss(episodes)
    check_gradient(policy, loss, definition)
    assert float(parts['losses/mean_return']) == pytest.approx(np.mean(returns), rel=1e-5)
    # Without a baseline nothing is learned of values.
    assert bool(policy.layer.weight.grad[4].any()) == baseline


def test_episodes_do_not_touch_each_other_though_there_is_a_memory(episodes, real, config):
    learner = real(config('reinforce', lstm_size=5))
    lengths = [len(each.rewards) for each in episodes]
    alone = [float(learner.loss([each])[0].detach()) for each in episodes]
    together = float(learner.loss(episodes)[0].detach())
    assert together == pytest.approx(np.average(alone, weights=lengths), rel=1e-5)
    assert np.std(alone) > 0.01


def unrolls(random_unroll, schema, count, seed=0):
    """Return batches of one actor, unroll after unroll; of each the beginning is a first one."""
    batches = []
    for number in range(count):
        unroll = random_unroll(seed + number, sequence=number)
        unroll.arrays['is_reset'][0] = True
        batches.append(make_batch([unroll], schema))
    return batches


@pytest.mark.parametrize('needed', [1, 9])
def test_a_step_is_made_once_enough_episodes_have_ended(
        random_unroll, schema, linear, algorithm, config, same, needed):
    learner = algorithm(linear(), config('reinforce'), reinforce_episodes=needed)
    assembly, waiting, steps = EpisodeAssembly(10_000), 0, 0
    for batch in unrolls(random_unroll, schema, 12):
        before = {name: each.clone() for name, each in learner.policy.state_dict().items()}
        metrics = learner.update(batch)
        waiting += len(assembly.add(batch))
        if waiting < needed:
            assert metrics == {}
            assert same(dict(learner.policy.state_dict()), before)
        else:
            assert metrics['losses/episodes'] == waiting
            assert not same(dict(learner.policy.state_dict()), before)
            waiting, steps = 0, steps + 1
        assert learner.optimizer.steps == steps
    assert steps > 1
    assert steps < 12 or needed == 1


def test_an_episode_that_is_cut_ends_as_by_a_time_limit(
        random_unroll, schema, linear, algorithm, config):
    learner = algorithm(linear(), config('reinforce'), reinforce_episodes=1, longest_episode=2)
    assembly, metrics = EpisodeAssembly(2), {}
    for batch in unrolls(random_unroll, schema, 3):
        metrics = learner.update(batch)
        assembly.add(batch)
    assert metrics['losses/cut_episodes'] == assembly.cut > 0


def test_all_of_a_group_wait_for_the_last(random_unroll, schema, pair, real, config, alike):
    """The one has many episodes at once, the other's first end with its third batch."""
    many = unrolls(random_unroll, schema, 4)
    few = [dataclasses.replace(
        each, terminated=each.terminated & (number == 2),
        truncated=each.truncated & (number == 2)) for number, each in enumerate(many)]
    members = [real(config('reinforce'), reinforce_episodes=2) for _ in range(2)]

    def learn(member, batches):
        def run(group):
            member.group = member.optimizer.group = group
            return [bool(member.update(each)) for each in batches]
        return run

    assert pair(learn(members[0], many), learn(members[1], few)) == [
        [False, False, True, False]] * 2
    alike(*(member.policy for member in members))
