"""Motor commands as messages, two who command at once, persons before programs, two arms."""

import pytest
from builtin_interfaces.msg import Time

from vdl_ros.arm.joints import JOINTS, MotorError, Motors
from vdl_ros.msg import MotorCommand
from vdl_ros.ros.arm.arm_topics import (
    CommandConflictDetector,
    FloodDetector,
    SecondArmDetector,
    message_from_motors,
    motors_from_message,
)


def test_a_command_is_the_same_there_and_back_and_other_values_are_refused_by_name():
    for lamp in (False, True):
        motors = Motors(1, 0, -1, 0, 1, lamp)
        message = message_from_motors(motors, Time(sec=3), '/me', with_lamp=True)
        assert (message.header.stamp.sec, message.sender) == (3, '/me')
        assert motors_from_message(message, not lamp) == motors
        # A command leaves the lamp unless it says so.
        message = message_from_motors(Motors(base=1, lamp=not lamp), Time(), '/me')
        assert motors_from_message(message, lamp) == Motors(base=1, lamp=lamp)
    for name in (*JOINTS, 'lamp'):
        for value in (-2, 2):
            with pytest.raises(MotorError, match=f'{name}: {value} is not allowed'):
                motors_from_message(MotorCommand(**{name: value}), False)


def test_a_rate_that_nobody_sends_is_a_flood():
    fast, flood = (FloodDetector() for _ in range(2))
    assert not any(fast.update(step / 900) for step in range(2000))
    assert [flood.update(step / 1100) for step in range(200)].index(True) == 100
    assert not flood.update(10.0), 'it is over'


def senders(*publishers):
    return CommandConflictDetector(0.5, lambda: list(publishers))


def test_two_that_alternate_are_warned_of_but_not_all_the_time():
    found = senders()
    warnings = [found.update(name, step / 20) for step in range(200) for name in ('/b', '/a')]
    warned = [each for each in warnings if each]
    assert warned == ['arm/motors: 2 publishers at once: /a, /b'] * 2


def test_one_sender_and_one_after_the_other_are_no_news():
    found = senders('/a', '/b')
    first = [found.update('/a', step / 20) for step in range(20)]
    second = [found.update('/b', 1.0 + step / 20) for step in range(40)]
    assert not any(first + second)
    # And back, after a while.
    assert not found.update('/a', 4.0)


def test_senders_without_a_name_are_counted_in_the_graph():
    assert senders('/_ros2cli_1', '/_ros2cli_2', '/viewer').update('', 0.0) == \
        'arm/motors: 2 publishers at once: /_ros2cli_1, /_ros2cli_2'
    assert senders('/_ros2cli_1', '/viewer', '/arm/arm_controller').update('', 0.0) == ''
    found = senders('/_ros2cli_1')
    warned = [found.update(name, step / 20) for step in range(5) for name in ('', '/teleop')]
    assert next(filter(None, warned)) == \
        'arm/motors: 2 publishers at once: /teleop, a sender without a name'


def test_a_warning_quotes_the_names_of_publishers():
    name = '/a\x1b[2J\n[FATAL] forged' + 'x' * 10**6
    for senders_named in (('',), ('/b', name)):
        found = senders(name, '/c')
        warned = ''.join(
            found.update(each, step / 20) for step in range(3) for each in senders_named)
        assert warned.startswith('arm/motors: 2 publishers at once: ')
        assert warned.isprintable()
        assert len(warned) < 200


def test_senders_that_invent_names_are_forgotten_and_not_all_named():
    found = senders()
    names = [f'/{number}' for number in range(1000)]
    warned = [found.update(name, (step + 1) / 10_000) for step in range(2) for name in names]
    assert [each for each in warned if each] == [
        'arm/motors: 1000 publishers at once: /0, /1, /10, /100, /101 and 995 more']
    found.update('/late', 10.0)
    assert len(found._commanded_at) == 1


def test_a_second_arm_is_warned_of_while_it_is_there_but_not_at_once():
    names = ['/sim_arm']
    found = SecondArmDetector(lambda: names)
    assert not any(found.update(float(second)) for second in range(10))
    names.append('/sim_arm')
    assert found.update(10.0) == ''
    assert found.update(13.0) == (
        '2 arms obey the same commands: /sim_arm, /sim_arm: end one, or give it a namespace or a '
        'ROS_DOMAIN_ID of its own')
    del names[1]
    assert found.update(14.0) == ''
    names.append('/arm_driver')
    assert found.update(15.0) == ''
