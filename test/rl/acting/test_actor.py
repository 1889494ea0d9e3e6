"""Actor: consecutive unrolls join without gaps and contain the real steps."""

import threading
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.actor import EnvStepper, Interrupted
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import Unroll, UnrollSchema, add_extras
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.settings import DqnConfig, TrainConfig

BATCH = 3


def make_actor(env_id, steps, seed=4, timer=None, own=None, more=None, **train):
    """Return an actor and its schema; ``train`` is of its policy, ``more`` of the actor."""
    config = EnvConfig(env_id=env_id)
    envs = factory.make(config, seed, num_envs=BATCH)
    spaces = envs.single_observation_space, envs.single_action_space
    torch.manual_seed(0)
    train = TrainConfig(**{'network': 'mlp', 'hidden_size': 4, **train})
    policy = make_policy(train, *spaces, own)
    schema = UnrollSchema(
        *spaces, steps, factory.frames_per_observation(config), policy.state_size)
    torch.seed()  # whatever was drawn before must not matter
    return TorchActor(envs, policy, schema, seed, timer, **(more or {})), schema


def decoded(schema, arrays, space):
    out = np.empty((schema.unroll_length + 1, BATCH, *space.shape), space.dtype)
    schema.decode_into(arrays, out)
    return out


@pytest.mark.parametrize(('env_id', 'steps'), [
    ('vdl/Counter-v0', 1), ('vdl/PixelCounter-v0', 2), ('vdl/MixedCounter-v0', 7)])
