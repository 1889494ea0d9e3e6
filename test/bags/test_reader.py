"""Bags are read as they were written, and up to the last whole chunk when they were cut off."""

import lz4.frame
import pytest
import zstandard
from bag_files import write_bag
from mcap.data_stream import RecordBuilder
from mcap.records import Channel, Chunk, Header, Message
from mcap.writer import Writer
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from rclpy.serialization import serialize_message
from rosbags.highlevel import AnyReader
from std_msgs.msg import String

from vdl_ros.bags import reader
from vdl_ros.bags.reader import BagError, BagReader
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter, playback_profile


@pytest.fixture
def bag(tmp_path):
    """Return the folder of a bag with 200 messages on each of three topics."""
    with BagWriter(tmp_path / 'bag', compression='zstd') as writer:
        handles = [writer.add_topic(f'/{name}', 'std_msgs/msg/String', [profile])
                   for name, profile in (('latched', qos.LATCHED), ('newest', qos.LATEST),
                                         ('report', qos.REPORT))]
        for number in range(200):
            for handle in handles:
                writer.write(handle, 1_000 + number, serialize_message(
                    String(data=f'{handle} {number} ' + 'x' * 1000)))
    return tmp_path / 'bag'


def test_messages_are_read_in_order_with_their_qos_profile(bag):
    found = list(BagReader(bag))
    assert len(found) == 600
    assert [each.stamp_ns for each in found] == sorted(each.stamp_ns for each in found)
    profiles = {each.topic: playback_profile(each.qos) for each in found}
    assert {each.type for each in found} == {'std_msgs/msg/String'}
    assert profiles['/latched'].durability == DurabilityPolicy.TRANSIENT_LOCAL
    assert profiles['/newest'].reliability == ReliabilityPolicy.BEST_EFFORT
    assert profiles['/report'].durability == DurabilityPolicy.VOLATILE
    with AnyReader([bag]) as other:
        assert [bytes(data) for _, _, data in other.messages()] == [each.data for each in found]
    # A file is read like its folder.
    assert list(BagReader(bag / 'bag_0.mcap')) == found


def test_a_cut_or_damaged_bag_is_read_to_its_last_whole_chunk(tmp_path):
    write_bag(tmp_path / 'bag', (
        (number, '/talk', String(data='x' * 1000)) for number in range(4000)))
    file = tmp_path / 'bag/bag_0.mcap'
    content = file.read_bytes()
    middle = len(content) // 2
    damaged = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1:]
    for left, most in ((content[:len(content) * 3 // 4], 4000), (damaged, 2000)):
        file.write_bytes(left)
        bag = BagReader(tmp_path / 'bag')
        stamps = [each.stamp_ns for each in bag]
        assert stamps == list(range(len(stamps)))
        assert 1000 < len(stamps) < most
        assert bag.faults == [f'{file} is cut off or damaged after {len(stamps)} messages: what '
                              'follows in it is left out']


def test_a_file_is_read_in_the_order_of_time_and_its_messages_are_unpacked(tmp_path):
    """Written topic by topic, by rosbag2 with compression_mode MESSAGE."""
    def text(number):
        return serialize_message(String(data=f'{number} ' + 'x' * 100))

    for pack in (bytes, zstandard.compress):
        with (tmp_path / 'x.mcap').open('wb') as stream:
            writer = Writer(stream, chunk_size=500)
            writer.start()
            schema = writer.register_schema('std_msgs/msg/String', 'ros2msg', b'')
            for topic in range(2):
                channel = writer.register_channel(f'/{topic}', 'cdr', schema)
                for number in range(topic, 100, 2):
                    writer.add_message(channel, number, pack(text(number)), number)
            writer.finish()
        assert [each.data for each in BagReader(tmp_path)] == list(map(text, range(100)))


def test_metadata_names_the_files_and_a_damaged_one_hides_no_other(tmp_path):
    bag = tmp_path / 'bag'
    write_bag(bag, [(2, '/talk', String(data='second'))])
    (bag / 'bag_0.mcap').rename(bag / 'bag_1.mcap')
    (bag / 'stray.mcap').write_bytes((bag / 'bag_1.mcap').read_bytes())
    (bag / 'bag_0.mcap').write_text('not a bag')
    (bag / 'metadata.yaml').write_text(
        'rosbag2_bagfile_information:\n'
        '  relative_file_paths: [bag_0.mcap, bag/bag_1.mcap, bag_2.mcap]\n')
    found = BagReader(bag)
    assert [each.stamp_ns for each in found] == [2]
    assert found.faults == [
        f'{bag}: bag_2.mcap is missing, which metadata.yaml names',
        f'{bag}: stray.mcap is left out: metadata.yaml does not name it',
        f'{bag}/bag_0.mcap is cut off or damaged after 0 messages: what follows in it is left out']


def test_a_path_that_is_no_bag_is_an_error(tmp_path):
    with pytest.raises(BagError, match='no bag is there'):
        BagReader(tmp_path)
    with pytest.raises(BagError, match='no bag is there'):
        BagReader(tmp_path / 'missing.mcap')
    (tmp_path / 'x_0.db3').touch()
    for path in (tmp_path, tmp_path / 'x_0.db3'):
        with pytest.raises(BagError, match=rf'db3: .*sqlite3 .* rosbags-convert --src {path} '):
            BagReader(path)
    for content in (b'', b'not a bag at all, just words'):
        (tmp_path / 'x.mcap').write_bytes(content)
        with pytest.raises(BagError, match='not an MCAP file'):
            list(BagReader(tmp_path))


def test_a_small_chunk_that_unpacks_to_much_is_refused_before_it_is_unpacked(
        tmp_path, monkeypatch):
    content = RecordBuilder()
    Channel(id=1, topic='/talk', message_encoding='cdr', metadata={}, schema_id=0).write(content)
    Message(channel_id=1, log_time=5, data=bytes(10**6), publish_time=5, sequence=1).write(content)
    records = content.end()
    for compression, pack in (('', bytes), ('zstd', zstandard.compress),
                              ('lz4', lz4.frame.compress)):
        for says, most, reason in (
                (len(records), len(records), ''),
                (len(records), 1000, rf'chunk of {len(records)} bytes .* at most 1000'),
                (900, 1000, 'not an MCAP file')):
            file = RecordBuilder()
            Header('', '').write(file)
            Chunk(compression, pack(records), 5, 5, 0, says).write(file)
            (tmp_path / 'x.mcap').write_bytes(b'\x89MCAP0\r\n' + file.end())
            monkeypatch.setattr(reader, 'memory_limit', lambda most=most: most)
            if not reason:
                assert [len(each.data) for each in BagReader(tmp_path)] == [10**6]
                continue
            with pytest.raises(BagError, match=reason):
                list(BagReader(tmp_path))
