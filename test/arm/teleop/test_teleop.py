"""Keyboard control: which motors run, from keys and times alone."""

import itertools
import random

import numpy as np
import pytest

from vdl_ros.arm.model import geometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.model.motor_command import Motors
from vdl_ros.arm.teleop.teleop import HELP, KEYS, REPORTS, Teleop
from vdl_ros.arm.teleop.teleop_config import TeleopConfig

FIRST, REPEAT = TeleopConfig().first_timeout, TeleopConfig().repeat_timeout


def test_every_motor_has_a_key_for_each_direction():
    assert sorted(KEYS.values()) == sorted(itertools.product(JOINTS, (-1, 1)))
    for first, second in ('az', 'sx', 'dc', 'fv', 'gb'):
        assert f'{first} {second}  {KEYS[first][0]}' in HELP
        assert KEYS[first] == (KEYS[second][0], -KEYS[second][1])


def test_up_is_up_and_clockwise_is_clockwise():
    pose = np.array([0.0, 0.4, 0.8, 0.2, 0.0])
    jacobian = Kinematics(geometry.load()).jacobian(pose)
    for up, down in ('sx', 'dc', 'fv'):
        for key, sign in ((up, 1), (down, -1)):
            motor, direction = KEYS[key]
            assert sign * direction * jacobian[2, JOINTS.index(motor)] > 0, key
    motor, direction = KEYS['g']
    assert direction * jacobian[5, JOINTS.index(motor)] < 0


@pytest.mark.parametrize('key', KEYS)
def test_tap_runs_the_motor_for_first_timeout(key):
    teleop = Teleop(TeleopConfig())
    motor, direction = KEYS[key]
    teleop.feed(key.upper().encode(), 1.0)
    assert teleop.motors(1.0 + FIRST - 0.01) == Motors(**{motor: direction})
    assert teleop.motors(1.0 + FIRST) == Motors()


@pytest.mark.parametrize('delay', [0.25, 0.4, 0.5])
@pytest.mark.parametrize('rate', [15, 30, 100])
def test_held_key_runs_without_gap_until_release(delay, rate):
    teleop = Teleop(TeleopConfig())
    repeats = [delay + number / rate for number in range(2 * rate)]
    due, held, off = [0.0, *repeats], [], None
    for tick in range(0, 4000, 5):
        now = tick / 1000
        while due and due[0] <= now:
            teleop.feed(b'b', due.pop(0))
        on = teleop.motors(now).base == 1
        if now <= repeats[-1]:
            held.append(on)
        elif not on and off is None:
            off = now
    assert all(held)
    assert off - repeats[-1] <= REPEAT + 0.006


def test_two_taps_run_no_longer_than_one():
    teleop = Teleop(TeleopConfig())
    teleop.feed(b'a', 0.0)
    teleop.feed(b'a', 0.3)
    assert teleop.motors(FIRST - 0.01).gripper == 1
    assert teleop.motors(FIRST) == Motors()


def test_second_motor_joins_and_opposite_key_replaces():
    teleop = Teleop(TeleopConfig())
    teleop.feed(b'a', 0.0)
    teleop.feed(b'g', 0.1)
    assert teleop.motors(0.2) == Motors(gripper=1, base=-1)
    teleop.feed(b'b', 0.3)
    assert teleop.motors(0.4) == Motors(gripper=1, base=1)
    assert teleop.motors(FIRST) == Motors(base=1)


@pytest.mark.parametrize('data', [b' ', b'e', b'\x03', b'\x1b[O'])
def test_keys_that_stop_all_motors(data):
    teleop = Teleop(TeleopConfig())
    teleop.feed(b'adg', 0.0)
    assert teleop.motors(0.1).moving
    teleop.feed(data, 0.1)
    assert teleop.motors(0.1) == Motors()


def test_escape_and_ctrl_c_quit():
    teleop = Teleop(TeleopConfig())
    teleop.feed(b'\x1b', 0.0)
    assert not teleop.quit
    teleop.feed(b'', 0.2)
    assert teleop.quit
    teleop.feed(b'a', 0.3)
    assert teleop.motors(0.3) == Motors()


def test_lamp_keys_do_not_affect_motors():
    teleop = Teleop(TeleopConfig())
    assert teleop.lamp == 0
    teleop.feed(b'q', 0.0)
    assert (teleop.lamp, teleop.motors(99.0)) == (1, Motors(lamp=True))
    teleop.feed(b'a ', 1.0)
    assert teleop.motors(1.0) == Motors(lamp=True)
    teleop.feed(b'w', 2.0)
    assert (teleop.lamp, teleop.motors(2.0)) == (-1, Motors())


def test_emergency_stop_disables_motor_keys():
    teleop = Teleop(TeleopConfig())
    teleop.feed(b'a', 0.0)
    assert teleop.feed(b'e', 0.1) == ['stop']
    teleop.feed(b'a', 0.2)
    assert teleop.motors(0.2) == Motors()
    assert teleop.feed(b'r', 0.3) == ['release']
    assert teleop.motors(0.3) == Motors()
    teleop.feed(b'a', 0.4)
    assert teleop.motors(0.4).moving
    teleop.set_emergency(True)
    assert teleop.motors(0.4) == Motors(), 'engaged by another node'
    assert teleop.emergency


