"""Central inference gives the same unrolls as local inference, and keeps to credit and memory.

In the counter environments actions have no effect, so both must be equal bit by bit.
"""

import dataclasses

import numpy as np
import pytest
import torch
from central_sides import STEPS, TRAIN, Asking, Learner, go_on, local_unrolls

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollError
from vdl_ros.rl.learning import central_inference as module
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.settings import DqnConfig, exploration_schedule

COUNTER, PIXELS = 'vdl/Counter-v0', 'vdl/PixelCounter-v0'


def decoded(learner, arrays):
    """Return the observations of an unroll, which may contain each frame once."""
    space = learner.schema.observation_space
    out = np.empty((STEPS + 1, arrays['rewards'].shape[1], *space.shape), space.dtype)
    learner.schema.decode_into(arrays, out)
    return out


def assert_same_stream(learner, unrolls, expected):
    """Assert that both hold the same, but for what the policies chose."""
    for unroll, wanted in zip(unrolls, expected, strict=True):
        for name in ('rewards', 'terminated', 'truncated', 'is_reset'):
            np.testing.assert_array_equal(unroll.arrays[name], wanted[name], err_msg=name)
        np.testing.assert_array_equal(decoded(learner, unroll.arrays), decoded(learner, wanted))


def serve(learner, actors):
    """Let actors ask in one batch and take what is returned."""
    answers = {answer.request.start_id: answer
               for answer in learner.serve(*[each.request() for each in actors])}
    for each in actors:
        each.take(answers[each.start_id])


# Discrete actions; several parts; continuous ones that change what is seen; squashed; values and
# exploration.
@pytest.mark.parametrize(('env_id', 'settings'), [
    (COUNTER, {}), (PIXELS, {'lstm_size': 4}),
    ('vdl/MixedCounter-v0', {'lstm_size': 4, 'last_action_reward': True}),
    ('vdl/Reach1D-v0', {'last_action_reward': True}),
    ('vdl/Reach1D-v0', {'action_distribution': 'squashed', 'lstm_size': 4}),
    ('CartPole-v1', {'own': DqnConfig()})],
    ids=['discrete', 'pixels', 'mixed', 'continuous', 'squashed', 'values'])
def test_unrolls_of_one_actor_equal_those_of_local_inference(env_id, settings):
    """Bit by bit, since the same random numbers are used: observations, actions and state."""
    learner = Learner(env_id, **settings, more={
        'exploration': lambda actor_id: lambda agent_steps: 0.5})
    learner.policy.exploration = torch.tensor([0.5])
    expected = local_unrolls(env_id, 8, policy=learner.policy)
    torch.manual_seed(4)
    go_on(learner, Asking(learner, env_id), 8 * STEPS + 1)
    assert [unroll.sequence for unroll in learner.unrolls] == list(range(8))
    assert {unroll.num_bytes for unroll in learner.unrolls[1:]} == {7 * STEPS}
    for unroll, wanted in zip(learner.unrolls, expected, strict=True):
        if 'frames' in wanted:  # a learner that joins the steps has no use for single frames
            wanted = {**wanted, 'observations': decoded(learner, wanted)}
            for name in ('frames', 'reset_index', 'reset_stacks', 'vectors'):
                wanted.pop(name, None)
        assert unroll.arrays.keys() == wanted.keys()
        for name, array in wanted.items():
            assert unroll.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(unroll.arrays[name], array, err_msg=name)
        if 'state' in wanted:
            assert wanted['state'].any() == (unroll.sequence > 0)


def test_lost_and_duplicate_messages_change_neither_unrolls_nor_states():
    learner = Learner(PIXELS, lstm_size=4)
    asking = Asking(learner, PIXELS)
    rng = np.random.default_rng(0)
    late = None
    while len(learner.unrolls) < 10:
        request = asking.request()
        if rng.random() < 0.3:
            continue  # the observation is lost; the actor sends it again
        answers = learner.serve(*[request] * int(rng.integers(1, 3)))
        if late is not None and rng.random() < 0.3:
            learner.serve(late)  # an old one that took its time
        late = request
        assert len({answer.actions.tobytes() for answer in answers}) == 1
        if rng.random() < 0.3:
            continue  # the actions are lost; the actor sends the observation again
        asking.take(answers[0])
    assert learner.refused == []
    expected = local_unrolls(PIXELS, 10, policy=learner.policy)
    assert_same_stream(learner, learner.unrolls[:10], expected)
    for unroll, wanted in zip(learner.unrolls, expected, strict=False):
        np.testing.assert_allclose(unroll.arrays['state'], wanted['state'], atol=1e-6)


