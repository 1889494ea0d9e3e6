"""Names of topics and types come from strangers: none imports a module or ends the recorder."""

import sys
import uuid

import pytest
from rosbags.highlevel import AnyReader
from std_msgs.msg import String

from vdl_ros.bags.reader import EpisodeLabels
from vdl_ros.common.files import InUseError
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.bags.recording import EpisodeBags, Recording


def discover(node, tmp_path, *found, topics='*'):
    """Return the topics that are recorded if discovery finds these names and types."""
    node.get_topic_names_and_types = lambda: [(name, [kind]) for name, kind in found]
    with BagWriter(tmp_path / uuid.uuid4().hex) as bag:
        recording = Recording(node, topics, bag)
        try:
            recording.discover_topics()
            recording.discover_topics()
        finally:
            recording.close()
    with AnyReader([bag.path]) as reader:
        return [each.topic for each in reader.connections]


def test_no_module_is_imported_for_a_type_that_is_not_installed(
        node, tmp_path, monkeypatch, capfd):
    for package in ('stranger', 'stranger/msg', 'stranger/inner', 'stranger/inner/msg'):
        (tmp_path / package).mkdir()
        (tmp_path / package / '__init__.py').write_text('class Message: pass\n')
    monkeypatch.syspath_prepend(tmp_path)
    # Topics are recorded only while somebody publishes them.
    talker = node.create_publisher(String, 'talk', qos.REPORT)
    for kind in ('stranger/msg/Message', 'stranger.inner/msg/Message', '../stranger/msg/Message',
                 'std_msgs/msg/__loader__', 'std_msgs/msg/String\n', 'x' * 100_000):
        assert discover(node, tmp_path, (talker.topic_name, kind)) == [], kind
        assert not [name for name in sys.modules if name.startswith('stranger')], kind
        output = ''.join(capfd.readouterr())
        assert output.count("'/talk' is not recorded: ") == len(output.splitlines()) == 1, kind
        assert len(output) < 300, kind


def test_a_name_that_ros_does_not_allow_is_left_out(node, tmp_path, capfd):
    kind = 'std_msgs/msg/String'
    talker = node.create_publisher(String, 'talk', qos.REPORT)
    assert discover(node, tmp_path, ('/a b\x1b[2J\nforged', kind), ('', kind),
                    (talker.topic_name, kind)) == ['/talk']
    output = ''.join(capfd.readouterr())
    assert r"'/a b\x1b[2J\nforged' is not recorded: not a topic name of ROS" in output
    assert '\x1b' not in output


def test_compressed_copies_are_recorded_only_by_name(node, tmp_path):
    # What is recorded depends on names alone.
    names = ['/image_raw', '/image_raw/compressed']
    talkers = [node.create_publisher(String, name, qos.REPORT) for name in names]
    assert len(talkers) == 2
    for topics, recorded in (('*', names[:1]), ('image_raw,compressed', names),
                             ('*/compressed', names[1:])):
        found = discover(node, tmp_path, *((name, 'std_msgs/msg/String') for name in names),
                         topics=topics)
        assert found == recorded, topics


def test_a_second_recorder_leaves_the_episode_of_the_first(tmp_path):
    first = EpisodeBags(tmp_path / 'demos')
    first.start(0)
    with pytest.raises(InUseError, match='demos is in use by another process'):
        EpisodeBags(tmp_path / 'demos')
    assert first.save(EpisodeLabels()).is_dir()
