"""A LeRobot data set becomes bags of a robot, as it was exported of them."""

import json
import shutil

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from bag_files import START_NS, BagBuilder, add_scenario, write_bag
from nav_msgs.msg import Odometry
from robot_contract import GOOD
from sensor_msgs.msg import JointState
from std_msgs.msg import Int16MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vdl_ros.bags.messages import decode
from vdl_ros.bags.reader import BagReader, EpisodeLabels, read_labels
from vdl_ros.common.images import pixels_of
from vdl_ros.demonstrations.loading import load_demonstrations
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.registration import REACH
from vdl_ros.export.lerobot_reader import read_pictures
from vdl_ros.robots.contract_files import known_contracts
from vdl_ros.tools.export_dataset import main as export_dataset
from vdl_ros.tools.import_dataset import main as import_dataset

VIDEO = 'videos/observation.images.camera/chunk-000/file-000.mp4'


def export(bags, output, robot='owi535', *words):
    assert export_dataset(
        [str(bags), '--output', str(output), '--robot', str(robot), *words]) == 0
    return output


def tables(folder):
    return [pq.read_table(folder / name) for name in (
        'data/chunk-000/file-000.parquet', 'meta/tasks.parquet')]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Return the data set of two episodes of the arm with its camera."""
    folder = tmp_path_factory.mktemp('recorded')
    for number in range(2):
        builder = BagBuilder(folder / f'demos/episode_000{number}')
        add_scenario(builder, 50 - 10 * number)
        builder.write(EpisodeLabels(f'task {number}', True, 'owi535'))
    return export(folder / 'demos', folder / 'data')


def test_imported_bags_are_exported_and_learned_as_the_data_set_was(data, tmp_path):
    bags = tmp_path / 'bags'
    assert import_dataset([str(data), '--robot', 'owi535', '--output', str(bags)]) == 0
    again = export(bags, tmp_path / 'again')
    for first, second in zip(tables(data), tables(again), strict=True):
        assert first.equals(second)
    assert (data / 'meta/info.json').read_text() == (again / 'meta/info.json').read_text()
    assert read_labels(bags / 'episode_0001') == EpisodeLabels('task 1', True, 'owi535')
    messages = [each for number in range(2) for each in BagReader(bags / f'episode_000{number}')]
    images = [pixels_of(decode(each.data, each.type)) for each in messages
              if each.topic == '/camera/image_raw']
    with av.open(str(data / VIDEO)) as container:
        shown = [each.to_ndarray(format='rgb24') for each in container.decode(video=0)]
    np.testing.assert_array_equal(images, shown)
    # Also from between two key frames.
    np.testing.assert_array_equal(list(read_pictures(data / VIDEO, 7 / 20, 3, 20)), shown[7:10])
    sent = [decode(each.data, each.type) for each in messages if each.topic == '/arm/motors']
    assert [each.gripper for each in sent[:50]] == [
        row['action'][4] for row in tables(data)[0].to_pylist()[:50]]
    assert {each.sender for each in sent} == {'/import_dataset'}
    spaces = factory.spaces(EnvConfig(env_id=REACH))
    known, found = (load_demonstrations(each, REACH, spaces, known_contracts(), outcomes=True)
                    for each in (data, bags))
    np.testing.assert_array_equal(found.observations, known.observations)
    np.testing.assert_array_equal(found.actions, known.actions)
    np.testing.assert_array_equal(found.outcomes.rewards, known.outcomes.rewards)


def test_each_kind_of_field_is_read_again(tmp_path):
    """Keyed, some of them unknown; by place; dotted; positions of a trajectory; at 30 Hz."""
    def feature(name, source, field, **more):
        return {'name': name, 'from': source, 'field': field, 'unit': '', 'low': -1, 'high': 1,
                **more}

    contract = tmp_path / 'mine.yaml'
    contract.write_text(yaml.safe_dump(GOOD | {
        'namespace': 'left',
        'actions': {'topic': 'arm', 'type': 'trajectory_msgs/msg/JointTrajectory', 'parts': [
            {'name': name, 'field': 'positions', 'key': name, 'position_of': name, 'step': 9.0,
             'unit': '', 'low': -9, 'high': 9} for name in 'ab']},
        'topics': {key: {'topic': key, 'type': kind, 'timeout': 0.5} for key, kind in (
            ('joints', 'sensor_msgs/msg/JointState'), ('odom', 'nav_msgs/msg/Odometry'),
            ('array', 'std_msgs/msg/Int16MultiArray'))},
        'features': [
            feature('a', 'joints', 'position', key='a'),
            feature('b', 'joints', 'position', key='b'),
            feature('fast', 'joints', 'velocity', key='a'),
            feature('never', 'joints', 'position', key='c', optional=True),
            feature('third', 'array', 'data', index=2),
            feature('speed', 'odom', 'twist.twist.linear.x')]}))
    random, messages = np.random.default_rng(1), []
    for number in range(40):
        ns, values = START_NS + number * 10**9 // 30, random.normal(size=5)
        joints = JointState(name=['b', 'a'], position=values[:2], velocity=values[1:3])
        odom = Odometry()
        odom.twist.twist.linear.x = values[3]
        arm = JointTrajectory(joint_names=['b', 'a'], points=[
            JointTrajectoryPoint(positions=values[3:])])
        messages += [(ns, '/left/odom', odom), (ns, '/left/arm', arm),
                     (ns, '/left/array', Int16MultiArray(data=[0, 0, number, 0])),
                     (ns, '/left/joints', joints)]
    write_bag(tmp_path / 'demos/episode_0000', messages, EpisodeLabels('drive', True, 'mine'))
    data = export(tmp_path / 'demos', tmp_path / 'data', contract)
    assert import_dataset(
        [str(data), '--robot', str(contract), '--output', str(tmp_path / 'bags')]) == 0
    first, second = (tables(each)[0] for each in (
        data, export(tmp_path / 'bags', tmp_path / 'again', contract)))
    assert first.num_rows == 40
    assert first.equals(second)


def in_info(change):
    def edit(folder):
        info = json.loads((folder / 'meta/info.json').read_text())
        change(info['features'])
        (folder / 'meta/info.json').write_text(json.dumps(info))
    return edit


def break_video(folder):
    content = bytearray((folder / VIDEO).read_bytes())
    content[-4000:] = bytes(4000)
    (folder / VIDEO).write_bytes(content)


REFUSED = [
    (lambda folder: None, 'so101', 'so101.yaml: actions: change_of is not allowed'),
    (lambda folder: None, 'owi535_push', "owi535_push.yaml: features[8]: convert: 'yaw' is not a"),
    (lambda folder: (folder / 'meta/info.json').unlink(), 'owi535', 'info.json: cannot be read'),
    (in_info(lambda each: each.pop('action')), 'owi535', 'columns that are no features'),
    (in_info(lambda each: each['observation.state']['names'].__setitem__(1, 'waist')), 'owi535',
     "data: observation.state: 'waist' is not allowed: names of owi535.yaml: base, shoulder, el"),
    (in_info(lambda each: each['action'].update(names=None)), 'owi535',
     'data: action: no number has the name base, which owi535.yaml needs'),
    (break_video, 'owi535', f'{VIDEO}: picture')]


def test_what_cannot_be_imported_is_named_in_one_line(data, tmp_path, capsys):
    for edit, robot, reason in REFUSED:
        folder = shutil.copytree(data, tmp_path / 'data')
        edit(folder)
        assert import_dataset(
            [str(folder), '--robot', robot, '--output', str(tmp_path / 'bags')]) == 2, reason
        assert reason in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / 'bags').exists(), reason
        shutil.rmtree(folder)


def test_no_file_but_the_videos_of_the_set_is_opened(data, tmp_path, capsys):
    other = shutil.copy(data / VIDEO, tmp_path / 'file-000.mp4')
    folder = shutil.copytree(data, tmp_path / 'data')
    (folder / VIDEO).write_text(f'ffconcat version 1.0\nfile {other.name}\n')
    with pytest.raises(ValueError, match='no video and no image: of none of the formats'):
        list(read_pictures(folder / VIDEO, 0.0, 1, 10.0))
    for place in ('..', str(tmp_path)):
        info = json.loads((data / 'meta/info.json').read_text())
        info['video_path'] = place + '/{video_key}/{chunk_index}/file-{file_index:03d}.mp4'
        (folder / 'meta/info.json').write_text(json.dumps(info))
        assert import_dataset(
            [str(folder), '--robot', 'owi535', '--output', str(tmp_path / 'bags')]) == 2
        assert 'is not in this folder' in capsys.readouterr().err
