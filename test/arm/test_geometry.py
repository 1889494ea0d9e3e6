"""The description: it alone has lengths, arguments change it, invalid ones are refused."""

import math
import re

import numpy as np
import pytest
from refusals import refusal

from vdl_ros.arm.geometry import ArmGeometry, GeometryError, expand, load, parse
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.common.files import find_resource

TEXT = find_resource('urdf/owi535.urdf.xacro').read_text()
ARGUMENTS = dict(re.findall(r'<xacro:arg name="(\w+)" default="([^"]+)"/>', TEXT))
ZERO = np.zeros(5)


def point(geometry: ArmGeometry, frame: str, positions=ZERO):
    return Kinematics(geometry).pose(positions, frame)[:3, 3]


def gap(geometry, angle):
    """Return the distance of the finger tips, which meet at tool0 when closed."""
    kinematics = Kinematics(geometry)
    closed, opened = kinematics.poses(ZERO), kinematics.poses([0, 0, 0, 0, angle])
    tips = [opened[finger] @ np.linalg.inv(closed[finger]) @ closed['tool0'][:, 3]
            for finger in ('left_finger', 'right_finger')]
    return float(np.linalg.norm(tips[0] - tips[1]))


def test_arm_at_zero_is_upright_with_its_lengths_and_joints_bend_forward():
    geometry = load()
    lengths = [float(ARGUMENTS[name]) for name in (
        'shoulder_height', 'upper_arm_length', 'forearm_length', 'hand_length')]
    heights = [point(geometry, frame)[2] for frame in ('upper_arm', 'forearm', 'hand', 'tool0')]
    assert heights == pytest.approx(np.cumsum(lengths))
    # Reach as in the data sheet.
    assert point(geometry, 'tool0') == pytest.approx([0.0, 0.0, 0.381])
    assert point(geometry, 'tool0', [0, math.pi / 2, 0, 0, 0])[0] == pytest.approx(0.320)
    for joint in ('shoulder', 'elbow', 'wrist'):
        bent = ZERO.copy()
        bent[JOINTS.index(joint)] = 0.3
        assert point(geometry, 'tool0', bent)[0] > 0.02, joint
    assert point(geometry, 'tool0', [0.5, 0.5, 0, 0, 0])[1] > 0.02
    assert gap(geometry, 0.2) > gap(geometry, 0.1) > 0.01


def test_arguments_change_lengths_limits_speeds_and_opening():
    for argument, frame in (
            ('shoulder_height', 'upper_arm'), ('upper_arm_length', 'forearm'),
            ('forearm_length', 'hand'), ('hand_length', 'tool0'),
            ('camera_target_height', 'camera_target')):
        longer = load({argument: float(ARGUMENTS[argument]) + 0.02})
        assert point(longer, frame)[2] == pytest.approx(point(load(), frame)[2] + 0.02), argument
    geometry = load({f'{joint}_{limit}': value for joint in JOINTS[:4] for limit, value in (
        ('lower', -0.5), ('upper', '0.6'), ('velocity', 0.7))})
    for found, value in zip((geometry.lower, geometry.upper, geometry.velocity), (-0.5, 0.6, 0.7),
                            strict=True):
        assert found[:4].tolist() == [value] * 4
    for opening in (0.030, 0.060):
        geometry = load({'gripper_opening': opening})
        assert gap(geometry, 0.0) == pytest.approx(0.0, abs=1e-9)
        assert gap(geometry, geometry.upper[4]) == pytest.approx(opening, abs=1e-9)


