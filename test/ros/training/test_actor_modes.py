"""The modes of an actor node: what they do when the learner is silent."""

import dataclasses
import threading
from types import SimpleNamespace

import pytest
from std_msgs.msg import String

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import EnvError, EnvFailedError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Action, LearnerBusy, Policy
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.ros.messages.tensors import from_tensors, to_tensors
from vdl_ros.ros.training import training
from vdl_ros.ros.training.actor import (
    ActorContext,
    CentralInferenceMode,
    LocalInferenceMode,
    PolicyInbox,
)


def context(node, heard):
    return ActorContext(node, actor_id='a', start_id=1, seed=0, threads=1, credit_timeout=10.0,
                        timer=ThreadTimer(), finished=lambda episodes, version: None, heard=heard,
                        stop=threading.Event())


def test_an_observation_that_is_not_answered_is_sent_again_with_whole_stacks(node, monkeypatch):
    """The learner may have dropped this actor, and then it has no stack to continue."""
    env = EnvConfig(env_id='vdl/PixelCounter-v0')
    envs = factory.make(env, 0, num_envs=2)
    mode = CentralInferenceMode(
        context(node, lambda: None), envs, factory.frames_per_observation(env), sequence=5)
    sent = []
    monkeypatch.setattr(mode._publisher, 'publish', sent.append)
    mode.on_policy(Policy(learner_id='learner'))
    mode.act()
    actions = envs.action_space.sample()

    def answer(step):
        mode._on_action(Action(start_id=1, learner_id='learner', step=step,
                               tensors=to_tensors({'actions': actions})))
        mode.act()

    answer(5)
    monkeypatch.setattr(mode, '_RETRY_S', -1.0)
    mode.act()
    first, second, again = (from_tensors(each.tensors) for each in sent)
    assert [each.step for each in sent] == [5, 6, 6]
    assert (len(first['whole_index']), len(second['whole_index'])) == (2, 0)
    assert len(again['whole_index']) == 2
    assert (again['frames'] == second['frames']).all()
    # An error of the environment is not one of the actions; the next mode has numbers of its own.
    monkeypatch.setattr(envs.env, 'step', lambda _: 1 / 0)
    with pytest.raises(EnvError, match='ZeroDivisionError'):
        answer(6)
    assert mode.sequence == 7
    mode.close()


@pytest.mark.parametrize(('busy', 'whose', 'sent'), [
    ('learner', [], 1), ('learner', [2, 1], 1), ('learner', [2], 2),
    ('another', [], 2)])
def test_an_actor_waits_for_a_learner_that_computes_or_has_its_trajectory(
        node, monkeypatch, busy, whose, sent):
    """A slow synchronous update must not make actors send trajectories of the old policy."""
    now, heard = [0.0], []
    env = EnvConfig(env_id='vdl/Counter-v0')
    train = TrainConfig(network='mlp', hidden_size=4, unroll_length=4, batch_size=1,
                        synchronous=True)
    algorithm_config = make_algorithm_config(train, {})
    envs = factory.make(env, 0, num_envs=1)
    mode = LocalInferenceMode(
        context(node, lambda: heard.append(now[0])), envs, train, algorithm_config, 1)
    monkeypatch.setattr(mode._credit, '_clock', lambda: now[0])
    published = []
    monkeypatch.setattr(mode, '_publisher', SimpleNamespace(
        get_subscription_count=lambda: 1, publish=published.append))
    policy = make_policy(train, *factory.spaces(env), algorithm_config)
    mode.on_policy(Policy(learner_id='learner', tensors=to_tensors(dict(weights(policy)))))
    assert mode.act()
    # The policy comes after 25 s.
    for _ in range(20):
        now[0] += 1.0
        mode._on_busy(LearnerBusy(learner_id=busy, start_ids=whose))
        mode.act()
    assert len(published) == sent
    assert len(heard) == (20 if busy == 'learner' else 0)
    envs.close()


def test_a_learner_hears_how_far_a_slow_unroll_is_and_when_that_is_no_longer_known(
        node, monkeypatch):
    source, now = SimpleNamespace(_progress={}), [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr('vdl_ros.ros.training.actor.time', clock)
    monkeypatch.setattr(training, 'time', clock)
    said = []

    def say(state):
        said.append(state)
        training._Source._on_state(source, String(data=f'a {state}'))

    mode = SimpleNamespace(
        _context=dataclasses.replace(context(node, None), say_state=say), _told=0.0,
        actor=SimpleNamespace(progress=lambda: f'step {now[0]:g}'))
    for now[0] in (100.0, 104.0, 106.0):
        LocalInferenceMode._before_step(mode)
    assert said == ['is at step 100', 'is at step 106']
    training._Source._on_state(source, String(data='b refuses the policy: x'))
    assert training._Source.progress(source) == 'a is at step 106'
    say('refuses the policy: x')
    assert not training._Source.progress(source)
    say('is at step 3')
    assert training._Source.progress(source) == 'a is at step 3'
    now[0] += 60.0
    assert not training._Source.progress(source)


@pytest.mark.parametrize(('own', 'acts_s', 'ends', 'error', 'acts'), [
    ('mine', 0.0, 2, EnvFailedError, False), ('mine', 0.0, 2, RuntimeError, True),
    ('mine', 30.0, 2, EnvError, False), ('mine', 90.0, 0, EnvFailedError, False),
    ('', 0.0, 0, EnvError, False), ('', 0.0, 0, RuntimeError, True)])
def test_only_an_environment_of_the_own_launch_that_fails_again_and_again_ends_an_actor(
        node, monkeypatch, own, acts_s, ends, error, acts):
    now, ended = [0.0], 0
    monkeypatch.setattr('vdl_ros.ros.training.actor.time', SimpleNamespace(
        monotonic=lambda: now[0]))
    inbox = PolicyInbox(node, 'policy', 60.0, own)
    for _ in range(4):
        inbox.put(Policy(learner_id='mine/1'))
        inbox.take()
        try:
            with inbox.refusing(acts=acts):
                inbox.succeeded()
                now[0] += acts_s
                inbox.succeeded()
                raise error('env_id: my/Env-v0: step(): KeyError: 3')
        except Exception:
            ended += 1
    assert ended == ends
    inbox.put(Policy(learner_id='mine/1'))
    # Without a launch that ends with it, environments are not made again at once.
    assert (inbox.take() is None) == (acts and not own)
    now[0] += 6.0
    inbox.put(Policy(learner_id='mine/1'))
    assert inbox.take() is not None
