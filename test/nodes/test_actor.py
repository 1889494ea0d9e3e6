"""The actor node refuses what a stranger publishes as a policy, in one line, and goes on."""

import dataclasses
import itertools
import json
import os
import sys
import time

import gymnasium
import numpy as np
import pytest
import rclpy
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec
from rclpy.executors import SingleThreadedExecutor

from vdl_ros.attacks.attack_config import SurrogateConfig
from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.nodes.actor import ActorNode
from vdl_ros.rl.acting.flow_control import LearnerChoice
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.runs.checkpoint import save_checkpoint
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.ros import process, qos
from vdl_ros.ros.messages.tensors import to_tensors
from vdl_ros.ros.node_settings import ONLY_ACTORS
from vdl_ros.ros.training import actor as actor_modes

SETTINGS = as_dict(EnvConfig(num_envs=1), TrainConfig(hidden_size=4, unroll_length=2))


@pytest.fixture
def niceness(monkeypatch):
    """Keep the niceness that an actor sets in a list, so that this process has its own."""
    values = [0]
    monkeypatch.setattr(os, 'getpriority', lambda which, who: values[-1])
    monkeypatch.setattr(os, 'setpriority', lambda which, who, value: values.append(value))
    return values


@pytest.fixture
def actor(niceness, request, monkeypatch):
    monkeypatch.setattr(process, 'die_with_parent', lambda: None)
    launch_id = getattr(request, 'param', "''")
    rclpy.init(args=['--ros-args', '-p', 'credit_timeout:=0.1', '-p', f'launch_id:={launch_id}'])
    node = ActorNode()
    yield node
    node.stop()
    node.destroy_node()
    rclpy.shutdown()


def policy(config, learner_id='learner', version=0, algorithm='impala', **changed):
    """Return a policy message with the weights that ``SETTINGS`` ask for."""
    train = TrainConfig(hidden_size=4, algorithm=algorithm)
    arrays = weights(make_policy(
        train, *factory.spaces(EnvConfig()), make_algorithm_config(train, {}))) | changed
    return Policy(
        learner_id=learner_id, version=version, tensors=to_tensors(arrays),
        config=config if isinstance(config, str) else json.dumps(config))


HOSTILE = {
    'deep': '[' * 50_000,
    'long': json.dumps({**SETTINGS, 'env_id': 'x' * 10**6}),
    'nested': {**SETTINGS, 'seed': [[]]},
    'many': {**SETTINGS, 'num_envs': 10**9},
    'limit': {**SETTINGS, 'time_limit': 2**100},
    'large': {**SETTINGS, 'env_id': 'dummy/OBS67108864-v0', 'num_envs': 4096},
    'unroll': {**SETTINGS, 'env_id': 'dummy/OBS1000000-v0', 'num_envs': 4,
               'unroll_length': 10_000},
    'explore': {**SETTINGS, 'algorithm': 'dqn', 'exploration_steps': 10**320},
    'escape': {**SETTINGS, 'env_id': '\x1b[2J\n[FATAL] forged'},
    'module': {**SETTINGS, 'env_id': 'antigravity:Env-v0', 'env_modules': 'antigravity'},
    'module and argument': {**SETTINGS, 'env_id': 'GymV26Environment-v0',
                            'env_kwargs': '{"env_id": "antigravity:Env-v0"}'},
    'wrapper': {**SETTINGS, 'env_wrappers': 'antigravity.Wrapper'},
    'wrapper that writes': {**SETTINGS, 'env_wrappers': (
        '[{"RecordVideo": {"video_folder": "x"}}]')},
    'infinite': {**SETTINGS, 'discount': float('nan')},
    'bag': {**SETTINGS, 'relearn': True},
}


@pytest.fixture
def said(capfd):
    """Return a function that returns what was logged since the last call."""
    return lambda: ''.join(capfd.readouterr())


@pytest.fixture
def take(actor):
    """Return a function that lets the actor act with a policy."""
    def act(*message, **more):
        actor._policies.put(policy(*message, **more))
        return actor.act()
    return act


def act_until(actor, condition, what):
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, what
        actor.act()


