"""Motor commands: values, text and refusals."""

import itertools
import math

import numpy as np
import pytest

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import MotorError, Motors


def test_values_are_in_joint_order():
    motors = Motors(base=1, wrist=-1, lamp=True)
    assert motors.values == (1, 0, 0, -1, 0)
    assert Motors.of(np.array([1, 0, 0, -1, 0], np.int8), lamp=True) == motors
    assert Motors.of([1.0, 0.0, 0.0, -1.0, -0.0], lamp=True) == motors
    assert all(type(value) is int for value in Motors.of(np.ones(5)).values)


def test_stopped_keeps_the_lamp_and_text_lists_motors_that_are_on():
    assert Motors(1, -1, 1, -1, 1, True).stopped() == Motors(lamp=True)
    assert Motors(lamp=True).moving is False
    assert all(Motors(**{name: value}).moving for name in JOINTS for value in (-1, 1))
    assert str(Motors()) == 'off'
    assert str(Motors(base=1, gripper=-1, lamp=True)) == 'base +1, gripper -1, lamp'


def test_invalid_values_are_refused_by_name():
    for name, value in zip(itertools.cycle(JOINTS), (
            2, -2, -128, 1.0, math.nan, True, None, '1', 'x' * 100), strict=False):
        with pytest.raises(
                MotorError, match=f'^motor {name}: .* is not allowed: -1, 0 or 1$') as caught:
            Motors(**{name: value})
        assert len(str(caught.value)) < 100
    for lamp in (1, 0, None, 'on', math.nan):
        with pytest.raises(MotorError, match='^lamp: '):
            Motors(lamp=lamp)
    for values in ([], [0] * 4, [0] * 6):
        with pytest.raises(MotorError, match=f'{len(values)} values, but there are 5'):
            Motors.of(values)
    for value in (0.5, math.nan, math.inf, 3, True, None):
        with pytest.raises(MotorError, match='motor elbow'):
            Motors.of([0, 0, value, 0, 0])
