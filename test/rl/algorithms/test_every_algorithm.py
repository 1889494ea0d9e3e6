"""What holds for every algorithm: repeatable, resumable to the bit, one with other learners."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from vdl_ros.common.settings import settings_of
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint
from vdl_ros.rl.runs.run_folder import load_array_file, save_array_file
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

# One optimizer step or more with each update, so that nothing is left waiting.
REPLAY = {'replay_size': 400, 'replay_start': 1, 'replay_batch': 8, 'replay_ratio': 2.0}
OWN = {'ppo_epochs': 2, 'ppo_kl_target': 1e-3, 'reinforce_episodes': 1, 'target_period': 5,
       **REPLAY}
KINDS = {
    'impala': ('impala', {'optimizer': 'rmsprop'}, {}),
    'impala, lstm': ('impala', {'lstm_size': 4, 'last_action_reward': True}, {}),
    'a3c': ('a3c', {'normalize_advantages': True}, {}),
    'ppo': ('ppo', {}, {'ppo_form': 'kl', 'normalize_returns': True}),
    'ppo, lstm': ('ppo', {'lstm_size': 4}, {'ppo_minibatches': 2}),
    'reinforce': ('reinforce', {}, {}),
    'dqn': ('dqn', {'optimizer': 'rmsprop'}, {'prioritized': True, 'replay_ratio': 0.3}),
    'dqn, lstm': ('dqn', {'lstm_size': 4}, {}),
    'sac': ('sac', {}, {}), 'bc': ('bc', {}, {})}
TRAIN = settings_of(TrainConfig).keys()
every_kind = pytest.mark.parametrize('kind', KINDS)


@pytest.fixture
def learner(spaces, config):
    """Return a function that makes a learner by a kind and a seed."""
    def make(kind, seed=1, **more):
        name, changes, options = KINDS[kind]
        settings = config(name, **{
            'normalize_observations': True, 'seed': seed, 'total_steps': 500,
            'learning_rate_schedule': 'linear', **changes,
            **{each: more[each] for each in more.keys() & TRAIN}})
        return Learner(settings, *spaces, algorithm_config=make_algorithm_config(
            settings, {**OWN, **options, **more}))
    return make


@pytest.fixture
def saved(tmp_path):
    """Return a function: the learner's state as it comes back from a file."""
    def through_file(learner):
        save_checkpoint(tmp_path / 'c.pt', config={}, learner=learner.state(), progress={})
        return load_checkpoint(tmp_path / 'c.pt')['learner']
    return through_file


@pytest.fixture
def update(random_unroll):
    """Return a function: a learner's update number ``number`` with an actor's next unroll."""
    def go(learner, number, start_id=1):
        return learner.update([random_unroll(
            number, sequence=number, start_id=start_id, state_size=learner.policy.state_size)])
    return go


@every_kind
def test_the_same_seed_and_unrolls_give_the_same_learner(learner, update, same, kind):
    def learned():
        one = learner(kind)
        first = copy.deepcopy(one.weights())
        return first, [update(one, number) for number in range(4)], one.weights()

    first, metrics, weights = learned()
    # What is drawn while learning comes from the seed as well.
    assert same(learned(), (first, metrics, weights))
    assert not same(weights, first)
    assert not same(learner(kind, seed=2).weights(), first)
    found = {name: value for each in metrics for name, value in each.items()}
    assert all(type(value) is float and np.isfinite(value) for value in found.values()), found
    assert {'losses/loss', 'losses/grad_norm', 'charts/learning_rate'} <= found.keys()


@every_kind
def test_a_resumed_learner_goes_on_to_the_bit(learner, saved, update, same, tmp_path, kind):
    """With the replay that was saved, be it partly full or overwritten."""
    one, updates = learner(kind), 40 if kind == 'dqn' else 3
    replays = one.config.algorithm in ('dqn', 'sac')
    for number in range(updates):
        update(one, number)
    state = saved(one)
    if replays:
        assert one.algorithm._replay.full == (updates == 40)
        save_array_file(tmp_path / 'r.npz', one.algorithm.replay_arrays())
    rng = torch.get_rng_state()
    later = range(updates, updates + 4)
    # Actors begin anew with a learner that is resumed.
    expected = [update(one, number, start_id=2) for number in later]
    torch.manual_seed(99)
    other = learner(kind, seed=5)
    if replays:
        update(other, 99)  # what it learned before is gone
    other.load_state(state)
    if replays:
        other.algorithm.load_replay_arrays(load_array_file(tmp_path / 'r.npz', 'replay'))
    assert torch.equal(torch.get_rng_state(), rng)
    assert [update(other, number, start_id=2) for number in later] == expected
    assert same(one.state(), other.state())
    assert (other.version, other.agent_steps) == (updates + 4, one.agent_steps)
    if replays:
        assert same(one.algorithm.replay_arrays(), other.algorithm.replay_arrays())


