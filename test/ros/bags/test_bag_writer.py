"""Bags are readable by other libraries, and after a full disk or a killed writer."""

import io
import resource

import pytest
import yaml
from mcap.exceptions import McapError
from mcap.reader import NonSeekingReader
from rclpy.serialization import deserialize_message, serialize_message
from rosbags.highlevel import AnyReader
from std_msgs.msg import String

from vdl_ros.bags.reader import BagError
from vdl_ros.msg import Policy, Tensor, Trajectory
from vdl_ros.ros import qos
from vdl_ros.ros.bags import bag_writer as module
from vdl_ros.ros.bags.bag_writer import BagWriter, definition

TYPE = 'std_msgs/msg/String'


def text(number: int) -> bytes:
    return serialize_message(String(data=f'message {number}'))


def test_bags_are_read_by_rosbags(tmp_path):
    with BagWriter(tmp_path / 'bag', compression='zstd') as bag:
        first = bag.add_topic('/talk', TYPE, [qos.REPORT])
        second = bag.add_topic('/latched', 'vdl_ros/msg/Policy', [qos.LATCHED])
        for number in range(100):
            bag.write(first, 10**9 + number, text(number))
        policy = Policy(version=7, tensors=[Tensor(name='w', dtype='uint8', shape=[3],
                                                   data=b'abc')])
        bag.write(second, 10**9 + 50, serialize_message(policy))
    with AnyReader([tmp_path / 'bag']) as reader:
        assert reader.message_count == 101
        assert (reader.start_time, reader.duration) == (10**9, 100)
        assert {each.topic: (each.msgcount, each.ext.offered_qos_profiles[0].durability.name)
                for each in reader.connections} == {
                    '/talk': (100, 'VOLATILE'), '/latched': (1, 'TRANSIENT_LOCAL')}
        found = {'/talk': [], '/latched': []}
        for connection, stamp, data in reader.messages():
            found[connection.topic].append((stamp, reader.deserialize(data, connection.msgtype)))
    assert [(stamp, message.data) for stamp, message in found['/talk']] == [
        (10**9 + number, f'message {number}') for number in range(100)]
    stamp, message = found['/latched'][0]
    assert (stamp, message.version, message.tensors[0].data.tobytes()) == (10**9 + 50, 7, b'abc')


def test_definitions_hold_every_type_once_and_in_full():
    found = definition('vdl_ros/msg/Trajectory')
    for name in ('vdl_ros/Tensor', 'std_msgs/Header', 'builtin_interfaces/Time'):
        assert found.count(f'MSG: {name}') == 1
    fields = Trajectory.get_fields_and_field_types()
    assert all(name in found.split('=' * 80)[0] for name in fields)


def test_a_bag_is_never_overwritten_and_what_cannot_be_written_is_an_error(tmp_path):
    with BagWriter(tmp_path / 'bag') as bag, pytest.raises(
            BagError, match="^'nowhere/msg/Nothing': no such message is installed here$"):
        bag.add_topic('/x', 'nowhere/msg/Nothing', [qos.REPORT])
    with pytest.raises(BagError, match='bag exists; name another bag'):
        BagWriter(tmp_path / 'bag')


def test_a_bag_of_a_killed_writer_is_readable_up_to_its_last_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(module, '_FLUSH_S', 0.0)
    bag = BagWriter(tmp_path / 'bag')
    handle = bag.add_topic('/talk', TYPE, [qos.REPORT])
    for number in range(10):
        bag.write(handle, number, text(number))
    # No close: what the file holds now is what a killed process leaves.
    content = (tmp_path / 'bag' / 'bag_0.mcap').read_bytes()
    assert readable(content) == [f'message {number}' for number in range(10)]
    metadata = tmp_path / 'bag' / 'metadata.yaml'
    with metadata.open() as before:
        bag.close()
        found = yaml.safe_load(before)['rosbag2_bagfile_information']['message_count']
        assert found == 0, 'it was replaced, not written over'


def test_a_full_disk_keeps_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module, '_FLUSH_S', 0.0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    bag = BagWriter(tmp_path / 'bag')
    handle = bag.add_topic('/talk', TYPE, [qos.REPORT])
    # A file may not grow beyond this: to the writer it is as if the disk were full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(OSError, match='File too large'):  # noqa: PT012  one of many writes
            for number in range(10_000):
                bag.write(handle, number, text(number))
        with pytest.raises(OSError, match='File too large'):
            bag.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert bag.count > 20
    found = readable((tmp_path / 'bag' / 'bag_0.mcap').read_bytes())
    assert found == [f'message {number}' for number in range(len(found))]
    assert len(found) >= bag.count - 1, 'all but the chunk that found no room'


def readable(content: bytes) -> list[str]:
    """Return the messages of a file that ends without its end."""
    found: list[str] = []
    with pytest.raises(McapError):
        found.extend(
            deserialize_message(message.data, String).data
            for _, _, message in NonSeekingReader(io.BytesIO(content)).iter_messages(
                log_time_order=False))
    return found
