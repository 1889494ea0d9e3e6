"""A learner that goes on from a checkpoint does what the uninterrupted one does."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.algorithm_config import make_algorithm_config
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.array_file import load_array_file, save_array_file
from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint

# One step of the optimiser or more with each update, so that nothing is left waiting.
OWN = {'ppo_epochs': 2, 'ppo_kl_target': 1e-3, 'reinforce_episodes': 1, 'replay_size': 400,
       'replay_start': 1, 'replay_batch': 8, 'replay_ratio': 2.0, 'target_period': 5}
KINDS = [
    ('impala', {}, {}), ('a3c', {}, {}), ('ppo', {}, {}),
    ('ppo', {}, {'ppo_form': 'kl', 'normalize_returns': True}), ('reinforce', {}, {}),
    ('impala', {'lstm_size': 4}, {}), ('ppo', {'lstm_size': 4}, {'ppo_minibatches': 2})]


@pytest.fixture
def learner(spaces, config):
    """Return a function that makes a learner by a kind and a seed."""
    def make(name, changes, options, seed=1):
        settings = config(name, normalize_observations=True, seed=seed, total_steps=500,
                          learning_rate_schedule='linear', **changes)
        return Learner(settings, *spaces, algorithm_config=make_algorithm_config(
            settings, {**OWN, **options}))
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
        unroll = random_unroll(number, sequence=number, start_id=start_id,
                               state_size=learner.policy.state_size)
        return learner.update([unroll])
    return go


@pytest.mark.parametrize(('name', 'changes', 'options'), KINDS, ids=str)
def test_it_goes_on_to_the_bit(learner, saved, update, same, name, changes, options):
    one = learner(name, changes, options)
    for number in range(3):
        update(one, number)
    state = saved(one)
    # Actors begin anew with a learner that is resumed.
    expected = [update(one, number, start_id=2) for number in range(3, 6)]
    torch.manual_seed(99)
    other = learner(name, changes, options, seed=5)
    other.load_state(state)
    assert [update(other, number, start_id=2) for number in range(3, 6)] == expected
    assert same(one.state(), other.state())
    assert (other.version, other.agent_steps) == (6, one.agent_steps)


@pytest.mark.parametrize('name', ['impala', 'a3c', 'ppo', 'reinforce'])
def test_with_an_image_and_numbers_it_goes_on_to_the_bit(config, saved, same, name):
    env = EnvConfig(env_id='vdl/MixedCounter-v0')
    envs = factory.make(env, 1, num_envs=2)
    settings = config(name, normalize_observations=True, precision='float32')

    def learner():
        return Learner(settings, envs.single_observation_space, envs.single_action_space,
                       factory.frames_per_observation(env),
                       algorithm_config=make_algorithm_config(settings, OWN))

    one = learner()
    actor = TorchActor(envs, one.copy_policy(), one.schema, 1)
    unrolls = [Unroll(actor.unroll()[0], 'a', 1, number, 0) for number in range(4)]
    for unroll in unrolls[:2]:
        one.update([unroll])
    state = saved(one)
    again = [dataclasses.replace(each, start_id=2) for each in unrolls[2:]]
    expected = [one.update([each]) for each in again]
    other = learner()
    other.load_state(state)
    assert [other.update([each]) for each in again] == expected
    assert same(one.state(), other.state())
    assert float(one.policy.normalizer.count) > 0
    envs.close()


def test_the_weight_of_the_penalty_goes_on(learner, saved, update):
    one = learner('ppo', {}, {'ppo_form': 'kl'})
    for number in range(3):
        update(one, number)
    assert one.algorithm.penalty.beta != 1.0
    other = learner('ppo', {}, {'ppo_form': 'kl'})
    other.load_state(saved(one))
    assert other.algorithm.penalty.beta == one.algorithm.penalty.beta


@pytest.mark.parametrize(('name', 'changes'), [
    ('dqn', {}), ('dqn', {'lstm_size': 4}), ('sac', {})], ids=str)
def test_it_goes_on_but_for_its_replay(learner, saved, update, same, name, changes):
    one = learner(name, changes, {})
    for number in range(3):
        update(one, number)
    assert one.algorithm.optimizer.steps % 5 != 0
    target = copy.deepcopy(dict(one.algorithm.target.state_dict()))
    learned = one.policy if name == 'dqn' else one.algorithm.critics
    assert not same(target, dict(learned.state_dict()))
    state = saved(one)
    other = learner(name, changes, {'replay_start': 30}, seed=5)
    other.load_state(state)
    assert same(dict(other.algorithm.target.state_dict()), target)
    assert other.algorithm._replay.steps == 0
    assert update(other, 3) == {
        'charts/learning_rate': other.algorithm.optimizer.learning_rate,
        'losses/replayed_steps': other.algorithm._replay.steps}
    assert same(dict(other.policy.policy_head.state_dict()), state_of_head(state))


@pytest.mark.parametrize('updates', [3, 40], ids=['partly full', 'overwritten'])
@pytest.mark.parametrize(('name', 'changes', 'options'), [
    ('dqn', {}, {}), ('dqn', {'lstm_size': 4}, {'prioritized': True, 'replay_ratio': 0.3}),
    ('dqn', {}, {'prioritized': True, 'replay_ratio': 0.3}), ('sac', {}, {})], ids=str)
def test_with_its_saved_replay_it_goes_on_to_the_bit(
        learner, saved, update, same, tmp_path, name, changes, options, updates):
    one = learner(name, changes, options)
    for number in range(updates):
        update(one, number)
    assert one.algorithm._replay.full == (updates == 40)
    save_array_file(tmp_path / 'r.npz', one.algorithm.replay_arrays())
    state = saved(one)
    other = learner(name, changes, options, seed=6)
    # What it learned before is gone.
    update(other, 99)
    other.load_state(state)
    other.algorithm.load_replay_arrays(load_array_file(tmp_path / 'r.npz', 'replay'))
    torch.set_rng_state(state['torch_rng'])
    expected = [update(one, number) for number in range(updates, updates + 5)]
    torch.set_rng_state(state['torch_rng'])
    assert [update(other, number) for number in range(updates, updates + 5)] == expected
    # The copies of the target network, too, came at the same steps.
    assert same(one.state(), other.state())
    assert same(one.algorithm.replay_arrays(), other.algorithm.replay_arrays())


def test_a_replay_of_another_size_or_with_other_columns_is_refused(learner, update):
    one = learner('dqn', {}, {})
    update(one, 0)
    arrays = one.algorithm.replay_arrays()
    for name, changed, reason in (
            ('size', np.array(7), 'replay_size: it has 7 columns'),
            ('times', arrays['times'] + 100, 'damaged'),
            ('weights', -arrays['weights'], 'damaged'),
            ('next', np.array(9), 'damaged'), ('actions', arrays['actions'][:1], 'observations: '),
            ('rewards', arrays['rewards'].astype(np.float64), 'rewards: float64'),
            ('pending_updates', np.array(np.nan), 'pending_updates: ')):
        with pytest.raises(ValueError, match=f'^[^\n]*{reason}'):
            one.algorithm.load_replay_arrays({**arrays, name: changed})
    with pytest.raises(ValueError, match='missing or unknown'):
        one.algorithm.load_replay_arrays({**arrays, 'more': np.zeros(1)})


def state_of_head(state):
    return {name.removeprefix('policy_head.'): each for name, each in state['policy'].items()
            if name.startswith('policy_head.')}


@pytest.mark.parametrize(('changes', 'options', 'missing'), [
    ({'algorithm': 'ppo'}, {}, 'beta'),
    ({'algorithm': 'ppo'}, {'normalize_returns': True}, 'beta'),
    ({'normalize_observations': False}, {}, 'normalizer'), ({'lstm_size': 4}, {}, 'lstm'),
    ({'optimizer': 'rmsprop'}, {}, 'adam is not rmsprop')], ids=str)
def test_the_state_of_another_learner_is_refused(
        learner, spaces, config, saved, changes, options, missing):
    state = saved(learner('a3c', {}, {}))
    settings = dataclasses.replace(
        config('a3c', normalize_observations=True), **changes)
    other = Learner(settings, *spaces, algorithm_config=make_algorithm_config(settings, options))
    with pytest.raises(ValueError, match=rf'^checkpoint: not of this network: [^\n]*{missing}'):
        other.load_state(state)


def test_statistics_of_returns_are_needed_where_they_are_used(learner, saved):
    state = saved(learner('ppo', {}, {}))
    with pytest.raises(ValueError, match=r'^checkpoint: not of this network: [^\n]*Normalizer'):
        learner('ppo', {}, {'normalize_returns': True}).load_state(state)


def test_a_dqn_is_not_the_policy_of_another_algorithm(learner, saved):
    with pytest.raises(ValueError, match=r'^checkpoint: not of this network: '):
        learner('a3c', {}, {}).load_state(saved(learner('dqn', {}, {})))
    with pytest.raises(ValueError, match=r'^checkpoint: not of this network: '):
        learner('dqn', {}, {}).load_state(saved(learner('a3c', {}, {})))