def test_keys_do_not_show_a_stop_that_the_driver_has_not_confirmed():
    teleop = Teleop(TeleopConfig())
    teleop.feed(b'e', 0.0)
    assert not teleop.emergency
    teleop.set_emergency(True)
    teleop.feed(b'r', 1.0)
    assert teleop.emergency


def test_key_held_through_an_emergency_stop_does_nothing_until_let_go():
    teleop = Teleop(TeleopConfig())
    teleop.set_emergency(True)
    for step in range(100):
        if step == 50:
            teleop.set_emergency(False)
        teleop.feed(b'b', step / 30)
        assert not teleop.motors(step / 30).moving
    now = 100 / 30 + FIRST
    teleop.feed(b'b', now)
    assert teleop.motors(now).base == 1


def test_help_keys_request_help():
    assert Teleop(TeleopConfig()).feed(b'h?', 0.0) == ['help', 'help']


def kitty():
    """Return a teleop at a terminal that reports releases."""
    teleop = Teleop(TeleopConfig())
    assert teleop.feed(b'\x1b[?0u', 0.0) == ['enable']
    assert not teleop.releases
    assert teleop.feed(b'\x1b[?%du' % REPORTS, 0.1) == []
    assert teleop.releases
    return teleop


def test_terminal_with_key_releases():
    teleop = kitty()
    teleop.feed(b'\x1b[97;1:1u\x1b[103;1:1u', 1.0)
    for step in range(100, 500):
        # The keyboard repeats the last key only; the terminal answers.
        teleop.feed(b'\x1b[?11u' if step % 50 == 0 else b'\x1b[103;1:2u', step / 100)
        assert teleop.motors(step / 100) == Motors(gripper=1, base=-1), 'as long as they are held'
    teleop.feed(b'\x1b[97;1:3u', 6.0)
    assert teleop.motors(6.0) == Motors(base=-1)
    teleop.feed(b'\x1b[103;1:3u', 7.0)
    assert teleop.motors(7.0) == Motors()


def test_dead_link_releases_the_keys_of_a_terminal_with_key_releases():
    teleop = kitty()
    assert teleop.feed(b'\x1b[97;1:1u', 1.0) == ['ask']
    asked = [now for now in np.arange(1.0, 60.0, 0.01).tolist() if 'ask' in teleop.feed(b'', now)]
    assert np.diff(asked) == pytest.approx(0.5, abs=0.02)
    teleop = kitty()
    teleop.feed(b'\x1b[97;1:1u', 1.0)
    assert teleop.motors(2.4).moving
    assert not teleop.motors(2.5).moving
    teleop.feed(b'\x1b[97;1:2u', 60.0)
    assert not teleop.motors(60.0).moving, 'what was held back arrives late: a new press counts'


def test_terminal_that_answers_without_repeats_holds_keys_for_a_limited_time():
    teleop = kitty()
    teleop.feed(b'\x1b[97;1:1u', 1.0)
    limit = TeleopConfig().held_timeout
    for now in np.arange(1.0, 60.0, 0.1).tolist():
        teleop.feed(b'\x1b[?11u', now)
        assert teleop.motors(now).moving == (now < 1.0 + limit)


def test_release_of_a_replaced_key_changes_nothing():
    teleop = kitty()
    teleop.feed(b'\x1b[97;1:1u\x1b[122;1:1u\x1b[97;1:3u', 1.0)
    assert teleop.motors(2.0) == Motors(gripper=-1)


def test_held_key_needs_a_new_press_after_a_stop():
    teleop = kitty()
    teleop.feed(b'\x1b[97;1:1u', 1.0)
    teleop.feed(b'\x1b[32;1:1u', 2.0)
    teleop.feed(b'\x1b[97;1:2u', 3.0)
    assert teleop.motors(3.0) == Motors()
    teleop.feed(b'\x1b[97;1:3u\x1b[97;1:1u', 4.0)
    assert teleop.motors(4.0).moving


def test_action_happens_once_per_press():
    teleop = kitty()
    assert teleop.feed(b'\x1b[101;1:1u\x1b[101;1:2u\x1b[101;1:3u', 1.0) == ['stop']
    assert teleop.feed(b'\x1b[27;1:3u', 2.0) == []
    assert not teleop.quit


def test_terminal_with_part_of_the_protocol_counts_as_plain():
    teleop = Teleop(TeleopConfig())
    assert teleop.feed(b'\x1b[?0u', 0.0) == ['enable']
    assert teleop.feed(b'\x1b[?1u', 0.1) == []
    assert not teleop.releases
    teleop.feed(b'a', 1.0)
    assert teleop.motors(1.0 + FIRST) == Motors()


@pytest.mark.parametrize('seed', range(5))
def test_random_input_leaves_motors_off_after_timeout(seed):
    rng, teleop, now = random.Random(seed), Teleop(TeleopConfig()), 0.0
    for _ in range(500):
        data = bytes(rng.choices(b'azsxdcfvgbqwer ?h\x1b[]O;0u\xff', k=rng.randrange(1, 8)))
        teleop.feed(data, now)
        assert all(value in (-1, 0, 1) for value in teleop.motors(now).values)
        now += rng.random() * 0.1
    assert not teleop.motors(now + FIRST).moving
