"""What checkpoints say of the task reach; what does not fit program or arm is refused."""

import json

import pytest
import torch

from vdl_ros.arm.model.geometry import load
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.reach_description import MisfitError, check, describe
from vdl_ros.envs.owi535.twin_ranges import INSIDE
from vdl_ros.envs.registration import REACH

GEOMETRY = load()
DESCRIPTION = describe()


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
            ({'features': 'x' * 10**6}, 'features: 0 are not 59'),
            ({'rate': torch.zeros(3)}, 'not of plain values'),
            ({'twins': {'speed': []}}, 'arm, twins: not a description of an arm'),
            ({'twins': 7}, 'arm, twins: not a description of an arm'),
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
