"""Exports by the contract of a robot: its features are the state, its actions the actions."""

import json

import numpy as np
import pytest
import yaml
from bag_files import (
    MS,
    START_NS,
    check_pictures,
    command,
    picture,
    positions,
    rows_of,
    stamp,
    write_bag,
)
from geometry_msgs.msg import Twist, TwistStamped
from nav_msgs.msg import Odometry
from robot_contract import GOOD
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header

from vdl_ros.common.files import find_resource
from vdl_ros.ros.messages.images import to_compressed_image
from vdl_ros.tools.export_dataset import main


@pytest.fixture
def driven(tmp_path):
    """Return a bag of a robot without a camera: 30 measurements at 20 Hz, a command for each."""
    messages = []
    for number in range(30):
        ns = START_NS + number * 50 * MS
        odom, twist = Odometry(), Twist()
        odom.twist.twist.linear.x = 0.01 * number
        twist.linear.x = 0.5 - 0.01 * number
        messages += [(ns - MS, '/robot_1/cmd_vel', twist), (ns, '/robot_1/odom', odom)]
    return write_bag(tmp_path / 'driven', messages)


def run(bag, output, robot=None):
    words = [str(bag), '--output', str(output)]
    return main(words + (['--robot', str(robot)] if robot else []))


def test_messages_whose_stamp_says_nothing_count_from_their_recording(tmp_path):
    contract, output = tmp_path / 'mine.yaml', tmp_path / 'out'
    contract.write_text(yaml.safe_dump(GOOD | {
        'topics': {'odom': GOOD['topics']['odom'] | {'stamped': False}},
        'actions': GOOD['actions'] | {'type': 'geometry_msgs/msg/TwistStamped', 'parts': [
            GOOD['actions']['parts'][0] | {'field': 'twist.linear.x'}]}}))
    bag = write_bag(tmp_path / 'bag', [
        (START_NS + number * 50 * MS, topic, kind()) for number in range(30)
        for topic, kind in (('/cmd_vel', TwistStamped), ('/odom', Odometry))])
    assert run(bag, output, contract) == 0
    assert json.loads((output / 'meta/info.json').read_text())['total_frames'] == 30


def test_a_robot_without_a_camera_becomes_a_data_set(driven, tmp_path, capsys):
    contract, output = tmp_path / 'mine.yaml', tmp_path / 'out'
    contract.write_text(yaml.safe_dump(GOOD))
    assert run(driven, output, contract) == 0
    info = json.loads((output / 'meta/info.json').read_text())
    assert (info['robot_type'], info['fps'], info['total_frames']) == ('mine', 20, 30)
    assert info['features']['observation.state']['names'] == ['speed']
    assert info['features']['action']['names'] == ['forward']
    assert not any(each['dtype'] == 'video' for each in info['features'].values())
    # As LeRobot has one number: not in a list.
    rows, speeds = rows_of(output), 0.01 * np.arange(30)
    np.testing.assert_allclose([row['observation.state'] for row in rows], speeds, atol=1e-6)
    # In the last of 50 ms of each row the next command is in force.
    commands = 0.5 - speeds - 0.01 * np.array([0.02] * 29 + [0.0])
    np.testing.assert_allclose([row['action'] for row in rows], commands, atol=1e-6)
    for robot, reason in (
            ('nobody', "robot: 'nobody' is not allowed: FOLDER/NAME.yaml, or one of owi535"),
            ('no.yaml', 'no.yaml: cannot be read')):
        assert run(driven, tmp_path / 'none', robot) == 2
        assert reason in capsys.readouterr().err


def test_compressed_images_of_a_contract_become_pictures(builder, tmp_path):
    (tmp_path / 'owi535.yaml').write_text(find_resource('config/robots/owi535.yaml').read_text())
    contract = tmp_path / 'compressed.yaml'
    contract.write_text('include: owi535.yaml\nimages: [{name: camera, topic: camera/image_raw/'
                        'compressed, type: sensor_msgs/msg/CompressedImage}]\n')
    for row in range(20):
        at = START_NS + row * 50 * MS
        builder.joints(at, positions(at))
        builder.motors(at, command(at))
        builder.compressed_image(at, picture(row))
    # Damaged ones are left out, also one whose header is whole.
    cut = to_compressed_image(picture(0, (240, 320)), stamp(at)).data[:1500]
    for late, data in ((10, b'no image'), (20, bytes(cut))):
        ns = at + late * MS
        builder.add('camera/image_raw/compressed', ns, CompressedImage(
            header=Header(stamp=stamp(ns)), data=data))
    output = tmp_path / 'out'
    assert run(builder.write(), output, contract) == 0
    check_pictures(output, range(20))
