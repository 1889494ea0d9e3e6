"""Policy of central inference: probabilities, state and exploration as with local inference."""


import central_sides as sides
import numpy as np
import pytest
import torch

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.algorithm_config import DqnConfig
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.policy.exploration import exploration_schedule
from vdl_ros.rl.policy.factory import make_policy
from vdl_ros.rl.policy.weights import weights

Asking, Learner, go_on, local_unrolls = (
    sides.Asking, sides.Learner, sides.go_on, sides.local_unrolls)
STEPS = sides.STEPS


def test_log_probs_and_versions_are_those_of_the_policy_that_acted():
    learner = Learner('vdl/Counter-v0')
    asking = Asking(learner, 'vdl/Counter-v0')
    other = make_policy(sides.TRAIN, *factory.spaces(EnvConfig(env_id='vdl/Counter-v0')))
    policies = [dict(weights(policy)) for policy in (learner.policy, other)]
    policies = [{name: array.copy() for name, array in each.items()} for each in policies]
    go_on(learner, asking, 2)
    learner.central.load(policies[1], 9)
    go_on(learner, asking, 2 * STEPS)
    first, second = learner.unrolls[:2]
    assert (first.policy_version, second.policy_version) == (0, 9)
    for unroll, t, which in ((first, 1, 0), (first, 2, 1), (second, 3, 1)):
        learner.central.load(policies[which], 0)
        with torch.no_grad():
            parameters, _, _ = learner.policy(
                torch.from_numpy(unroll.arrays['observations'][t]))
            wanted = learner.policy.distribution.log_prob(
                parameters, torch.from_numpy(unroll.arrays['actions'][t]))
        np.testing.assert_allclose(
            unroll.arrays['behaviour_log_probs'][t], wanted.numpy(), rtol=1e-5)


def decoded(learner, arrays):
    """Return the observations of an unroll that contains each frame once."""
    schema, batch = learner.schema, arrays['rewards'].shape[1]
    space = schema.observation_space
    out = np.empty((STEPS + 1, batch, *space.shape), space.dtype)
    schema.decode_into(arrays, out)
    return out


# Discrete actions; several parts; continuous ones that change what is seen; squashed; values and
# exploration.
WAYS = {
    'counter': ('vdl/Counter-v0', {}), 'pixels': ('vdl/PixelCounter-v0', {}),
    'mixed': ('vdl/MixedCounter-v0', {}), 'reach': ('vdl/Reach1D-v0', {}),
    'squashed': ('vdl/Reach1D-v0', {'action_distribution': 'squashed'}),
    'values': ('CartPole-v1', {'own': DqnConfig()}),
}


@pytest.mark.parametrize('memory', [
    {}, {'lstm_size': 4}, {'lstm_size': 4, 'last_action_reward': True},
    {'last_action_reward': True}], ids=str)
@pytest.mark.parametrize('way', WAYS)
def test_unrolls_of_one_actor_equal_those_of_local_inference(way, memory):
    """Bit by bit, since the same random numbers are used: observations, actions and state."""
    env_id, settings = WAYS[way]
    learner = Learner(env_id, **memory, **settings, more={
        'exploration_schedule': lambda actor_id: lambda agent_steps: 0.5})
    learner.policy.exploration = torch.tensor([0.5])
    expected = local_unrolls(env_id, 12, policy=learner.policy)
    asking = Asking(learner, env_id)
    torch.manual_seed(4)
    go_on(learner, asking, 12 * STEPS + 1)
    assert len(learner.unrolls) == 12
    for unroll, wanted in zip(learner.unrolls, expected, strict=True):
        if 'frames' in wanted:  # a learner that joins the steps has no use for single frames
            wanted = {**wanted, 'observations': decoded(learner, wanted)}
            for name in ('frames', 'reset_index', 'reset_stacks', 'vectors'):
                wanted.pop(name, None)
        assert unroll.arrays.keys() == wanted.keys()
        for name, array in wanted.items():
            assert unroll.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(unroll.arrays[name], array, err_msg=name)
    states = [unroll.arrays['state'] for unroll in learner.unrolls if memory]
    assert all(state.any() for state in states[1:])
    assert len(states) in (0, 12)


