"""DQN and its replay: when learning begins, how many steps are made, how large it may be."""

import re
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.distributed.collectives import Group


@pytest.mark.parametrize('ratio', [0.3, 1.0, 4.0])
def test_steps_are_made_as_often_as_the_ratio_says(random_unroll, schema, real, config, ratio):
    learner = real(config('dqn'), replay_size=160, replay_start=40, replay_batch=16,
                   replay_ratio=ratio)
    stored = worth = 0
    for seed in range(12):
        batch = make_batch([random_unroll(seed)], schema)
        new = int(batch.valid.sum())
        stored += new
        before = learner.optimizer.steps
        metrics = learner.update(batch)
        if stored < 40:
            assert metrics == {'losses/replayed_steps': stored}
        else:
            worth += new
            assert metrics['losses/replayed_steps'] == float(learner._replay.steps)
            assert ('losses/loss' in metrics) == (learner.optimizer.steps > before)
        assert learner.optimizer.steps == int(worth * ratio / 16 + 1e-9)
    assert learner.optimizer.steps >= 3


@pytest.fixture
def unlike(random_unroll, spaces):
    """Return a function that makes a batch whose columns have one step each that resets."""
    def make(seed, state_size=0, columns=3):
        unroll = random_unroll(seed, batch=columns, state_size=state_size)
        resets = unroll.arrays['is_reset']
        resets[:] = False
        resets[1 + np.random.default_rng(seed).integers(0, 8, columns), np.arange(columns)] = True
        return make_batch([unroll], UnrollSchema(*spaces, 8, 1, state_size))
    return make


@pytest.mark.parametrize('memory', [{'lstm_size': 3}, {'last_action_reward': True}], ids=str)
@pytest.mark.parametrize('size', [1, 7, 8, 15, 16, 39])
@pytest.mark.parametrize('ratio', [0.5, 2.0])
def test_with_a_memory_the_ratio_is_that_of_what_is_learned_from(
        unlike, real, config, monkeypatch, memory, size, ratio):
    """Columns hold fewer steps than are asked for, or more: of T each, and one at least."""
    learner = real(config('dqn', **memory), replay_size=160, replay_start=1, replay_batch=size,
                   replay_ratio=ratio)
    of_columns, learned = learner._column_targets, []

    def spy(*args):
        found = of_columns(*args)
        learned.append(int(found[-1].sum()))
        return found

    monkeypatch.setattr(learner, '_column_targets', spy)
    new = 0
    for seed in range(10):
        batch = unlike(seed, learner.policy.state_size)
        new += int(batch.valid.sum())
        learner.update(batch)
        # What is not yet learned from is less than one step of the optimiser.
        assert 0 <= ratio * new - sum(learned) < 7 * max(size // 8, 1)
    assert new == 10 * 3 * 7
    assert set(learned) == {7 * max(size // 8, 1)}
    assert learner.optimizer.steps == len(learned) >= 2


@pytest.mark.parametrize('memory', [{}, {'lstm_size': 3}], ids=str)
@pytest.mark.parametrize('start', [50, 43])
def test_a_full_replay_is_learned_from_however_few_steps_are_in_it(
        unlike, real, config, memory, start):
    """Six columns have room for 48 of 50 steps, and six of these only reset."""
    learner = real(config('dqn', **memory), replay_size=50, replay_start=start, replay_batch=16)
    metrics = [learner.update(unlike(seed, learner.policy.state_size)) for seed in range(3)]
    assert [each['losses/replayed_steps'] for each in metrics] == [21, 42, 42]
    assert ['losses/loss' in each for each in metrics] == [False, True, True]


def test_nothing_is_learned_from_a_full_replay_of_resets_alone(batch, unlike, real, config):
    learner = real(config('dqn'), replay_size=8, replay_start=8, replay_batch=8)
    batch.is_reset[:] = True
    assert learner.update(batch) == {'losses/replayed_steps': 0}
    assert learner.optimizer.steps == 0
    metrics = learner.update(unlike(0, columns=1))
    assert metrics['losses/replayed_steps'] == 7
    assert 'losses/loss' in metrics


@pytest.mark.parametrize('size', [1, 3])
def test_the_memory_of_a_host_is_split_over_the_learners(real, config, monkeypatch, size):
    group = Group()
    group.size = size
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: SimpleNamespace(available=9e6))
    with pytest.raises(ValueError, match='^replay_size: 1000000 steps [^\n]*$') as caught:
        real(config('dqn'), group, replay_size=1_000_000)
    assert ('split over 3 learners' in str(caught.value)) == (size == 3)
    most = int(re.search(r'at most (\d+)$', str(caught.value))[1])
    # 9 observations of three numbers, 8 steps.
    assert most == int(0.8 * 9e6 / size / (9 * 13 + 8 * 36)) * 8
    real(config('dqn'), group, replay_size=most)


def test_all_of_a_group_make_the_same_number_of_steps(random_unroll, schema, pair, real, config,
                                                      alike):
    """One gets three columns at a time and the other one: it is ready later."""
    members = [real(config('dqn'), replay_size=160, replay_start=20, replay_batch=16)
               for _ in range(2)]
    sizes = [3, 1]

    def learn(rank):
        def run(group):
            member = members[rank]
            member.group = member.optimizer.group = group
            steps = []
            for seed in range(6):
                member.update(make_batch([random_unroll(seed, batch=sizes[rank])], schema))
                steps.append(member.optimizer.steps)
            return steps
        return run

    one, other = pair(learn(0), learn(1))
    assert one == other
    assert one[0] == one[1] == 0 < one[-1]
    alike(members[0].policy, members[1].policy)


def test_of_a_group_none_begins_before_all_are_full(unlike, pair, real, config, alike):
    """The replay of one, six columns, is full after two batches, that of the other after six."""
    members = [real(config('dqn'), replay_size=50, replay_start=50, replay_batch=16)
               for _ in range(2)]

    def learn(rank):
        def run(group):
            member = members[rank]
            member.group = member.optimizer.group = group
            found = []
            for seed in range(8):
                metrics = member.update(unlike(seed, columns=3 - 2 * rank))
                found.append((member.optimizer.steps, metrics['losses/replayed_steps']))
            return found
        return run

    one, other = pair(learn(0), learn(1))
    assert [steps for steps, _ in one] == [steps for steps, _ in other]
    assert [steps > 0 for steps, _ in one] == [False] * 5 + [True] * 3
    assert [replayed for _, replayed in one] == [21] + [42] * 7
    assert [replayed for _, replayed in other] == [7, 14, 21, 28, 35, 42, 42, 42]
    alike(members[0].policy, members[1].policy)
