"""Motor commands: values, text and refusals."""

import math

import numpy as np
import pytest

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import MotorError, Motors


def test_values_are_in_joint_order():
    motors = Motors(base=1, wrist=-1, lamp=True)
    assert motors.values == (1, 0, 0, -1, 0)
    assert Motors.of((1, 0, 0, -1, 0), lamp=True) == motors
    assert Motors.of(np.array([1, 0, 0, -1, 0], np.int8), lamp=True) == motors
    assert Motors.of([1.0, 0.0, 0.0, -1.0, -0.0], lamp=True) == motors
    assert all(type(value) is int for value in Motors.of(np.ones(5)).values)


def test_stopped_keeps_the_lamp_and_nothing_else():
    assert Motors(1, -1, 1, -1, 1, True).stopped() == Motors(lamp=True)
    assert Motors(lamp=True).moving is False
    assert all(Motors(**{name: value}).moving for name in JOINTS for value in (-1, 1))


def test_text_lists_motors_that_are_on():
    assert str(Motors()) == 'off'
    assert str(Motors(base=1, gripper=-1, lamp=True)) == 'base +1, gripper -1, lamp'


@pytest.mark.parametrize('name', JOINTS)
@pytest.mark.parametrize('value', [2, -2, 1.0, math.nan, True, None, '1', 'x' * 100], ids=repr)
def test_invalid_value_is_refused_by_name(name, value):
    with pytest.raises(MotorError, match=f'^motor {name}: .* is not allowed: -1, 0 or 1$') as it:
        Motors(**{name: value})
    assert len(str(it.value)) < 100


@pytest.mark.parametrize('lamp', [1, 0, None, 'on'])
def test_the_lamp_is_true_or_false(lamp):
    with pytest.raises(MotorError, match='^lamp: '):
        Motors(lamp=lamp)


@pytest.mark.parametrize('values', [[], [0] * 4, [0] * 6])
def test_wrong_number_of_values_is_refused(values):
    with pytest.raises(MotorError, match=f'{len(values)} values, but there are 5'):
        Motors.of(values)


@pytest.mark.parametrize('value', [0.5, math.nan, math.inf, 3, True, None])
def test_of_refuses_fractions(value):
    with pytest.raises(MotorError, match='motor elbow'):
        Motors.of([0, 0, value, 0, 0])