def test_hostile_policies_are_refused_in_one_line_each_and_a_good_one_is_used(take, said):
    lines = {}
    for name, config in HOSTILE.items():
        assert not take(config), name
        lines[name] = said()
        assert 'policy refused, waiting for another: ' in lines[name], name
        assert len(lines[name].splitlines()) == 1, name
        assert len(lines[name]) < 400, name
        assert '\x1b' not in lines[name], name
        assert 'antigravity' not in sys.modules, name
    assert 'relearn: the learner learns from a bag and needs no actors' in lines['bag']
    assert not take(SETTINGS, **{'value_head.bias': np.full(1, np.nan, np.float32)})
    assert 'value_head.bias: not all finite' in said()
    take({**SETTINGS, 'num_envs': 2})
    assert ' acts in 2 x CartPole-v1' in said()


class Failing(CartPoleEnv):
    """Raises the next of ``errors`` in the call that it names."""

    errors = []

    def _fail(self, where):
        if self.errors and self.errors[0][0] == where:
            raise self.errors.pop(0)[1]

    def reset(self, **more):
        self._fail('reset')
        return super().reset(**more)

    def step(self, action):
        self._fail('step')
        return super().step(action)

    def close(self):
        self._fail('close')


def test_an_environment_that_raises_anything_is_named_in_a_line_and_made_again(
        actor, said, monkeypatch):
    monkeypatch.setattr(actor_modes, '_AGAIN_S', 0.0)
    monkeypatch.setattr(Failing, 'errors', [
        ('reset', OverflowError('too\nlarge')), ('close', RuntimeError('held')),
        ('step', KeyError('pole'))])
    monkeypatch.setitem(gymnasium.registry, 'test/Failing-v0', EnvSpec(
        'test/Failing-v0', lambda render_mode=None: Failing()))
    # Latched: it is published once.
    learner = qos.pub(actor, 'policy')
    learner.publish(policy({**SETTINGS, 'env_id': 'test/Failing-v0'}))
    listen(actor)

    def has_acted():
        rclpy.spin_once(actor, timeout_sec=0.01)
        return actor._mode is not None and actor._mode.sequence

    act_until(actor, has_acted, 'a step')
    lines = [line for line in said().splitlines() if 'environment failed' in line]
    for line, reason in zip(lines, (
            'reset(): OverflowError: too large', "step(): KeyError: 'pole'"), strict=True):
        assert f': env_id: test/Failing-v0: {reason} (test_actor.py:' in line


def test_an_actor_leaves_cores_to_its_learner_but_in_real_time_and_warns_if_it_cannot(
        actor, take, niceness, monkeypatch, said):
    for changed, expected in (({'realtime_fps': 50.0}, 0), ({'inference': 'learner'}, 0), ({}, 5)):
        take({**SETTINGS, **changed})
        assert actor._mode is not None, changed
        assert niceness[-1] == expected, changed

    def refuse(which, who, value):
        raise PermissionError

    monkeypatch.setattr(os, 'setpriority', refuse)
    take({**SETTINGS, 'realtime_fps': 50.0}, version=1)
    assert 'actions may be late: start the actor again' in said()


@pytest.mark.parametrize(('algorithm', 'fps', 'versions'), [
    ('dqn', 1000.0, [0, 1, 1, 1]), ('dqn', 0.0, [0] * 4), ('impala', 1000.0, [0] * 4)])
def test_in_real_time_newer_weights_are_used_from_the_next_step_on(
        actor, take, algorithm, fps, versions):
    """Steps of a replay are of many policies; an unroll for V-trace is of one."""
    executor, used = SingleThreadedExecutor(), []
    executor.add_node(actor)
    listen(actor)
    config = {**SETTINGS, 'unroll_length': 4, 'realtime_fps': fps, 'algorithm': algorithm}
    take(config, algorithm=algorithm)
    mode = actor._mode
    act_until(actor, mode.is_ready, 'a subscriber')
    step = mode.actor.envs.step

    def receive_during(actions):
        used.append(mode.actor.policy_version)
        # Another learner's waits for the end of the unroll.
        sent = ('learner', 1) if len(used) < 3 else ('another', 2)
        actor._policies.put(policy(config, *sent, algorithm))
        return step(actions)

    mode.actor.envs.step = receive_during
    act_until(actor, lambda: len(used) >= 4, 'an unroll')
    assert used[:4] == versions
    act_until(actor, lambda: actor._mode.actor.policy_version == 2, 'the other learner')
    executor.shutdown()


def listen(actor):
    qos.sub(actor, 'trajectories', lambda message: None)