def replaced(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


TOOL, BASE = '<xacro:frame name="tool0" parent="hand"', '<link name="base_link">'
VISUAL = '<visual><geometry>%s</geometry></visual>'
NONSENSE = {
    'cut off': (TEXT[:-20], 'unclosed token'),
    'opening too wide': (replaced('default="0.045"', 'default="0.5"'), 'gripper_opening'),
    'unknown name': (replaced('${box_z / 2}', '${bx / 2}'), "'bx' is not defined"),
    'missing joint': (replaced('name="wrist" parent', 'name="wirst" parent'),
                      'joint wrist: missing'),
    'unknown parent': (replaced('parent="forearm"', 'parent="forarm"'),
                       "joint wrist: no link 'forarm'"),
    'inverted limits': (replaced('default="-0.960"', 'default="1.2"'),
                        'joint wrist: lower limit 1.2 is not below the upper, 0.96'),
    'endless limits': (replaced('default="-2.793"', 'default="-9"'), 'joint elbow: limits'),
    'far away': (replaced('default="0.061"', 'default="1e9"'), 'joint shoulder: origin: xyz='),
    'no shape': (replaced(BASE, BASE + VISUAL % ''), 'link base_link: visual: no geometry of box'),
    'no size': (replaced(BASE, BASE + VISUAL % '<sphere radius="0"/>'),
                'link base_link: visual: sphere: 0 is not positive'),
    'many shapes': (replaced(BASE, BASE + VISUAL % '<sphere radius="1"/>' * 200),
                    'link/visual: 235 are not allowed: at most 200'),
    'long': (replaced(BASE, f'<link name="{"x" * 2**20}"/>{BASE}'), 'characters are not allowed'),
    'negative length': (replaced('default="0.113"', 'default="-0.1"'),
                        'link forearm: visual: box'),
    'no colour': (replaced("pad='0.85 0.30 0.08 1'", "pad='red'"), "rgba='red' is not 4 numbers"),
    'no speed': (replaced('name="base_velocity" default="0.349"',
                          'name="base_velocity" default="0"'),
                 'joint base: velocity 0 is not positive'),
    'loop': (replaced('parent="turntable" child="upper_arm"', 'parent="hand" child="upper_arm"'),
             'joint shoulder: part of a loop'),
    'two parents': (replaced('child="hand" axis', 'child="forearm" axis'),
                    'link forearm: has two parents'),
    'two roots': (replaced(TOOL, f'<link name="island"/>{TOOL}'), 'roots base_link, island'),
    'link twice': (replaced(TOOL, f'<link name="hand"/>{TOOL}'), 'link hand: declared twice'),
    'no axis': (replaced('axis="0 0 1"', 'axis="0 0 0"'), 'joint base: the axis is 0 0 0'),
    'wrong type': (replaced('type="revolute"', 'type="prismatic"'),
                   "^joint base: type 'prismatic' is not revolute or fixed$"),
    'no motor': (replaced('<mimic joint="gripper"', '<mimic joint="griper"'),
                 'joint gripper_mirror: neither has a motor nor'),
}
#: Only where the arm is simulated.
UNPHYSICAL = (
    (replaced('kg="0.12"', 'kg="-0.12"'), '^MuJoCo: .*turntable'),
    (replaced('iyy="', 'no="'), "^MuJoCo: .*'iyy'"),
    (replaced('iyy="${kg', 'iyy="${100 * kg'), '^MuJoCo: .*inertia'),
)


def refused(message, function, *arguments, **options):
    line = refusal(GeometryError, function, *arguments, **options)
    assert re.search(message, line), line
    assert len(line) < 250


def test_invalid_description_is_refused_in_one_line(tmp_path):
    path = tmp_path / 'arm.urdf.xacro'
    for text, message in NONSENSE.values():
        path.write_text(text)
        refused(message, load, path=path)
    for text, message in UNPHYSICAL:
        path.write_text(text)
        refused(message, build_scene, load(path=path))
    for argument in ('forearm', 'forearm_length ', ''):
        refused(f'no argument {argument!r}', load, {argument: 1.0})
    for missing in (tmp_path / 'none.xacro', tmp_path):
        refused(missing.name, load, path=missing)
    path.write_bytes(b'\xff\xfe\x00')
    refused(r'arm\.urdf\.xacro', load, path=path)


def test_plain_urdf_is_accepted(tmp_path):
    path = tmp_path / 'arm.urdf'
    path.write_text(expand({'hand_length': 0.120}))
    assert point(load(path=path), 'tool0')[2] == pytest.approx(0.384)
    assert parse(path.read_text()).links == load().links
