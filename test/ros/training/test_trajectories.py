"""Trajectory and policy messages, and the inbox that checks them."""

import array
import json
import queue

import gymnasium
import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.time import Time

from vdl_ros.msg import Policy, Trajectory
from vdl_ros.rl.data.unroll import EndOfBagError, UnrollSchema
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.ros.training.messages import (
    RefusedError,
    TrajectoryInbox,
    policy_config,
    to_policy,
    to_trajectory,
)
from vdl_ros.ros.training.training import EndOfBag

STEPS, STAMP = 4, Time(seconds=12, nanoseconds=345)
NUMBERS, ACTIONS = gymnasium.spaces.Box(-1, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)
SCHEMA = UnrollSchema(NUMBERS, ACTIONS, STEPS, 1)
REMEMBERING = UnrollSchema(NUMBERS, ACTIONS, STEPS, 1, 6)
PIXELS = UnrollSchema(gymnasium.spaces.Box(0, 255, (40, 40), np.uint8), ACTIONS, STEPS, 1)


def arrays(seed=0, batch=2):
    rng = np.random.default_rng(seed)
    return {
        'observations': rng.normal(size=(STEPS + 1, batch, 3)).astype(np.float32),
        'is_reset': rng.random((STEPS + 1, batch)) < 0.3,
        'actions': rng.integers(0, 2, (STEPS, batch)),
        'rewards': rng.normal(size=(STEPS, batch)).astype(np.float32),
        'terminated': rng.random((STEPS, batch)) < 0.3,
        'truncated': rng.random((STEPS, batch)) < 0.3,
        'behaviour_log_probs': -rng.random((STEPS, batch)).astype(np.float32),
    }


FIELDS = {'actor_id': 'a', 'start_id': 1, 'learner_id': 'me', 'policy_version': 5,
          'compression': 'none'}


def trajectory(sequence=0, **changed):
    """Return a message after serialization and deserialization, with changed arrays or fields."""
    fields = {name: changed.pop(name, value) for name, value in FIELDS.items()}
    sent = to_trajectory(arrays(sequence) | changed, stamp=STAMP, sequence=sequence, **fields)
    return deserialize_message(serialize_message(sent), Trajectory)


class Box:
    def __init__(self, schema=SCHEMA, max_bytes=None, **more):
        self.flow_stats, self.warnings = FlowStats(), []
        self.inbox = TrajectoryInbox(
            schema, self.flow_stats, 'me', self.warnings.append, **more)
        if max_bytes is not None:
            self.inbox._messages.max_bytes = max_bytes

    def put(self, *messages):
        for message in messages:
            self.inbox.put(message, 0.25)

    def all(self):
        found = []
        while True:
            try:
                found.append(self.inbox.get(0.0))
            except queue.Empty:
                return found


@pytest.fixture
def box():
    return Box()


def test_a_trajectory_message_restores_the_unroll(box):
    message = trajectory(0, start_id=2**63 + 1, policy_version=2**40)
    box.put(message)
    unroll = box.inbox.get(0.0)
    expected = arrays(0)
    assert unroll.arrays.keys() == expected.keys()
    for name, value in expected.items():
        assert unroll.arrays[name].dtype == value.dtype
        assert np.array_equal(unroll.arrays[name], value)
    assert (unroll.actor_id, unroll.start_id, unroll.sequence, unroll.policy_version) == (
        'a', 2**63 + 1, 0, 2**40)
    assert unroll.age_s == 0.25
    assert unroll.num_bytes == sum(value.nbytes for value in expected.values())
    assert Time.from_msg(message.header.stamp).nanoseconds == STAMP.nanoseconds


def test_a_trajectory_message_contains_the_policy_state():
    box = Box(REMEMBERING)
    state = np.random.default_rng(3).normal(size=(2, 6)).astype(np.float32)
    box.put(trajectory(0, state=state), trajectory(1), trajectory(2, state=state[:, :4]))
    unroll, = box.all()
    assert np.array_equal(unroll.arrays['state'], state)
    assert unroll.num_bytes == sum(value.nbytes for value in arrays(0).values()) + state.nbytes
    assert box.flow_stats.rejected == 2
    missing, short = box.warnings[:2]
    assert "arrays missing: ['state'], unknown: []" in missing
    assert 'state: 32 bytes are not the 48 of 2 environments' in short