@pytest.mark.parametrize('last_action_reward', [False, True])
def test_actors_in_one_batch_have_separate_policy_states(last_action_reward):
    learner = Learner('vdl/Counter-v0', lstm_size=4, last_action_reward=last_action_reward)
    asking = [Asking(learner, 'vdl/Counter-v0', seed=number, batch=number + 1,
                     start_id=number) for number in range(3)]
    for turn in range(6 * STEPS + 3):
        # Not all actors each time, and not in the same order.
        chosen = [each for each in asking if (turn + each.start_id) % 3]
        chosen = chosen[::-1] if turn % 2 else chosen
        answers = {answer.request.start_id: answer
                   for answer in learner.serve(*[each.request() for each in chosen])}
        for each in chosen:
            each.take(answers[each.start_id])
    for number in range(3):
        mine = [each for each in learner.unrolls if each.start_id == number]
        assert len(mine) >= 3
        state = learner.policy.initial_state(number + 1)
        for unroll in mine:
            batch = make_batch([unroll], learner.schema)
            torch.testing.assert_close(batch.state, state)
            with torch.no_grad():
                parameters, _, state = learner.policy(
                    batch.observations[:-1], batch.is_reset[:-1], batch.state,
                    batch.actions, batch.rewards)
                state = learner.policy.append_last_action(
                    state, batch.actions[-1], batch.rewards[-1])
            torch.testing.assert_close(
                learner.policy.distribution.log_prob(parameters, batch.actions),
                batch.behaviour_log_probs, rtol=1e-4, atol=1e-5)
        assert state.any()


def test_a_repeated_observation_updates_the_state_once():
    learner = Learner('vdl/Counter-v0', lstm_size=4)
    asking = Asking(learner, 'vdl/Counter-v0')
    for _ in range(3 * STEPS + 1):
        request = asking.request()
        answer, = learner.serve(request)
        assert [each.actions.tolist() for each in learner.serve(request, request)] == [
            answer.actions.tolist()] * 2
        asking.take(answer)
    state = torch.zeros(3, 8)
    for unroll in learner.unrolls:
        batch = make_batch([unroll], learner.schema)
        torch.testing.assert_close(batch.state, state)
        with torch.no_grad():
            state = learner.policy(
                batch.observations[:-1], batch.is_reset[:-1], batch.state).state
    assert len(learner.unrolls) == 3


def test_a_restarted_actor_has_the_initial_state():
    learner = Learner('vdl/Counter-v0', lstm_size=4)
    go_on(learner, Asking(learner, 'vdl/Counter-v0'), STEPS + 3)
    go_on(learner, Asking(learner, 'vdl/Counter-v0', seed=8, start_id=2), STEPS + 1)
    first = next(each for each in learner.unrolls if each.start_id == 2)
    assert not first.arrays['state'].any()


def test_exploration_follows_the_actors_name_and_the_learners_steps():
    own = DqnConfig(exploration_start=1.0, exploration_end=0.1, exploration_steps=100,
                    exploration_spread=2.0)
    learner = Learner('vdl/Counter-v0', own=own, more={
        'exploration_schedule': lambda actor_id: exploration_schedule(own, actor_id)})
    # Both actions have the same value: the second is never the best.
    same = {name: np.zeros_like(array) for name, array in weights(learner.policy).items()}
    asking = [Asking(learner, 'vdl/Counter-v0', seed=number, batch=50, start_id=number)
              for number in (1, 2)]
    for version, agent_steps in ((1, 0), (2, 60), (3, 10**6)):
        learner.central.load(same, version, agent_steps)
        learner.unrolls.clear()
        # The first unroll may have started before.
        for _ in range(2 * STEPS):
            answers = {answer.request.start_id: answer
                       for answer in learner.serve(*[each.request() for each in asking])}
            for each in asking:
                each.take(answers[each.start_id])
        learner.serve(*[each.request() for each in asking])
        for number in (1, 2):
            epsilon = exploration_schedule(own, f'actor{number}')(agent_steps)
            arrays = [each for each in learner.unrolls if each.start_id == number][-1].arrays
            chance = np.where(arrays['actions'] == 0, 1 - epsilon / 2, epsilon / 2)
            np.testing.assert_allclose(
                np.exp(arrays['behaviour_log_probs']), chance, rtol=1e-5)
            assert (arrays['actions'] == 1).mean() == pytest.approx(epsilon / 2, abs=0.12)
    assert exploration_schedule(own, 'actor1')(60) != exploration_schedule(own, 'actor2')(60)
