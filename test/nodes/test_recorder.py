"""The node recorder: every received message is in the bag, however the recording ends."""

import errno
import os
from collections import defaultdict
from functools import partial
from unittest.mock import Mock

import pytest
from rclpy.duration import Duration
from rosbags.highlevel import AnyReader
from sensor_msgs.msg import JointState
from standstill import standing_still
from std_msgs.msg import String

from vdl_ros.bags.reader import BagReader
from vdl_ros.nodes import recorder
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter


class Talker:
    """Publishes a latched topic and some that are not."""

    def __init__(self, peer):
        self.peer = peer
        publisher = partial(peer.node.create_publisher, String)
        self.latched = publisher('state', qos.LATCHED)
        self.latched.publish(String(data='early'))
        self.talks = [publisher(f'talk_{number}', qos.REPORT) for number in range(5)]
        self.sensor = publisher('sensor', qos.SENSOR)

    def until_recorded(self):
        self.peer.until(lambda: all(each.get_subscription_count() for each in (
            self.latched, *self.talks)), 'the recorder')


@pytest.fixture
def talker(peer):
    return Talker(peer)


def messages(output):
    found = defaultdict(list)
    with AnyReader([output]) as reader:
        for connection, _, data in reader.messages():
            if connection.msgtype == 'std_msgs/msg/String':
                found[connection.topic].append(reader.deserialize(data, connection.msgtype).data)
    return found


def test_every_received_message_is_in_the_bag(node_here, talker, tmp_path):
    running = node_here(recorder.RecorderNode, f'output:={tmp_path / "bag"}')
    talker.until_recorded()
    # As many on each topic as its queue holds: none is lost, however late they are taken.
    sent = [f'message {number}' for number in range(qos.REPORT.depth)]
    with standing_still(running.node):
        for data in sent:
            for each in talker.talks:
                each.publish(String(data=data))
        for each in (*talker.talks, talker.latched):
            assert each.wait_for_all_acked(Duration(seconds=60))
        # They have arrived; those that are still queued must be recorded too.
        running.interrupt()
    assert running.end() == 0
    found = messages(tmp_path / 'bag')
    assert found['/state'] == ['early'], 'a latched message from before is recorded'
    for each in talker.talks:
        assert found[each.topic_name] == sent, each.topic_name
    assert ' 0 dropped' in running.output


def test_a_full_disk_ends_the_recording_with_the_reason(
        node_here, peer, talker, tmp_path, monkeypatch):
    # What is kept then: test/ros/bags/test_bag_writer.py.
    monkeypatch.setattr(BagWriter, 'write', Mock(side_effect=OSError(
        errno.ENOSPC, os.strerror(errno.ENOSPC))))
    running = node_here(recorder.RecorderNode, f'output:={tmp_path / "bag"}')
    peer.until(lambda: not running.is_running, 'the end of the recorder',
               say=lambda: talker.talks[0].publish(String(data='x')))
    assert running.end() == 3, running.output
    assert 'No space left on device: recording has ended' in running.output
    assert 'Traceback' not in running.output


@pytest.fixture
def record(node_here, tmp_path):
    return lambda parameter: node_here(
        recorder.RecorderNode, f'output:={tmp_path / "bag"}', parameter)


def test_only_matching_topics_are_recorded(record, peer, talker, tmp_path):
    running = record('topics:=st*,/sensor')
    peer.until(lambda: 'recording /state' in running.output
               and 'recording /sensor' in running.output, 'both topics')
    assert not any(each.get_subscription_count() for each in talker.talks)
    # A latched message is there when it has been received.
    peer.until(lambda: running.node.bag.count, 'a message')
    assert running.end() == 0
    assert {*messages(tmp_path / 'bag')} <= {'/state', '/sensor'}


def test_the_topics_of_a_contract_are_recorded_and_no_others(record, peer, talker, tmp_path):
    states = qos.pub(peer.node, 'arm/joint_states')
    running = record('robot:=owi535')
    peer.until(lambda: running.node.bag.count, 'a message',
               say=lambda: states.publish(JointState()))
    assert not any(each.get_subscription_count() for each in (talker.latched, *talker.talks))
    assert running.end() == 0
    assert {each.topic for each in BagReader(tmp_path / 'bag')} == {'/arm/joint_states'}