def test_unrolls_contain_every_step_of_the_environment_once(env_id, steps):
    actor, schema = make_actor(env_id, steps)
    # In these environments actions have no effect, so another copy gives the same observations.
    other = factory.make(EnvConfig(env_id=env_id), 4, num_envs=BATCH)
    last, _ = other.reset(seed=4)
    last_reset, done = np.ones(BATCH, np.bool_), np.zeros(BATCH, np.bool_)
    for _ in range(60 // steps):
        arrays, _ = actor.unroll()
        schema.check(arrays)
        observations = decoded(schema, arrays, actor.envs.single_observation_space)
        assert np.array_equal(observations[0], last)
        assert np.array_equal(arrays['is_reset'][0], last_reset)
        for t in range(steps):
            expected, rewards, terminated, truncated, _ = other.step(
                np.zeros(other.action_space.shape, np.int64))
            assert np.array_equal(observations[t + 1], expected)
            assert np.array_equal(arrays['is_reset'][t + 1], done)
            for name, each in (('rewards', rewards), ('terminated', terminated),
                               ('truncated', truncated)):
                assert np.array_equal(arrays[name][t], each), name
            if env_id == 'vdl/Counter-v0':
                assert np.array_equal(done, expected[:, 1] == 0)
            done = terminated | truncated
        last, last_reset = observations[-1], arrays['is_reset'][-1]
    actor.close()
    other.close()


def test_an_unroll_of_a_slow_environment_says_how_far_it_is(monkeypatch):
    actor, _ = make_actor('vdl/Counter-v0', 4)
    now, said = [0.0], []
    monkeypatch.setattr('vdl_ros.rl.acting.actor.monotonic', lambda: now[0])

    def before_step():
        said.append(actor.progress())
        now[0] += 3.0

    actor.unroll(refresh=before_step)
    assert said == ['', '', '', 'step 3 of 4 (num_envs 3), 1.5 steps/s: a smaller unroll_length '
                    'or num_envs gives earlier updates']
    assert not actor.progress()
    actor.close()


def test_actions_are_recorded_before_they_are_clipped_or_squashed():
    for kind, expected in (('gaussian', lambda u: u.clip(-1, 1)), ('squashed', np.tanh)):
        actor, _ = make_actor('vdl/Reach1D-v0', 100, action_distribution=kind)
        sent, step = [], actor.envs.step

        def spy(actions, sent=sent, step=step):
            sent.append(actions.copy())
            return step(actions)

        actor.envs.step = spy
        arrays, _ = actor.unroll()
        assert np.abs(arrays['actions']).max() > 1
        np.testing.assert_allclose(np.stack(sent), expected(arrays['actions']), rtol=1e-6)


def test_the_same_seed_gives_the_same_unrolls_and_the_next_overwrites_none(same):
    actor, _ = make_actor('vdl/Reach1D-v0', 30)
    first, _ = actor.unroll()
    actor.unroll()
    assert same(first, make_actor('vdl/Reach1D-v0', 30)[0].unroll()[0])
    assert not same(first, make_actor('vdl/Reach1D-v0', 30, seed=5)[0].unroll()[0])


@pytest.mark.parametrize(('env_id', 'memory'), [
    ('vdl/Counter-v0', {'lstm_size': 4}), ('vdl/PixelCounter-v0', {'last_action_reward': True}),
    ('vdl/MixedCounter-v0', {'lstm_size': 4, 'last_action_reward': True}),
    ('vdl/Reach1D-v0', {'lstm_size': 4, 'last_action_reward': True})])
def test_a_learner_recomputes_outputs_and_states_from_the_state_in_an_unroll(env_id, memory):
    actor, schema = make_actor(env_id, 9, **memory)
    outputs, policy, forward = [], actor.policy, actor.policy.forward

    def spy(*given):
        outputs.append(forward(*given))
        return outputs[-1]

    policy.forward = spy
    state, resets = policy.initial_state(BATCH), 0
    for number in range(8):
        arrays, _ = actor.unroll()
        schema.check(arrays)
        batch = make_batch([Unroll(arrays, 'a', 0, 0, 0)], schema)
        torch.testing.assert_close(batch.state, state, rtol=1e-5, atol=1e-6)
        assert bool(batch.state.any()) == (number > 0)
        given = batch.actions, batch.rewards
        with torch.no_grad():
            parameters, values, _ = forward(
                batch.observations, batch.is_reset, batch.state, *given)
            # Without the last observation, which is the first one of the next unroll.
            state = forward(
                batch.observations[:-1], batch.is_reset[:-1], batch.state, *given).state
            state = policy.append_last_action(state, batch.actions[-1], batch.rewards[-1])
        acted = outputs[9 * number:]
        assert len(acted) == 9
        for t, step in enumerate(acted):
            torch.testing.assert_close(step.parameters[0], parameters[t])
            torch.testing.assert_close(step.values[0], values[t])
        torch.testing.assert_close(
            batch.behaviour_log_probs, policy.distribution.log_prob(
                parameters[:-1], batch.actions), rtol=1e-4, atol=1e-5)
        resets += int(batch.is_reset[1:].sum())
    assert resets > BATCH


def test_actions_are_those_of_the_loaded_policy_and_its_exploration():
    actor, _ = make_actor('vdl/Counter-v0', 20, own=DqnConfig(), more={
        'exploration': lambda agent_steps: 1 - agent_steps / 1000})
    best = {name: np.zeros_like(array) for name, array in weights(actor.policy).items()}
    best['policy_head.bias'][1] = 5.0
    for steps, chances in ((0, (0.5, 0.5)), (500, (0.25, 0.75)), (1000, (0.0, 1.0))):
        actor.load(best, 3, steps)
        arrays, _ = actor.unroll()
        np.testing.assert_allclose(np.exp(arrays['behaviour_log_probs']),
                                   np.array(chances)[arrays['actions']], rtol=1e-5)
    assert actor.policy_version == 3
    best['policy_head.bias'][:] = 0.0  # a copy was taken
    assert (actor.unroll()[0]['actions'] == 1).all()


def test_what_an_environment_tells_of_its_clock_is_in_the_unroll():
    extras = {'reaction_time': np.full((BATCH, 4), 0.5), 'late_actions': np.arange(BATCH),
            'is_success': np.zeros((BATCH, 2))}
    envs = factory.make(EnvConfig(env_id='vdl/Counter-v0'), 1, num_envs=BATCH)
    step = envs.step
    envs.step = lambda actions: (*step(actions)[:4], extras)
    stepper = EnvStepper(envs, 1)
    found = stepper.step(np.zeros(BATCH, np.int64))
    # Success of another shape is not success.
    assert found.extras.keys() == {'reaction_time', 'late_actions'}
    assert found.extras['reaction_time'].dtype == np.float32
    assert found.extras['late_actions'].dtype == np.int32
    arrays = {'rewards': np.zeros((3, BATCH), np.float32)}
    add_extras(arrays, found.extras, 1)
    assert arrays['late_actions'][1].tolist() == list(range(BATCH))
    assert not arrays['reaction_time'][[0, 2]].any()
    assert (arrays['reaction_time'][1] == 0.5).all()


def test_a_step_in_which_a_robot_was_lost_is_none_of_an_episode():
    """Two robots: the first ends an episode, the second is lost for two steps."""
    done = iter([(0, 0), (1, 0), (0, 0), (0, 0)])
    lost = iter([(0, 0), (0, 1), (0, 1), (0, 0)])
    envs = SimpleNamespace(
        num_envs=2, metadata={}, single_action_space=gymnasium.spaces.Discrete(2),
        reset=lambda seed: (np.zeros(2), {}),
        step=lambda actions: (np.zeros(2), np.zeros(2), np.array(next(done), bool),
                              np.zeros(2, bool), {'is_lost': np.array(next(lost), bool)}))
    stepper = EnvStepper(envs, 1)
    found = [stepper.step(np.zeros(2, int)).is_reset.tolist() for _ in range(4)]
    assert found == [[False, False], [False, True], [True, True], [False, False]]
    assert stepper.is_reset.tolist() == [False, False]


def test_an_unroll_is_given_up_at_the_next_step_once_it_is_to_end():
    actor, _ = make_actor('vdl/Counter-v0', 1000)
    stop, step, calls = threading.Event(), actor.envs.step, []
    actor.envs.step = lambda actions: (calls.append(stop.set()), step(actions))[1]
    with pytest.raises(Interrupted):
        actor.unroll(stop)
    assert len(calls) == 1