def test_a_policy_message_restores_the_weights():
    weights = {'a.weight': np.ones((2, 3), np.float32), 'a.bias': np.zeros(2, np.float32)}
    flow_stats = FlowStats()
    flow_stats.arrive('x', 9, 3)
    flow_stats.use(9, 0)
    flow_stats.arrive('y', 2**63, 0)
    flow_stats.arrive('z', 1, 2**64 - 1)  # the largest number does not stop a policy
    flow_stats.use(1, 0)
    sent = to_policy(
        weights, stamp=STAMP, learner_id='me', version=7, agent_steps=99,
        config=json.dumps({'env_id': 'E'}), flow_stats=flow_stats)
    found = deserialize_message(serialize_message(sent), Policy)
    assert (found.learner_id, found.version, found.agent_steps) == ('me', 7, 99)
    assert policy_config(found) == {'env_id': 'E'}
    assert [(each.actor_id, each.start_id, each.used) for each in found.credits] == [
        ('x', 9, 4), ('y', 2**63, 0), ('z', 1, 2**64 - 1)]
    assert [(each.name, list(each.shape)) for each in found.tensors] == [
        ('a.weight', [2, 3]), ('a.bias', [2])]


def test_settings_that_are_no_flat_object_are_refused_in_one_line():
    for config in (
            '', '[]', '{"a": 1} x', '[' * 50_000, '{"a":' * 10_000, '{"a": {}}',
            f'{{"a": {"9" * 50_000}}}', f'{{"a": "{"x" * 2**16}"}}'):
        with pytest.raises(ValueError, match=r'^config: .{1,150}$'):
            policy_config(Policy(config=config))


def broken(**fields):
    message = trajectory(1)
    for name, value in fields.items():
        setattr(message.tensors[0], name, value)
    return message


def test_invalid_messages_are_counted_and_the_next_is_returned():
    for bad, reason in (
            (broken(data=array.array('B', bytes(3))),
             'observations: 3 bytes are not the 120 of 2 environments'),
            (broken(shape=array.array('I', [0] + [2**32 - 1] * 70)),
             "tensor 'observations': shape of 71 axes is not allowed: at most 64"),
            (trajectory(1, rewards=arrays()['rewards'] * np.nan), 'rewards: not all finite'),
            (trajectory(1, extra=np.zeros(1)), "arrays missing: [], unknown: ['extra']"),
            (trajectory(1, rewards=arrays(batch=3)['rewards']), 'is_reset: 10 bytes are not'),
            (Trajectory(learner_id='me', actor_id='a'), 'missing')):
        box = Box()
        box.put(trajectory(0), bad, trajectory(2))
        assert [unroll.sequence for unroll in box.all()] == [0, 2], reason
        assert box.flow_stats.rejected == 1, reason
        assert box.warnings[0].startswith("trajectory of 'a' refused: ")
        assert reason in box.warnings[0]


def test_gaps_and_duplicates_are_counted_for_each_actor(box):
    box.put(trajectory(3), trajectory(4), trajectory(4), trajectory(7))
    assert [unroll.sequence for unroll in box.all()] == [3, 4, 7]
    box.put(trajectory(0, actor_id='b', start_id=2), trajectory(8))
    assert [(unroll.actor_id, unroll.sequence) for unroll in box.all()] == [('b', 0), ('a', 8)]
    assert (box.flow_stats.lost, box.flow_stats.duplicates) == (2, 1)
    assert box.warnings == ["2 trajectories of 'a' lost before number 7"]


def test_the_number_and_the_bytes_of_waiting_messages_are_bounded(box):
    message = trajectory(0)
    for _ in range(260):
        box.inbox.put(message, 0.0)
    assert len(box.warnings) == 260 - 256
    assert "'a' dropped: 256 messages of " in box.warnings[0]
    size = sum(value.nbytes for value in arrays().values())
    box = Box(max_bytes=10 * size)
    for sequence in range(15):
        box.put(trajectory(sequence))
    assert box.warnings == [
        f"trajectory of 'a' dropped: 10 messages of {10 * size} bytes are waiting"] * 5
    assert [unroll.sequence for unroll in box.all()] == list(range(10))
    box.put(trajectory(15))
    assert box.inbox.get(0.0).sequence == 15, 'there is room again'
    assert box.flow_stats.lost == 5


