"""The actor node refuses what a stranger publishes as a policy, in one line, and goes on."""

import dataclasses
import json
import os
import sys
import time

import numpy as np
import pytest
import rclpy

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy, Trajectory
from vdl_ros.nodes.actor import ActorNode
from vdl_ros.rl.acting.flow_control import LearnerChoice
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.settings import TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.messages.tensors import to_tensors
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
def actor(niceness):
    rclpy.init(args=['--ros-args', '-p', 'credit_timeout:=0.1'])
    node = ActorNode()
    yield node
    node.stop()
    node.destroy_node()
    rclpy.shutdown()


def policy(config, learner_id='learner', version=0, **changed):
    """Return a policy message with the weights that ``SETTINGS`` ask for."""
    arrays = weights(make_policy(
        TrainConfig(hidden_size=4), *factory.spaces(EnvConfig()))) | changed
    return Policy(
        learner_id=learner_id, version=version, tensors=to_tensors(arrays),
        config=config if isinstance(config, str) else json.dumps(config))


HOSTILE = {
    'deep': '[' * 50_000,
    'long': json.dumps({**SETTINGS, 'env_id': 'x' * 10**6}),
    'nested': {**SETTINGS, 'seed': [[]]},
    'many': {**SETTINGS, 'num_envs': 10**9},
    'stack': {**SETTINGS, 'env_id': 'ALE/Pong-v5', 'frame_stack': 10**9},
    'limit': {**SETTINGS, 'time_limit': 2**100},
    'large': {**SETTINGS, 'env_id': 'dummy/OBS67108864-v0', 'num_envs': 4096},
    'unroll': {**SETTINGS, 'env_id': 'dummy/OBS1000000-v0', 'num_envs': 4,
               'unroll_length': 10_000},
    'explore': {**SETTINGS, 'algorithm': 'dqn', 'exploration_steps': 10**320},
    'escape': {**SETTINGS, 'env_id': '\x1b[2J\n[FATAL] forged'},
    'module': {**SETTINGS, 'env_id': 'antigravity:Env-v0', 'env_modules': 'antigravity'},
    'module and argument': {**SETTINGS, 'env_id': 'GymV26Environment-v0',
                            'env_kwargs': '{"env_id": "antigravity:Env-v0"}'},
    'not imported here': {**SETTINGS, 'env_id': 'theirs/Env-v0', 'env_modules': 'antigravity'},
    'wrapper': {**SETTINGS, 'env_wrappers': 'antigravity.Wrapper'},
    'wrapper that writes': {**SETTINGS, 'env_wrappers': (
        '[{"RecordVideo": {"video_folder": "x"}}]')},
    'stack of frames': {**SETTINGS, 'env_wrappers': (
        '[{"FrameStackObservation": {"stack_size": 1000}}]')},
    'choices': {**SETTINGS, 'env_id': 'Ant-v5', 'env_wrappers': (
        '[{"DiscretizeAction": {"bins": 200}}]')},
    'arguments': {**SETTINGS, 'env_kwargs': '{"no": "\\u001b[2J"}'},
    'deep arguments': {**SETTINGS, 'env_kwargs': '[' * 8000},
    'infinite': {**SETTINGS, 'discount': float('nan')},
    'bag': {**SETTINGS, 'relearn': True},
}


def test_hostile_policies_are_refused_in_one_line_each_and_a_good_one_is_used(actor, capfd):
    said = {}
    for name, config in HOSTILE.items():
        actor._policies.put(policy(config))
        assert not actor.act(), name
        said[name] = ''.join(capfd.readouterr())
        assert 'policy refused, waiting for another: ' in said[name], name
        assert len(said[name].splitlines()) == 1, name
        assert len(said[name]) < 400, name
        assert '\x1b' not in said[name], name
        assert 'antigravity' not in sys.modules, name
    assert 'relearn: the learner learns from a bag and needs no actors' in said['bag']
    actor._policies.put(policy(SETTINGS, **{'value_head.bias': np.full(1, np.nan, np.float32)}))
    assert not actor.act()
    assert 'value_head.bias: not all finite' in ''.join(capfd.readouterr())
    actor._policies.put(policy({**SETTINGS, 'num_envs': 2}))
    actor.act()
    assert ' acts in 2 x CartPole-v1' in ''.join(capfd.readouterr())


