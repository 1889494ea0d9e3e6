"""The actor of several agents: one world, two learners in namespaces, over DDS."""

import contextlib
import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
import rclpy
from rclpy.time import Time

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import ParallelWorlds
from vdl_ros.msg import Policy
from vdl_ros.nodes import world_actor
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.runs.recorded_run import RecordedRun
from vdl_ros.rl.settings import TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.training.actor import LocalInferenceMode
from vdl_ros.ros.training.messages import to_policy
from vdl_ros.ros.training.world_actors import WorldActors, WorldAgent

TESTS = Path(__file__).resolve().parents[1]


def test_two_learners_train_the_bodies_of_one_world(launch, tmp_path, monkeypatch):
    monkeypatch.setenv('PYTHONPATH', f'{TESTS}:{os.environ.get("PYTHONPATH", "")}')
    actor = launch.node('world_actor', 'env_modules:=duel_world', 'agents:=red,blue')
    # Episodes of red bodies have 3 and 5 steps, those of the blue one 5; blue ends first.
    learners = {name: launch.node(
        'learner', 'env_modules:=duel_world', 'env_id:=test/duel', f'bodies:={name}_*',
        'num_envs:=2', 'num_actors:=1', f'algorithm:={algorithm}', f'total_steps:={steps}',
        f'unroll_length:={length}', f'run_dir:={tmp_path / name}', namespace=f'/{name}')
        for name, algorithm, steps, length in (
            ('red', 'ppo', 1200, 20), ('blue', 'impala', 300, 7))}
    for name, learner in learners.items():
        assert learner.wait() == 0, learner.output + actor.output
        summary = json.loads((tmp_path / name / 'summary.json').read_text())
        assert summary['ended_by'] == 'total_steps'
        assert summary['trajectories_lost'] == summary['trajectories_rejected'] == 0
        assert summary['updates'] > 0
        length = RecordedRun(tmp_path / name).columns['mean_length_100'][-1]
        assert length == pytest.approx(4.0 if name == 'red' else 5.0, abs=0.1)
    assert 'red (4 bodies), blue (2 bodies)' in actor.output
    actor.stop()
    assert 'Traceback' not in actor.output


def test_wrong_names_of_agents_are_refused(refused):
    for agents in ('', 'red,red', 'Red'):
        assert 'is not allowed' in refused(world_actor.main, f'agents:={agents!r}')


@contextlib.contextmanager
def world_actors():
    """Yield the actors of red and blue in a node."""
    rclpy.init()
    node = rclpy.create_node('test')
    actors = WorldActors(node, ['red', 'blue'], 'actor', threads=1, credit_timeout=10.0,
                         timer=ThreadTimer())
    try:
        yield actors
    finally:
        actors.close()
        node.destroy_node()
        rclpy.try_shutdown()


def test_learners_that_contradict_each_other_are_refused():
    settings = as_dict(EnvConfig(env_id='mpe2/simple_push_v3', num_envs=2), TrainConfig())
    cart_pole = {'env_id': 'CartPole-v1', 'bodies': ''}
    for of_red, of_blue, reason in (
            ({}, {'num_envs': 3}, 'num_envs: 3 of blue is not 2 of red'),
            ({'bodies': 'adversary_0'}, {'bodies': '*'}, 'bodies: adversary_0 is of two agents'),
            ({'inference': 'learner'}, {}, "inference: 'learner' of red is not allowed"),
            (cart_pole, cart_pole, 'env_id: CartPole-v1 is no world of several bodies')):
        with world_actors() as actors:
            for agent, body, more in zip(actors.agents, ('adversary_0', 'agent_0'),
                                         (of_red, of_blue), strict=True):
                agent.policies.put(Policy(learner_id=agent.name, config=json.dumps(
                    {**settings, 'bodies': body, **more})))
            assert not actors.act(), reason
            assert reason in ' '.join(agent.policies.last_error for agent in actors.agents)


def put_policies(actors, worlds):
    for agent, body in zip(actors.agents, ('adversary_0', 'agent_0'), strict=True):
        env = EnvConfig(env_id='mpe2/simple_push_v3', num_envs=worlds, bodies=body)
        policy = make_policy(TrainConfig(), *factory.spaces(env))
        agent.policies.put(to_policy(
            weights(policy), stamp=Time(seconds=1), learner_id=agent.name, version=0,
            agent_steps=0, config=json.dumps(as_dict(env, TrainConfig())), flow_stats=FlowStats()))


def test_a_world_that_raises_anything_is_named_in_a_line_and_made_again(monkeypatch):
    monkeypatch.setattr('vdl_ros.ros.training.actor._AGAIN_S', -1.0)
    monkeypatch.setattr(WorldAgent, 'is_alone', False)
    monkeypatch.setattr(LocalInferenceMode, 'is_ready', lambda mode: True)
    line = r'env_id: mpe2/simple_push_v3: step\(\): ZeroDivisionError: .* \(test_world_actor.py:'
    with world_actors() as actors:
        with monkeypatch.context() as patch:
            patch.setattr(ParallelWorlds, 'step', lambda *_: 1 / 0)
            put_policies(actors, 1)
            assert not actors.act()
        assert re.match(line, actors.agents[0].policies.last_error)
        assert actors.agents[0].mode is None
        put_policies(actors, 1)
        assert actors.act()


def test_a_recorder_of_trajectories_is_no_learner():
    with world_actors() as actors:
        agent, node = actors.agents[0], rclpy.create_node('others')
        learner = qos.pub(node, 'policy', name='red/policy')
        qos.sub(node, 'trajectories', lambda _: None, name='red/trajectories')
        put_policies(actors, 1)
        assert not actors.act(), 'blue has no learner'
        while agent.is_alone or not (agent.policies.has_publisher and agent.mode.is_ready()):
            time.sleep(0.01)
        assert not agent.is_alone
        node.destroy_publisher(learner)
        while not agent.is_alone:
            time.sleep(0.01)
        assert node.count_publishers(agent.mode._publisher.topic_name) == 1
        assert agent.mode._publisher.get_subscription_count() == 1
        node.destroy_node()


def test_agents_of_one_world_draw_actions_of_their_own():
    # Agents with the same numbers would do the same while their policies are new.
    worlds = 200
    with world_actors() as actors:
        put_policies(actors, worlds)
        assert not actors.act(), 'they have no learner'
        found = []
        for agent in actors.agents:
            actor = agent.mode.actor
            size = actor.envs.single_observation_space.shape
            found.append(actor.choose(
                np.zeros((worlds, *size), np.float32), np.zeros(worlds, np.bool_))[0])
    assert np.mean(found[0] == found[1]) < 0.5
