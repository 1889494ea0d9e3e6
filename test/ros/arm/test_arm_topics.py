"""Motor commands as messages."""

import pytest
from builtin_interfaces.msg import Time

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import MotorError, Motors
from vdl_ros.msg import MotorCommand
from vdl_ros.ros.arm.arm_topics import message_from_motors, motors_from_message


@pytest.mark.parametrize('lamp', [False, True])
def test_a_command_is_the_same_there_and_back(lamp):
    motors = Motors(1, 0, -1, 0, 1, lamp)
    message = message_from_motors(motors, Time(sec=3), '/me', with_lamp=True)
    assert (message.header.stamp.sec, message.sender) == (3, '/me')
    assert motors_from_message(message, not lamp) == motors


@pytest.mark.parametrize('lamp', [False, True])
def test_a_command_leaves_the_lamp_unless_it_says_so(lamp):
    message = message_from_motors(Motors(base=1, lamp=not lamp), Time(), '/me')
    assert motors_from_message(message, lamp) == Motors(base=1, lamp=lamp)


@pytest.mark.parametrize('name', [*JOINTS, 'lamp'])
@pytest.mark.parametrize('value', [-128, -2, 2, 127])
def test_other_values_are_refused_by_name(name, value):
    with pytest.raises(MotorError, match=f'{name}: {value} is not allowed'):
        motors_from_message(MotorCommand(**{name: value}), False)
