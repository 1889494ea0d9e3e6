"""The observation of the task reach by the names of its features, and its description."""

import json

import numpy as np
import pytest
import torch

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.arm_env import IN_FLIGHT, JointReading
from vdl_ros.envs.owi535.arm_task import INSIDE
from vdl_ros.envs.owi535.reach import FEATURES, MOTORS, MisfitError, ReachObserver, check, describe
from vdl_ros.envs.registration import REACH

GEOMETRY = load()
OBSERVER = ReachObserver(GEOMETRY)
DESCRIPTION = describe()
POSE = np.array([0.7, 0.4, -0.9, 0.3, 0.1])
TARGET = np.array([0.1, -0.2, 0.15])
COMMANDS = np.array([[1, 0, -1, 0], [0, 0, -1, 0], [0, 0, 0, 0], [0, 1, 0, 0],
                     [0, 0, 0, 1], [0, 0, 0, -1], [-1, 0, 0, 0], [0, -1, 1, 0]], np.int8)


def observed(pose=POSE, before=POSE, stamp_before=4.9, now=5.04, target=TARGET):
    values = OBSERVER.observe(
        JointReading(np.array(pose), np.array(5.0)),
        JointReading(np.array(before), np.array(stamp_before)), np.array(now), COMMANDS, target)
    assert values.dtype == np.float32
    return dict(zip([feature.name for feature in FEATURES], values.tolist(), strict=True))


def test_features_have_their_values():
    found = observed(before=POSE - [0.02, 0.0, -0.03, 0.0, 0.5])
    for index, motor in enumerate(MOTORS):
        assert found[f'{motor}_position'] == pytest.approx(POSE[index])
        for back in range(1, IN_FLIGHT + 1):
            assert found[f'{motor}_command_{back}'] == COMMANDS[back - 1, index]
    assert found['base_velocity'] == pytest.approx(0.2)
    assert found['elbow_velocity'] == pytest.approx(-0.3)
    assert found['wrist_measured'] == 1.0
    assert found['age'] == pytest.approx(0.04)
    tool = Kinematics(GEOMETRY).pose(POSE)[:3, 3]
    away = TARGET - tool
    for index, axis in enumerate('xyz'):
        assert found[f'tool_{axis}'] == pytest.approx(tool[index], abs=1e-6)
        assert found[f'target_from_tool_{axis}'] == pytest.approx(away[index], abs=1e-6)
    # The base is turned by 0.7 rad: forward is along the arm, left across it.
    forward, left = np.array([np.cos(0.7), np.sin(0.7)]), np.array([-np.sin(0.7), np.cos(0.7)])
    assert found['target_from_tool_forward'] == pytest.approx(away[:2] @ forward, abs=1e-6)
    assert found['target_from_tool_left'] == pytest.approx(away[:2] @ left, abs=1e-6)
    assert found['nearness'] == pytest.approx(0.02 / (0.02 + np.linalg.norm(away)))
    # A small forward turn of each motor, by differences.
    for index, motor in enumerate(MOTORS):
        turned = POSE + 1e-5 * np.eye(5)[index]
        nearer = np.linalg.norm(away) - np.linalg.norm(
            TARGET - Kinematics(GEOMETRY).pose(turned)[:3, 3])
        assert found[f'{motor}_approach'] == pytest.approx(nearer / 1e-5, abs=1e-4)


def test_turn_of_a_motor_is_the_one_that_brings_the_tool_to_the_target():
    for motor, joint in zip(MOTORS, np.eye(5), strict=False):
        target = Kinematics(GEOMETRY).pose(POSE - 0.01 * joint)[:3, 3]
        assert observed(target=target)[f'{motor}_turn'] == pytest.approx(-0.01, rel=0.02), motor