def test_actors_in_one_batch_have_separate_actions_and_policy_states():
    learner = Learner(COUNTER, lstm_size=4, last_action_reward=True)
    sizes = set()
    learner.policy.register_forward_pre_hook(lambda module, inputs: sizes.add(inputs[0].shape[1]))
    asking = [Asking(learner, COUNTER, seed=number, batch=number + 1,
                     start_id=number) for number in range(3)]
    for turn in range(6 * STEPS + 3):
        # Not all actors each time, and not in the same order.
        chosen = [each for each in asking if (turn + each.start_id) % 3]
        chosen = chosen[::-1] if turn % 2 else chosen
        serve(learner, chosen)
    assert sizes == {3, 4, 5}, 'two actors of 1, 2 and 3 environments'
    for number in range(3):
        mine = [each for each in learner.unrolls if each.start_id == number]
        assert len(mine) >= 3
        assert_same_stream(learner, mine, local_unrolls(
            COUNTER, len(mine), seed=number, batch=number + 1))
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


def test_log_probs_and_versions_are_those_of_the_policy_that_acted():
    learner = Learner(COUNTER)
    asking = Asking(learner, COUNTER)
    other = make_policy(TRAIN, *factory.spaces(EnvConfig(env_id=COUNTER)))
    policies = [{name: array.copy() for name, array in weights(policy).items()}
                for policy in (learner.policy, other)]
    go_on(learner, asking, 2)
    learner.central.load(policies[1], 9)
    go_on(learner, asking, 2 * STEPS)
    first, second = learner.unrolls[:2]
    assert (first.policy_version, second.policy_version) == (0, 9)
    for unroll, t, which in ((first, 1, 0), (first, 2, 1), (second, 3, 1)):
        learner.central.load(policies[which], 0)
        observations, actions = (
            torch.from_numpy(unroll.arrays[name][t]) for name in ('observations', 'actions'))
        with torch.no_grad():
            wanted = learner.policy.distribution.log_prob(
                learner.policy(observations).parameters, actions)
        np.testing.assert_allclose(
            unroll.arrays['behaviour_log_probs'][t], wanted.numpy(), rtol=1e-5)


def test_exploration_follows_the_actors_name_and_the_learners_steps():
    own = DqnConfig(exploration_start=1.0, exploration_end=0.1, exploration_steps=100,
                    exploration_spread=2.0)
    learner = Learner(COUNTER, own=own, more={
        'exploration': lambda actor_id: exploration_schedule(own, actor_id)})
    actors = [Asking(learner, COUNTER, start_id=each) for each in (1, 2)]
    for agent_steps in (0, 60, 10**6):
        learner.central.load(dict(weights(learner.policy)), 1, agent_steps)
        serve(learner, actors)
        first, second = (
            exploration_schedule(own, f'actor{number}')(agent_steps) for number in (1, 2))
        assert learner.policy.exploration.tolist() == pytest.approx([first] * 3 + [second] * 3)
        assert (first == second) == (agent_steps == 0)


def test_an_actor_without_credit_is_answered_once_an_unroll_is_used():
    learner = Learner(COUNTER, max_in_flight=2)
    asking = Asking(learner, COUNTER)
    go_on(learner, asking, 2 * STEPS)
    assert learner.serve(asking.request()) == []
    assert len(learner.unrolls) == 2
    assert learner.serve(asking.request()) == [], 'asking again does not help'
    assert learner.serve() == []
    learner.use(learner.unrolls[0])
    answer, = learner.serve()  # without a new message
    asking.take(answer)
    go_on(learner, asking, STEPS - 1)
    assert learner.serve(asking.request()) == []
    assert len(learner.unrolls) == 3
    assert_same_stream(learner, learner.unrolls, local_unrolls(COUNTER, 3))