@pytest.mark.parametrize('kind', ['ppo', 'sac'])
def test_each_of_a_group_draws_from_a_stream_of_its_own_and_goes_on_with_it(
        learner, saved, update, same, kind):
    first, second, resumed = (learner(kind) for _ in range(3))
    second.group.rank = resumed.group.rank = 1
    assert same(first.weights(), second.weights())
    for each in (first, second):
        torch.manual_seed(3)
        for number in range(2):
            update(each, number)
    assert not same(first.weights(), second.weights())
    resumed.load_state(saved(second))
    if kind == 'sac':
        resumed.algorithm.load_replay_arrays(second.algorithm.replay_arrays())
    expected = update(second, 2)
    # Learner 0 wrote the checkpoint, so its state is not that of the others.
    torch.manual_seed(4)
    assert update(resumed, 2) == expected
    assert same(second.weights(), resumed.weights())


def test_a_replay_of_another_size_or_with_other_columns_is_refused(learner, update):
    one = learner('dqn')
    update(one, 0)
    arrays = one.algorithm.replay_arrays()
    for name, changed, reason in (
            ('size', np.array(7), 'replay_size: it has 7 columns'),
            ('actions', arrays['actions'][:1], 'observations: '),
            ('rewards', arrays['rewards'].astype(np.float64), 'rewards: float64'),
            ('pending_updates', np.array(np.nan), 'pending_updates: ')):
        with pytest.raises(ValueError, match=f'^[^\n]*{reason}'):
            one.algorithm.load_replay_arrays({**arrays, name: changed})
    with pytest.raises(ValueError, match='missing or unknown'):
        one.algorithm.load_replay_arrays({**arrays, 'more': np.zeros(1)})


def test_the_state_of_another_learner_or_an_incomplete_one_is_refused(learner):
    plain = learner('a3c', normalize_observations=False)
    for case, one, another, reason in (
            ('size', plain, learner('a3c', hidden_size=9), 'size mismatch'),
            ('optimizer', learner('a3c'), learner('a3c', optimizer='rmsprop'),
             'adam is not rmsprop'),
            ('normalizer', learner('a3c'), plain, 'normalizer'),
            ('returns', learner('ppo', normalize_returns=False), learner('ppo'), 'Normalizer'),
            ('values', learner('ppo'), learner('ppo', normalize_returns=False),
             'normalize_returns: false is not allowed'),
            ('beta', learner('reinforce'), learner('ppo'), 'beta'),
            ('dqn for sac', learner('dqn'), learner('sac'), ''),
            ('sac for a3c', learner('sac'), learner('a3c'), '')):
        with pytest.raises(ValueError) as error:
            another.load_state(one.state())
        assert str(error.value).startswith('checkpoint: not of this network: '), case
        assert reason in str(error.value), case
        assert '\n' not in str(error.value), case
    for kind, keys in (
            ('impala', ('policy', 'algorithm', 'version', 'agent_steps', 'torch_rng')),
            ('reinforce', ('algorithm optimizer',)), ('ppo', ('algorithm beta',)),
            ('dqn', ('algorithm target', 'algorithm steps')),
            ('sac', ('algorithm target', 'algorithm critics', 'algorithm log_temperature'))):
        one = learner(kind)
        for key in keys:
            state = one.state()
            *outer, key = key.split()
            del (state[outer[0]] if outer else state)[key]
            with pytest.raises(ValueError, match=f"^checkpoint: .*'{key}'"):
                one.load_state(state)


@every_kind
def test_ignored_steps_contribute_nothing(learner, random_unroll, same, kind):
    """Also not to what is standardised, remembered or replayed."""
    def others(batch, changed):
        actions = torch.where(changed, 3 - batch.actions, batch.actions)
        return dataclasses.replace(batch, actions=actions)

    def ignored(batch):
        invalid = ~batch.valid
        return dataclasses.replace(
            others(batch, invalid), rewards=torch.where(invalid, -50.0, batch.rewards),
            behaviour_log_probs=torch.where(invalid, -9.0, batch.behaviour_log_probs),
            terminated=batch.terminated ^ invalid)

    found = []
    for change in (lambda batch: batch, ignored, lambda batch: others(batch, batch.valid)):
        one = learner(kind)
        for number in range(3):
            batch = one.make_batch([random_unroll(
                10 * number + column, sequence=number, start_id=column,
                state_size=one.policy.state_size) for column in range(3)])
            assert not batch.valid.all()
            one.learn(change(batch))
        found.append(one.state())
    assert same(found[0], found[1])
    assert not same(found[0]['policy'], found[2]['policy']), 'others do'


