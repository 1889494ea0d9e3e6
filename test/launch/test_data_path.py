"""
What actors say arrives whole and in order: counters through real processes and real DDS.

The test itself is the learner: it publishes policies and reads trajectories. In a counter
environment the observation is the clock, so every number that must arrive is known beforehand.
"""

import json

import numpy as np
import pytest
import rclpy
import torch
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.counter import episode_length
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy, Trajectory
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.algorithm_config import AlgorithmConfig, DqnConfig, ImpalaConfig
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy.exploration import exploration_schedule
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.training.trajectories import to_policy

ACTORS = ('left', 'right')
UNROLLS = 30


class Recorder(Node):
    """
    A learner that does not learn: it keeps every trajectory and gives credit for them.

    It does so once every actor has sent all that it may: who would send more is seen.
    """

    def __init__(self, env: EnvConfig, train: TrainConfig, algorithm_config: AlgorithmConfig,
                 context: rclpy.Context):
        super().__init__('recorder', context=context)
        self.learner = Learner(
            train, *factory.spaces(env), factory.frames_per_observation(env),
            algorithm_config=algorithm_config)
        self.config = json.dumps(as_dict(env, train, algorithm_config))
        self.flow_stats = FlowStats()
        self.kept: dict[str, list[Trajectory]] = {name: [] for name in ACTORS}
        self.credit = train.credit
        self.under_way: dict[str, list[Trajectory]] = {name: [] for name in ACTORS}
        self.most_under_way = 0
        self.publisher = self.create_publisher(Policy, 'policy', qos.TOPICS['policy'])
        self.create_subscription(
            Trajectory, 'trajectories', self.receive, qos.TOPICS['trajectories'])

    def publish(self) -> None:
        self.publisher.publish(to_policy(
            self.learner.weights(), stamp=self.get_clock().now(), learner_id='recorder',
            version=self.learner.version, agent_steps=0, config=self.config,
            flow_stats=self.flow_stats))

    def receive(self, message: Trajectory) -> None:
        self.kept[message.actor_id].append(message)
        self.flow_stats.arrive(message.actor_id, message.start_id, message.sequence)
        self.under_way[message.actor_id].append(message)
        self.most_under_way = max(self.most_under_way, len(self.under_way[message.actor_id]))
        if all(len(each) >= self.credit for each in self.under_way.values()):
            for each in self.under_way.values():
                for message in each:
                    self.flow_stats.use(message.start_id, 0)
                each.clear()
            self.learner.version += 1
            self.publish()


@pytest.fixture
def record(launch):
    """Return a function that runs two actor processes until each has sent enough."""
    context = rclpy.Context()
    rclpy.init(context=context)
    nodes = []

    def run(env: EnvConfig, train: TrainConfig,
            algorithm_config: AlgorithmConfig | None = None) -> Recorder:
        recorder = Recorder(env, train, algorithm_config or ImpalaConfig(), context)
        nodes.append(recorder)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(recorder)
        # Credit comes when the slower one has sent its share, however long that takes.
        actors = [launch('ros2', 'run', 'vdl_ros', 'actor', '--ros-args', '-p',
                         f'actor_id:={name}', '-p', 'credit_timeout:=3600.0') for name in ACTORS]
        recorder.publish()

        def enough():
            for _ in range(20):
                executor.spin_once(timeout_sec=0.01)
            return all(len(messages) >= UNROLLS for messages in recorder.kept.values())

        actors[0].wait_for(enough, f'{UNROLLS} trajectories of each actor')
        for actor in actors:
            actor.interrupt()
            assert actor.wait() == 0, actor.output
        executor.remove_node(recorder)
        return recorder

    yield run
    for node in nodes:
        node.destroy_node()
    rclpy.shutdown(context=context)


def expected_stream(identity: int, steps: int):
    """Return observation, reward, terminated, truncated and first for steps of one counter."""
    observations, rewards, terminated, truncated, first = [], [], [], [], []
    episode = time = 0
    observations.append((0, 0, identity))
    first.append(True)
    for _ in range(steps):
        length = episode_length(episode, identity)
        if time == length:  # the step that the environment resets itself in
            episode, time = episode + 1, 0
            rewards.append(0.0)
            terminated.append(False)
            truncated.append(False)
            first.append(True)
        else:
            time += 1
            rewards.append(float(time))
            terminated.append(time == length and episode % 2 == 0)
            truncated.append(time == length and episode % 2 == 1)
            first.append(False)
        observations.append((episode, time, identity))
    return observations, rewards, terminated, truncated, first