def test_synchronous_credit_returns_when_the_learned_weights_are_loaded():
    learner = Learner(COUNTER, max_in_flight=1, more={'synchronous': True})
    asking, other = (Asking(learner, COUNTER, start_id=each) for each in (1, 2))
    learner.central.load(dict(weights(learner.policy)), 1)
    for each in (asking, other):
        go_on(learner, each, STEPS)
        assert learner.serve(each.request()) == []
    learner.use(learner.unrolls[0])
    assert learner.serve() == [], 'the weights are still those of before the update'
    learner.central.load(dict(weights(learner.policy)), 2)
    answer, = learner.serve()
    assert (answer.request.start_id, answer.policy_version) == (1, 2)
    asking.take(answer)
    go_on(learner, asking, STEPS - 1)
    assert learner.serve(asking.request()) == []
    assert [unroll.policy_version for unroll in learner.unrolls] == [1, 1, 2]


def test_a_changed_number_of_environments_is_rejected_and_other_actors_are_answered():
    learner = Learner(COUNTER)
    asking, other = (Asking(learner, COUNTER, start_id=each) for each in (1, 2))
    go_on(learner, asking, 2)
    arrays = {name: array[:2] for name, array in asking.actor.observe(whole=False).items()}
    answers = learner.serve(dataclasses.replace(asking.request(), arrays=arrays), other.request())
    assert [answer.request.start_id for answer in answers] == [2]
    assert learner.refused == ['rewards: 2 environments are not the 3 of the step before']
    go_on(learner, asking, STEPS)
    assert_same_stream(learner, learner.unrolls, local_unrolls(COUNTER, 1))


def test_an_actor_whose_session_was_dropped_goes_on_with_whole_stacks(monkeypatch):
    monkeypatch.setattr(module, '_MAX_ACTORS', 1)
    learner = Learner(PIXELS, max_in_flight=2)
    asking, other = (Asking(learner, PIXELS, start_id=each) for each in (1, 2))
    go_on(learner, asking, 2 * STEPS)
    learner.use(learner.unrolls[0])
    go_on(learner, other, 1)
    assert learner.serve(asking.request()) == []
    assert 'there is no previous observation to continue' in learner.refused[0]
    asking.whole = True
    go_on(learner, asking, 2 * STEPS)
    assert learner.serve(asking.request()) == [], 'its credit is bounded as before'
    assert [each.sequence for each in learner.unrolls] == [0, 1, 2]
    first, _, *later = local_unrolls(PIXELS, 4)
    assert_same_stream(learner, learner.unrolls, [first, *later])


def test_an_error_names_the_array_of_an_invalid_step():
    for env_id, name, change, message in (
            (PIXELS, 'frames', lambda a: a[:, :4], 'shape (3, 4, 8) is not (3, 8, 8)'),
            (PIXELS, 'whole_index', lambda a: a + 1, '1 to 3 is not within 0 to 2'),
            (PIXELS, 'whole_index', lambda a: a - 1, '-1 to 1 is not within 0 to 2'),
            (PIXELS, 'whole_stacks', lambda a: a[:2], 'shape (2, 4, 8, 8) is not (3, 4, 8, 8)'),
            ('vdl/MixedCounter-v0', 'vectors', lambda a: a * np.nan, 'not all finite'),
            ('vdl/MixedCounter-v0', 'vectors', lambda a: a[:, :7], 'shape (3, 7) is not (3, 8)')):
        learner = Learner(env_id)
        arrays = Asking(learner, env_id).actor.observe(whole=True)
        assert learner.steps.check(arrays) == 3
        with pytest.raises(UnrollError) as error:
            learner.steps.check(arrays | {name: change(arrays[name])})
        assert str(error.value) == f'{name}: {message}'


def test_of_too_many_sessions_or_bytes_those_that_were_silent_longest_are_dropped(monkeypatch):
    monkeypatch.setattr(module, '_MAX_ACTORS', 3)
    learner = Learner(COUNTER)
    actors = [Asking(learner, COUNTER, start_id=each) for each in range(5)]
    go_on(learner, actors[0], 1)
    for each in actors[1:]:
        go_on(learner, each, 1)
        go_on(learner, actors[0], 1)
    assert set(learner.central._sessions) == {0, 3, 4}
    assert learner.central._sessions[0].t == len(actors), 'it was never dropped'
    learner = Learner(COUNTER, more={'max_bytes': 2 * learner.schema.num_bytes(3)})
    for number in range(4):
        go_on(learner, Asking(learner, COUNTER, start_id=number), 1)
    assert list(learner.central._sessions) == [2, 3]
    go_on(learner, Asking(learner, COUNTER, batch=9, start_id=9), STEPS + 1)
    assert list(learner.central._sessions) == [9], 'the newest one stays, however large'
    assert len(learner.unrolls) == 1