@every_kind
def test_the_largest_numbers_that_are_allowed_do_not_end_a_run(learner, random_unroll, kind):
    for array, value in (('rewards', 1e9), ('rewards', -1e9), ('observations', 1e9),
                         ('behaviour_log_probs', -1e6), ('behaviour_log_probs', 1e6)):
        one = learner(kind, normalize_returns=False) if kind == 'ppo' else learner(kind)
        unroll = random_unroll(1, state_size=one.policy.state_size)
        arrays = {**unroll.arrays, array: np.full_like(unroll.arrays[array], value)}
        one.schema.check(arrays)
        # The second learns from the weights that the first has left.
        for sequence in range(2):
            one.update([dataclasses.replace(unroll, arrays=arrays, sequence=sequence)])


def test_statistics_of_observations_are_there_before_anything_is_learned(batch, real, config):
    """Those who learn from what was just done add to them after a step."""
    seen = batch.observations[:-1][batch.valid].numpy().astype(np.float64)
    for name in ('impala', 'a3c', 'ppo', 'reinforce', 'dqn', 'sac', 'bc'):
        one = real(config(name, normalize_observations=True), **{
            'reinforce': {'reinforce_episodes': 1}, 'dqn': REPLAY, 'sac': REPLAY}.get(name, {}))
        counts, loss = [], one.loss
        networks = [one.policy, *([one.target] if name == 'dqn' else [])]

        def spy(*given, counts=counts, loss=loss, networks=networks):
            counts.extend(int(each.normalizer.count) // len(seen) for each in networks)
            return loss(*given)

        one.loss = spy
        for _ in range(3):
            one.update(batch)
        expected = [1, 2, 3] if name in ('dqn', 'sac', 'bc') else [1, 2]
        assert list(dict.fromkeys(counts)) == expected, name
        for found, expected in ((one.policy.normalizer.mean, seen.mean(0)),
                                (one.policy.normalizer.variance, seen.var(0))):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(('name', 'changes', 'options'), [
    ('impala', {'lstm_size': 4}, {}), ('a3c', {}, {}), ('ppo', {}, {'normalize_returns': True}),
    ('ppo', {}, {'ppo_form': 'kl'}), ('ppo', {}, {'ppo_form': 'hinge'})], ids=str)
def test_two_learners_are_one_with_the_joined_batch(
        pair, real, alike, random_unroll, spaces, config, name, changes, options):
    # Steps are nearly those of plain gradients, as Adam makes much of the smallest difference.
    settings = config(
        name, normalize_advantages=True, normalize_observations=True, optimizer='rmsprop',
        rmsprop_epsilon=1.0, learning_rate=0.3, **changes)
    if name == 'ppo':
        options = {'ppo_epochs': 3, 'ppo_minibatches': 1, 'ppo_kl_target': 1e-3, **options}
    alone, *members = (real(settings, **options) for _ in range(3))
    before = copy.deepcopy(alone.policy.state_dict())
    schema = UnrollSchema(*spaces, 8, 1, alone.policy.state_size)
    unrolls = [[random_unroll(10 * number + rank, batch=3 - rank, start_id=rank, sequence=number,
                              state_size=schema.state_size) for rank in range(2)]
               for number in range(3)]

    def learn(rank):
        def run(group):
            member = members[rank]
            member.group = member.optimizer.group = group
            return [member.update(make_batch([both[rank]], schema)) for both in unrolls]
        return run

    expected = [alone.update(make_batch(both, schema)) for both in unrolls]
    for told in pair(learn(0), learn(1)):
        for figures, single in zip(told, expected, strict=True):
            alike(figures, single)
    for member in members:
        alike(member.policy, alone.policy)
    assert any(not torch.allclose(each, before[key], atol=1e-3)
               for key, each in alone.policy.state_dict().items())
    if 'ppo_form' in options:
        assert [each.penalty.beta for each in members] == [alone.penalty.beta] * 2
        assert alone.penalty.beta != 1.0


@pytest.mark.parametrize(('kind', 'columns'), [
    ('dqn', (3, 1)), ('ppo', (2, 8)), ('ppo, lstm', (2, 8))])
def test_all_of_a_group_make_the_same_number_of_steps(
        learner, random_unroll, pair, alike, kind, columns):
    """Whose batches are of different sizes; the replay of one is filled later."""
    options = {'replay_start': 20, 'replay_batch': 16} if kind == 'dqn' else {
        'ppo_minibatches': 7, 'ppo_kl_target': 10.0}
    members = [learner(kind, **options) for _ in range(2)]

    def learn(rank):
        def run(group):
            member, algorithm = members[rank], members[rank].algorithm
            member.group = algorithm.group = algorithm.optimizer.group = group
            steps = []
            for seed in range(6):
                member.update([random_unroll(
                    seed, batch=columns[rank], state_size=member.policy.state_size)])
                steps.append(algorithm.optimizer.steps)
            return steps
        return run

    one, other = pair(learn(0), learn(1))
    assert one == other
    if kind == 'dqn':
        assert one[:2] == [0, 0]
        assert one[-1] > 0
    else:  # of columns the smaller one has two; the first batch is for statistics
        assert one == [2 * (2 if 'lstm' in kind else 7) * seed for seed in range(6)]
    alike(members[0].policy, members[1].policy)