def test_images_numbers_and_actions_arrive_whole_in_order_and_once(record):
    env = EnvConfig(env_id='vdl/MixedCounter-v0', num_envs=2)
    recorder = record(env, TrainConfig(unroll_length=6, batch_size=1, max_policy_lag=2,
                                       network='mlp', hidden_size=4))
    schema, seeds = recorder.learner.schema, []
    for messages in recorder.kept.values():
        assert [message.sequence for message in messages] == list(range(len(messages)))
        assert len({message.start_id for message in messages}) == 1
        versions = [message.policy_version for message in messages]
        assert versions == sorted(versions)
        parts = [from_tensors(message.tensors) for message in messages]
        rows = []
        for arrays in parts:
            schema.check(arrays)
            assert arrays['vectors'].shape == (7, 2, 8)
            assert arrays['frames'].shape == (6 + 4, 2, 36, 36), 'a frame travels once'
            rows.append(np.empty((7, 2, *schema.observation_space.shape), np.uint8))
            schema.decode_into(arrays, rows[-1])
        for one, two, end, start in zip(rows, rows[1:], parts, parts[1:], strict=False):
            np.testing.assert_array_equal(one[-1], two[0])
            np.testing.assert_array_equal(end['is_reset'][-1], start['is_reset'][0])
        # Hundreds, drawn by a policy that prefers none.
        actions = np.concatenate([arrays['actions'] for arrays in parts])
        assert actions.max(axis=(0, 1)).tolist() == [1, 2]
        images, vectors = schema.observation_space.split(np.concatenate([
            each[:-1] for each in rows]))
        seeds.append([round(float(each)) for each in vectors[0, :, 2] * 1000])
        for b, identity in enumerate(seeds[-1]):
            wanted, *streams = expected_stream(identity, len(vectors) - 1)
            for name, stream in zip(
                    ('rewards', 'terminated', 'truncated', 'is_reset'), streams, strict=True):
                got = np.concatenate([arrays[name][:6] for arrays in parts])[:len(stream), b]
                np.testing.assert_array_equal(got, stream, err_msg=name)
            age = 0
            for t, (episode, time, _) in enumerate(wanted):
                phase = [float(time % 3 == number) for number in range(3)]
                np.testing.assert_array_equal(vectors[t, b], np.array(
                    [episode / 1000, time / 1000, identity / 1000, *phase, time % 2,
                     episode % 2], np.float32), err_msg=f'{t}')
                age = 0 if streams[-1][t] else age + 1
                # Picture number t since the start, over all episodes.
                assert images[t, b, :, 0, 0].tolist() == [
                    1 + (t - back) % 255 if back <= age else 0 for back in (3, 2, 1, 0)], t
                assert (images[t, b] == images[t, b, :, :1, :1]).all()
    assert recorder.flow_stats.lost == recorder.flow_stats.duplicates == 0
    # Two of the four may be alike by chance, of a thousand that there are.
    assert seeds[0] != seeds[1], 'every actor has its own seeds'
    assert max(len({*each}) for each in seeds) > 1, 'every environment has its own seed'
    assert recorder.most_under_way == 2, 'credit bounds what is under way'


@pytest.mark.slow
def test_memory_and_exploration_are_those_of_each_actor(record):
    env = EnvConfig(env_id='vdl/Counter-v0', num_envs=3)
    algorithm_config = DqnConfig(
        exploration_start=0.5, exploration_end=0.5, exploration_spread=4.0)
    recorder = record(env, TrainConfig(
        algorithm='dqn', unroll_length=7, batch_size=1, max_policy_lag=4, lstm_size=5),
        algorithm_config)
    learner = recorder.learner
    epsilons = {name: exploration_schedule(algorithm_config, name)(0) for name in ACTORS}
    assert epsilons['left'] != epsilons['right']
    for name, messages in recorder.kept.items():
        state = torch.zeros(3, 10)
        learner.policy.exploration = torch.tensor([epsilons[name]])
        for message in messages:
            arrays = from_tensors(message.tensors)
            learner.schema.check(arrays)
            batch = make_batch([Unroll(arrays, name, 0, 0, 0)], learner.schema)
            torch.testing.assert_close(batch.state, state, rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                parameters, _, state = learner.policy(
                    batch.observations[:-1], batch.is_reset[:-1], batch.state)
            torch.testing.assert_close(
                batch.behaviour_log_probs,
                learner.policy.distribution.log_prob(parameters, batch.actions),
                rtol=1e-4, atol=1e-4)
        assert state.any()
    assert recorder.flow_stats.lost == 0
