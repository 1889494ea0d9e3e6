"""What actors say arrives whole and in order: counters through real processes and real DDS.

The test itself is the learner: it publishes policies and reads trajectories. In a counter
environment the observation is the clock, so every number that must arrive is known beforehand.
"""

import json

import numpy as np
from counters import episode_length

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Trajectory
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import ImpalaConfig, TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.training.messages import to_policy

ACTORS = ('left', 'right')
UNROLLS = 30


class Recorder:
    """A learner that does not learn: it keeps every trajectory and gives credit for them.

    It does so once every actor has sent all that it may: who would send more is seen.
    """

    def __init__(self, env: EnvConfig, train: TrainConfig, peer):
        self.learner = Learner(train, *factory.spaces(env), factory.frames_per_observation(env))
        self.config = json.dumps(as_dict(env, train, ImpalaConfig()))
        self.flow_stats = FlowStats()
        self.kept: dict[str, list[Trajectory]] = {name: [] for name in ACTORS}
        self.under_way: dict[str, list[Trajectory]] = {name: [] for name in ACTORS}
        self.most_under_way, self.credit = 0, train.credit
        self._clock = peer.node.get_clock()
        self._publisher = qos.pub(peer.node, 'policy')
        peer.node.create_subscription(
            Trajectory, 'trajectories', self.receive, qos.TOPICS['trajectories'])

    def publish(self) -> None:
        self._publisher.publish(to_policy(
            self.learner.weights(), stamp=self._clock.now(), learner_id='recorder',
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


def test_images_numbers_and_actions_arrive_whole_in_order_and_once(
        launch, peer, counters_module):
    recorder = Recorder(
        EnvConfig(env_id='vdl/MixedCounter-v0', num_envs=2), TrainConfig(
            unroll_length=6, batch_size=1, max_in_flight=2, network='mlp', hidden_size=4), peer)
    # Credit comes when the slower one has sent its share, however long that takes.
    actors = [launch.node('actor', f'actor_id:={name}', 'credit_timeout:=3600.0',
                          counters_module) for name in ACTORS]
    recorder.publish()
    peer.until(lambda: all(len(each) >= UNROLLS for each in recorder.kept.values()),
               f'{UNROLLS} trajectories of each actor')
    for actor in actors:
        actor.stop()
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
        steps, streams = np.arange(len(vectors)), {
            name: np.concatenate([arrays[name][:6] for arrays in parts])
            for name in ('rewards', 'terminated', 'truncated', 'is_reset')}
        seeds.append([])
        for b in range(2):
            episode, time, identity = np.rint(vectors[:, b, :3].T * 1000).astype(int)
            seeds[-1].append(identity[0])
            # The step after the end of an episode begins the next one.
            is_last = time == [episode_length(each, identity[0]) for each in episode]
            np.testing.assert_array_equal(episode, np.append(0, (episode + is_last)[:-1]))
            np.testing.assert_array_equal(time, np.append(0, np.where(is_last, 0, time + 1)[:-1]))
            np.testing.assert_array_equal(vectors[:, b], np.stack([
                episode / 1000, time / 1000, identity / 1000, *(time % 3 == [[0], [1], [2]]),
                time % 2, episode % 2], axis=1).astype(np.float32))
            for name, wanted in (('rewards', time), ('terminated', is_last & (episode % 2 == 0)),
                                 ('truncated', is_last & (episode % 2 == 1))):
                np.testing.assert_array_equal(streams[name][:-1, b], wanted[1:], err_msg=name)
            np.testing.assert_array_equal(streams['is_reset'][:, b], time == 0)
            # Picture number t since the start, over all episodes.
            for channel, back in enumerate((3, 2, 1, 0)):
                shown = np.where(back <= time, 1 + (steps - back) % 255, 0)
                assert (images[:, b, channel] == shown[:, None, None]).all()
    assert recorder.flow_stats.lost == recorder.flow_stats.duplicates == 0
    # Two of the four may be alike by chance, of a thousand that there are.
    assert seeds[0] != seeds[1], 'every actor has its own seeds'
    assert max(len({*each}) for each in seeds) > 1, 'every environment has its own seed'
    assert recorder.most_under_way == 2, 'credit bounds what is under way'