def test_an_actor_leaves_cores_to_its_learner_but_in_real_time(actor, niceness):
    for changed, expected in (
            ({}, 5), ({'realtime_fps': 50.0}, 0), ({'inference': 'learner'}, 0)):
        actor._policies.put(policy({**SETTINGS, **changed}))
        actor.act()
        assert actor._mode is not None, changed
        assert niceness[-1] == expected, changed


def test_an_actor_that_cannot_take_its_cores_back_for_real_time_warns(
        actor, niceness, monkeypatch, capfd):
    actor._policies.put(policy(SETTINGS))
    actor.act()
    assert niceness == [0, 5]

    def refuse(which, who, value):
        raise PermissionError

    monkeypatch.setattr(os, 'setpriority', refuse)
    actor._policies.put(policy({**SETTINGS, 'realtime_fps': 50.0}, version=1))
    actor.act()
    assert 'actions may be late: start the actor again' in ''.join(capfd.readouterr())


def until_it_sends(actor):
    deadline = time.monotonic() + 120.0
    while not actor._mode.sequence:
        assert time.monotonic() < deadline, 'no trajectory'
        actor.act()


def listen(actor):
    actor.create_subscription(
        Trajectory, 'trajectories', lambda message: None, qos.TOPICS['trajectories'])


@pytest.fixture
def recorded_actor(actor):
    """Return an actor with await_recorder and a policy, whose trajectories a learner receives."""
    actor._settings = dataclasses.replace(actor._settings, await_recorder=True)
    listen(actor)
    return actor


def test_an_actor_sends_its_first_trajectory_once_a_recorder_is_there(recorded_actor):
    recorded_actor._policies.put(policy(SETTINGS))
    deadline = time.monotonic() + 120.0
    recorded_actor.act()
    while not recorded_actor._mode._publisher.get_subscription_count():
        assert time.monotonic() < deadline, 'no subscriber'
    for _ in range(3):
        recorded_actor.act()
    assert recorded_actor._mode.sequence == 0
    listen(recorded_actor)
    until_it_sends(recorded_actor)


def test_an_actor_that_starts_after_the_end_of_its_recorder_goes_on_without(
        recorded_actor, monkeypatch, capfd):
    monkeypatch.setattr(actor_modes, '_RECORDER_S', 0.001)
    recorded_actor._policies.put(policy(SETTINGS))
    recorded_actor.act()
    until_it_sends(recorded_actor)
    assert 'no recorder of the trajectories within' in ''.join(capfd.readouterr())


def test_an_actor_goes_on_whose_trajectories_are_all_lost_while_others_learn(actor):
    listen(actor)
    deadline, version, sent = time.monotonic() + 120.0, 0, 0
    # No policy has credit for this actor: none of its trajectories has arrived.
    while sent < 6:
        assert time.monotonic() < deadline, f'{sent} trajectories, and no more'
        version += 50
        actor._policies.put(policy(SETTINGS, version=version))
        actor.act()
        sent = actor._mode.sequence


def test_an_actor_stays_with_its_learner_when_a_second_training_starts(actor, capfd):
    publishers = [actor.create_publisher(Policy, 'policy', qos.TOPICS['policy']) for _ in '12']
    other = {**SETTINGS, 'env_id': 'vdl/Counter-v0'}
    # Not silent within this test, however slow the machine is.
    actor._policies.choice = LearnerChoice(1e6)
    for version in range(3):
        actor._policies.put(policy(SETTINGS, 'first', version))
        actor.act()
        actor._policies.put(policy(other, 'second', version))
        actor.act()
    # The second, whose policy is latched, may publish no other before it has trajectories.
    actor._policies.put(policy(SETTINGS, 'first', 3))
    actor.act()
    output = ''.join(capfd.readouterr())
    assert output.count(' acts in ') == 1
    assert output.count("another learner, 'second', publishes on /policy") == 1
    # The first one ends.
    actor.destroy_publisher(publishers[0])
    deadline = time.monotonic() + 120.0
    while ' acts in 1 x vdl/Counter-v0' not in output:
        assert time.monotonic() < deadline, output
        actor.act()
        output += ''.join(capfd.readouterr())


def test_an_actor_without_a_learner_logs_where_it_looked(actor, capfd, monkeypatch):
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    actor.tell_if_alone()
    said = ''.join(capfd.readouterr())
    assert 'no learner publishes /policy in domain ' in said
    assert "discovery range 'LOCALHOST'; one on another host needs" in said
    learner = actor.create_publisher(Policy, 'policy', qos.TOPICS['policy'])
    actor.tell_if_alone()
    assert 'no learner' not in ''.join(capfd.readouterr())
    actor.destroy_publisher(learner)