def test_a_message_of_another_length_or_for_another_learner_is_not_kept(box):
    box.put(trajectory(0, observations=np.zeros((STEPS + 1, 2, 10**5), np.float32)))
    kept, _ = box.inbox._messages.get(0.0)
    assert 'are not the 120 of 2 environments' in kept
    box.put(trajectory(0, learner_id='other'), trajectory(1), trajectory(2, learner_id=''))
    assert box.inbox.waiting == 1
    assert [unroll.sequence for unroll in box.all()] == [1]
    assert box.warnings == []
    assert (box.flow_stats.received, box.flow_stats.lost, box.flow_stats.rejected) == (1, 0, 0)
    with pytest.raises(queue.Empty):
        box.inbox.get(0.01)


def test_a_compressed_trajectory_is_returned_and_counted_as_it_was_sent():
    box = Box(PIXELS)
    shown = {'observations': np.zeros((STEPS + 1, 2, 40, 40), np.uint8)}
    box.put(trajectory(0, compression='zstd', **shown), trajectory(1, **shown))
    compressed, whole = box.all()
    assert all(np.array_equal(value, shown.get(name, arrays(0)[name]))
               for name, value in compressed.arrays.items())
    assert compressed.num_bytes < 500 < shown['observations'].nbytes < whole.num_bytes
    # It says to be longer than the schema's arrays, so it is not decompressed.
    box.put(trajectory(2, compression='zstd', observations=np.zeros(
        (STEPS + 1, 2, 80, 40), np.uint8)))
    assert box.all() == []
    assert 'observations: 32000 bytes are not the 16000 of 2 environments' in box.warnings[0]
    # A few hundred bytes must not become more than the memory that the queue may have.
    box, message = Box(PIXELS, max_bytes=16_000), trajectory(0, compression='zstd', **shown)
    assert sum(len(tensor.data) for tensor in message.tensors) < 500
    box.put(message)
    assert box.all() == []
    assert 'dropped' in box.warnings[0]


def test_a_bag_with_a_trajectory_of_another_environment_is_refused():
    for changed in ({'rewards': np.zeros((STEPS + 1, 2), np.float32)},
                    {'actions': np.full((STEPS, 2), 7)}):
        box = Box(is_over=lambda: False)
        box.put(trajectory(0), trajectory(1, **changed))
        assert box.inbox.get(0.0).sequence == 0
        with pytest.raises(RefusedError, match="^trajectory of 'a' refused: "):
            box.inbox.get(0.0)


def test_a_bag_is_taken_to_its_end():
    # It ends while the inbox is asked, after a trajectory has arrived.
    answers = [lambda: box.put(trajectory(0)) or False, lambda: True, lambda: True]
    box = Box(is_over=lambda: answers.pop(0)())
    assert box.inbox.get(0.0).sequence == 0
    box.put(trajectory(1))
    assert box.inbox.get(0.0).sequence == 1
    with pytest.raises(EndOfBagError):
        box.inbox.get(0.0)


class Graph:
    """A node that counts publishers and calls its timer when told."""

    publishers = 0

    def create_timer(self, period, callback):
        self.tick = callback

    def resolve_topic_name(self, topic):
        return f'/remapped/{topic}'

    def count_publishers(self, topic):
        assert topic == '/remapped/trajectories'
        return self.publishers


def test_a_bag_is_over_when_its_player_is_gone_and_nothing_more_arrives():
    graph = Graph()
    end = EndOfBag(graph, 'trajectories')
    graph.tick()
    assert not end.is_over(), 'it has not begun'
    graph.publishers = 1
    graph.tick()
    graph.publishers = 0
    end.on_message()
    graph.tick()
    assert not end.is_over(), 'more may wait for their callbacks'
    graph.tick()
    assert end.is_over()
    # A short bag, whose player was never seen.
    end = EndOfBag(graph, 'trajectories')
    end.on_message()
    graph.tick()
    graph.tick()
    assert end.is_over()