def test_missing_joints_repeated_measurements_and_large_values_have_bounds():
    lost, straight = POSE.copy(), POSE.copy()
    lost[3], straight[3] = np.nan, 0.0
    found = observed(pose=lost)
    # A joint that is not measured counts as straight.
    assert found['wrist_measured'] == found['wrist_position'] == found['wrist_velocity'] == 0.0
    assert found['tool_z'] == pytest.approx(Kinematics(GEOMETRY).pose(straight)[2, 3])
    # It comes back: one measurement gives no velocity, nor does one that comes twice.
    assert observed(before=lost)['wrist_velocity'] == 0.0
    assert observed(before=POSE - 0.1, stamp_before=5.0)['base_velocity'] == 0.0
    found = observed(before=POSE - 1.0, now=99.0)
    assert (found['base_velocity'], found['age']) == (2.0, 1.0)


def test_many_arms_at_once_equal_one_after_the_other():
    random = np.random.default_rng(0)
    poses = random.uniform(GEOMETRY.lower, GEOMETRY.upper, (2, 6, 5))
    poses[0, 2, 3] = np.nan
    stamps, now = np.full(6, 1.0), np.full(6, 1.1)
    commands = random.integers(-1, 2, (6, IN_FLIGHT, 4)).astype(np.int8)
    targets = random.normal(size=(6, 3))
    together = OBSERVER.observe(JointReading(poses[0], stamps), JointReading(poses[1], stamps - 1),
                                now, commands, targets)
    for row in range(6):
        alone = OBSERVER.observe(
            JointReading(poses[0, row], stamps[row]), JointReading(poses[1, row], stamps[row] - 1),
            now[row], commands[row], targets[row])
        assert alone == pytest.approx(together[row])


def test_the_environment_describes_itself_in_plain_values():
    found = factory.describe(EnvConfig(env_id=REACH))
    assert found == {'environment': json.loads(json.dumps(DESCRIPTION))}
    assert DESCRIPTION['rate'] == 10.0
    assert DESCRIPTION['twins']['speed'] == [list(each) for each in INSIDE.speed]
    assert DESCRIPTION['features'][0][:2] == ['base_position', 'rad']
    check(DESCRIPTION, GEOMETRY)
    # An arm that was measured is no other one.
    check(DESCRIPTION, load({'forearm_length': 0.115, 'elbow_upper': 2.6, 'wrist_velocity': 0.3}))
    assert factory.describe(EnvConfig(env_id='CartPole-v1')) == {}


def test_another_program_or_arm_is_refused_in_one_line():
    arm, features = DESCRIPTION['arm'], DESCRIPTION['features']
    for changes, reason in (
            (None, 'the checkpoint does not describe its environment'),
            ({'rate': 20.0}, 'rate: 20.0 is not 10.0'),
            ({'motors': ['base']},
             "motors: ['base'] is not ['base', 'shoulder', 'elbow', 'wrist']"),
            ({'features': features[:3]}, 'features: 3 are not 59'),
            ({'features': [['base_position', 'degrees', 360.0], *features[1:]]},
             "feature 0: ['base_position', 'degrees', 360.0] is not ['base_position', 'rad',"),
            ({'rate': torch.zeros(3)}, 'not of plain values'),
            ({'twins': {'speed': []}}, 'arm, twins: not a description of an arm'),
            ({'arm': {**arm, 'upper': [10**400] * 5}}, 'not a description of an arm'),
            ({'arm': {**arm, 'lower': [[1.0], 'x']}}, 'not a description of an arm'),
            ({'arm': {**arm, 'lower': [float('nan')] * 5}}, 'base: its lower limit')):
        found = {} if changes is None else {**DESCRIPTION, **changes}
        with pytest.raises(MisfitError) as error:
            check(found, GEOMETRY)
        assert reason in str(error.value)
        assert '\n' not in str(error.value), reason
        assert len(str(error.value)) < 300, reason
    for arguments, reason in (
            ({'forearm_length': 0.2}, 'lengths: tool0 is up to'),
            ({'base_velocity': 0.6},
             'base: its speed is 0.600 rad/s, but 0.279 to 0.419 rad/s in the'),
            ({'elbow_upper': 2.2},
             'elbow: its upper limit is 2.200 rad, but 2.793 rad in the training')):
        with pytest.raises(MisfitError, match=reason):
            check(DESCRIPTION, load(arguments))