@pytest.fixture
def await_recorder(actor):
    """Let the actor await a recorder; a learner receives its trajectories."""
    actor._settings = dataclasses.replace(actor._settings, await_recorder=True)
    listen(actor)


def test_an_actor_sends_its_first_trajectory_once_a_recorder_is_there(actor, take, await_recorder):
    take(SETTINGS)
    act_until(actor, actor._mode._publisher.get_subscription_count, 'a subscriber')
    for _ in range(3):
        actor.act()
    assert actor._mode.sequence == 0
    listen(actor)
    act_until(actor, lambda: actor._mode.sequence, 'a trajectory')


def test_an_actor_that_starts_after_the_end_of_its_recorder_goes_on_without(
        actor, take, await_recorder, monkeypatch, said):
    monkeypatch.setattr(actor_modes, '_RECORDER_S', 0.001)
    take(SETTINGS)
    act_until(actor, lambda: actor._mode.sequence, 'a trajectory')
    assert 'no recorder of the trajectories within' in said()


def test_an_actor_goes_on_whose_trajectories_are_all_lost_while_others_learn(actor, take):
    listen(actor)
    deadline = time.monotonic() + 120.0
    # No policy has credit for this actor: none of its trajectories has arrived.
    versions = itertools.count(50, 50)
    while actor._mode is None or actor._mode.sequence < 6:
        assert time.monotonic() < deadline
        take(SETTINGS, version=next(versions))


def test_an_actor_stays_with_its_learner_when_a_second_training_starts(actor, take, said):
    publishers = [qos.pub(actor, 'policy') for _ in '12']
    other = {**SETTINGS, 'env_id': 'vdl/Counter-v0'}
    # Not silent within this test, however slow the machine is.
    actor._policies.choice = LearnerChoice(1e6)
    for version in range(3):
        take(SETTINGS, 'first', version)
        take(other, 'second', version)
    # The second, whose policy is latched, may publish no other before it has trajectories.
    take(SETTINGS, 'first', 3)
    output = said()
    assert output.count(' acts in ') == 1
    assert output.count("another learner, 'second', publishes on /policy") == 1
    # The first one ends.
    actor.destroy_publisher(publishers[0])
    act_until(actor, lambda: ' acts in 1 x vdl/Counter-v0' in said(), 'the second')


@pytest.mark.parametrize(('actor', 'count'), [('mine', 0), (ONLY_ACTORS, 1)], indirect=['actor'])
def test_an_actor_waits_for_the_learner_of_its_launch_if_it_has_one(actor, take, said, count):
    take(SETTINGS, 'other/1')
    output = said()
    assert output.count(' acts in ') == count
    line = "another learner, 'other/1', publishes on /policy: its policies are ignored; give each"
    assert (line in output) == (not count)


def test_an_actor_without_a_learner_logs_where_it_looked(actor, said):
    actor.tell_if_alone()
    line = said()
    assert 'no learner publishes /policy in domain ' in line
    assert "discovery range 'LOCALHOST'; one on another host needs" in line
    learner = rclpy.create_node('learner')
    deadline = time.monotonic() + 60.0
    while 'learner' not in actor.get_node_names():
        assert time.monotonic() < deadline
    actor.tell_if_alone()
    assert said().count('a learner has started and published no policy yet: its lines say') == 1
    publisher = qos.pub(learner, 'policy')
    while not actor.count_publishers('policy'):
        assert time.monotonic() < deadline
    actor.tell_if_alone()
    assert not said()
    learner.destroy_publisher(publisher)
    learner.destroy_node()


def test_an_actor_without_weights_attacks_by_a_surrogate_and_reports_it(actor, take, tmp_path):
    env, train = EnvConfig(), TrainConfig(hidden_size=4)
    algorithm = make_algorithm_config(train, {})
    learner = Learner(train, *factory.spaces(env), algorithm_config=algorithm)
    save_checkpoint(tmp_path / 'surrogate.pt', config=as_dict(env, train, algorithm),
                    learner=learner.state(), progress={})
    actor._surrogate = SurrogateConfig(adversarial_checkpoint=str(tmp_path / 'surrogate.pt'))
    take({**SETTINGS, 'inference': 'learner', 'adversarial_mode': 'fgsm',
          'adversarial_epsilon': 0.1})
    warning, values = actor._health()
    assert warning == 'attacks what the policy observes: fgsm, epsilon 0.1'
    assert values['observations attacked'] > 0
