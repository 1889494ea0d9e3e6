"""Control by keys: the parser of a terminal, and which motors run, from keys and times alone."""

import itertools
import random

import numpy as np
import pytest

from vdl_ros.arm import geometry
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.teleop.keyboard import Flags, Key, Keyboard
from vdl_ros.arm.teleop.teleop import (
    HELD_S,
    HELP,
    KEYS,
    REPEAT_S,
    REPORTS,
    Teleop,
    TeleopConfig,
)

FIRST = TeleopConfig().first_timeout


@pytest.fixture
def teleop():
    return Teleop(TeleopConfig())


@pytest.fixture
def kitty(teleop):
    """Return a teleop at a terminal that reports releases."""
    assert teleop.feed(b'\x1b[?0u', 0.0) == ['enable']
    assert not teleop.releases
    assert teleop.feed(b'\x1b[?%du' % REPORTS, 0.1) == []
    assert teleop.releases
    return teleop


def test_every_motor_has_a_key_for_each_direction():
    assert sorted(KEYS.values()) == sorted(itertools.product(JOINTS, (-1, 1)))
    for first, second in ('az', 'sx', 'dc', 'fv', 'gb'):
        assert f'{first} {second}  {KEYS[first][0]}' in HELP
        assert KEYS[first] == (KEYS[second][0], -KEYS[second][1])
    # Up is up, and clockwise is clockwise.
    pose = np.array([0.0, 0.4, 0.8, 0.2, 0.0])
    kinematics = Kinematics(geometry.load())
    jacobian = kinematics.jacobian(pose)
    for up, down in ('sx', 'dc', 'fv'):
        for key, sign in ((up, 1), (down, -1)):
            motor, direction = KEYS[key]
            assert sign * direction * jacobian[2, JOINTS.index(motor)] > 0, key
    assert kinematics.pose(pose)[0, 3] > 0.1, 'seen from above, it points to +x'
    motor, direction = KEYS['g']
    assert direction * jacobian[1, JOINTS.index(motor)] < 0


def test_tap_runs_the_motor_for_first_timeout():
    for key, (motor, direction) in KEYS.items():
        teleop = Teleop(TeleopConfig())
        teleop.feed(key.upper().encode(), 1.0)
        assert teleop.motors(1.0 + FIRST - 0.01) == Motors(**{motor: direction}), key
        assert teleop.motors(1.0 + FIRST) == Motors(), key
    teleop.feed(b'a', 10.0)
    teleop.feed(b'a', 10.3)
    assert teleop.motors(10.0 + FIRST - 0.01).moving
    assert teleop.motors(10.0 + FIRST) == Motors(), 'two taps run no longer than one'
    # A second motor joins, and the opposite key replaces.
    teleop.feed(b'a', 20.0)
    teleop.feed(b'g', 20.1)
    assert teleop.motors(20.2) == Motors(gripper=1, base=-1)
    teleop.feed(b'b', 20.3)
    assert teleop.motors(20.4) == Motors(gripper=1, base=1)


def test_held_key_runs_without_gap_until_release():
    for delay, rate in ((0.25, 15), (0.4, 30), (0.5, 100)):
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
        assert all(held), (delay, rate)
        assert off - repeats[-1] <= REPEAT_S + 0.006, (delay, rate)


def test_keys_that_stop_all_motors_and_keys_that_quit():
    for data in (b' ', b'e', b'\x03', b'\x1b[O'):
        teleop = Teleop(TeleopConfig())
        teleop.feed(b'adg', 0.0)
        assert teleop.motors(0.1).moving
        teleop.feed(data, 0.1)
        assert teleop.motors(0.1) == Motors(), data
        assert teleop.quit == (data == b'\x03'), data
    teleop = Teleop(TeleopConfig())
    teleop.feed(b'\x1b', 0.0)
    assert not teleop.quit
    teleop.feed(b'', 0.2)
    assert teleop.quit
    teleop.feed(b'a', 0.3)
    assert teleop.motors(0.3) == Motors()


def test_lamp_and_help_keys_do_not_affect_motors(teleop):
    assert teleop.lamp == 0
    teleop.feed(b'q', 0.0)
    assert (teleop.lamp, teleop.motors(99.0)) == (1, Motors(lamp=True))
    teleop.feed(b'a ', 1.0)
    assert teleop.motors(1.0) == Motors(lamp=True)
    teleop.feed(b'w', 2.0)
    assert (teleop.lamp, teleop.motors(2.0)) == (-1, Motors())
    assert teleop.feed(b'h?', 3.0) == ['help', 'help']


def test_emergency_stop_disables_motor_keys(teleop):
    teleop.feed(b'a', 0.0)
    assert teleop.feed(b'e', 0.1) == ['stop']
    assert not teleop.emergency, 'the driver has not confirmed it'
    teleop.feed(b'a', 0.2)
    assert teleop.motors(0.2) == Motors()
    assert teleop.feed(b'r', 0.3) == ['release']
    assert teleop.motors(0.3) == Motors()
    teleop.feed(b'a', 0.4)
    assert teleop.motors(0.4).moving
    teleop.set_emergency(True)
    assert teleop.motors(0.4) == Motors(), 'engaged by another node'
    teleop.feed(b'r', 1.0)
    assert teleop.emergency, 'the driver has not confirmed the release'


def test_key_held_through_an_emergency_stop_does_nothing_until_let_go(teleop):
    teleop.set_emergency(True)
    for step in range(100):
        if step == 50:
            teleop.set_emergency(False)
        teleop.feed(b'b', step / 30)
        assert not teleop.motors(step / 30).moving
    now = 100 / 30 + FIRST
    teleop.feed(b'b', now)
    assert teleop.motors(now).base == 1


def test_terminal_with_key_releases(kitty):
    kitty.feed(b'\x1b[97;1:1u\x1b[103;1:1u', 1.0)
    for step in range(100, 500):
        # The keyboard repeats the last key only; the terminal answers.
        kitty.feed(b'\x1b[?11u' if step % 50 == 0 else b'\x1b[103;1:2u', step / 100)
        assert kitty.motors(step / 100) == Motors(gripper=1, base=-1), 'as long as they are held'
    kitty.feed(b'\x1b[97;1:3u', 6.0)
    assert kitty.motors(6.0) == Motors(base=-1)
    kitty.feed(b'\x1b[103;1:3u', 7.0)
    assert kitty.motors(7.0) == Motors()
    kitty.feed(b'\x1b[97;1:1u\x1b[122;1:1u\x1b[97;1:3u', 8.0)
    assert kitty.motors(9.0) == Motors(gripper=-1), 'the release of a replaced key'
    assert kitty.feed(b'\x1b[101;1:1u\x1b[101;1:2u\x1b[101;1:3u', 10.0) == ['stop']
    kitty.feed(b'\x1b[27;1:3u', 11.0)
    assert not kitty.quit, 'an action happens once per press'


def test_dead_link_releases_the_keys_of_a_terminal_with_key_releases(kitty):
    assert kitty.feed(b'\x1b[97;1:1u', 1.0) == ['ask']
    assert kitty.motors(2.4).moving
    assert not kitty.motors(2.5).moving
    asked = [now for now in np.arange(2.5, 60.0, 0.01).tolist() if 'ask' in kitty.feed(b'', now)]
    assert np.diff(asked) == pytest.approx(0.5, abs=0.02)
    kitty.feed(b'\x1b[97;1:2u', 60.0)
    assert not kitty.motors(60.0).moving, 'what was held back arrives late: a new press counts'
    # A terminal that answers, but sends no repeats, holds keys for a limited time.
    kitty.feed(b'\x1b[97;1:1u', 61.0)
    for now in np.arange(61.0, 70.0, 0.1).tolist():
        kitty.feed(b'\x1b[?11u', now)
        assert kitty.motors(now).moving == (now < 61.0 + HELD_S)


@pytest.mark.parametrize('data', [
    pytest.param(b'\x1b[?0u', id='no more reports of releases'),
    pytest.param(b'\x1b[1092;1:3u', id='release in another layout'),
])
def test_motors_go_off_when_the_release_of_a_held_key_cannot_be_known(kitty, data):
    kitty.feed(b'\x1b[1078;1:1u\x1b[97;1:1u\x1b[1078;1:3u', 1.0)
    assert kitty.motors(1.0) == Motors(gripper=1)
    kitty.feed(data, 1.1)
    assert kitty.motors(1.1) == Motors()


def test_held_key_needs_a_new_press_after_a_stop(kitty):
    kitty.feed(b'\x1b[97;1:1u', 1.0)
    kitty.feed(b'\x1b[32;1:1u', 2.0)
    kitty.feed(b'\x1b[97;1:2u', 3.0)
    assert kitty.motors(3.0) == Motors()
    kitty.feed(b'\x1b[97;1:3u\x1b[97;1:1u', 4.0)
    assert kitty.motors(4.0).moving


def test_terminal_with_part_of_the_protocol_counts_as_plain(teleop):
    assert teleop.feed(b'\x1b[?0u', 0.0) == ['enable']
    assert teleop.feed(b'\x1b[?1u', 0.1) == []
    assert not teleop.releases
    teleop.feed(b'a', 1.0)
    assert teleop.motors(1.0 + FIRST) == Motors()


SESSION = (b'a\x1b[?0uA\x1b[97;1:1u\x1b[97;1:2u\x1b[97;1:3u \x1bOPz\x1b]11;rgb:0/0/0\x07s'
           b'\x1b[200~aq\x1b[Ae\x1b[201~x\x1bP>|term\x1b\\d\x1b[1;5Dc\x1b[Og\x1bab\xc3\xa4\x1b[27u')
FOUND = [Key('a'), Flags(0), Key('a'), Key('a', 'press'), Key('a', 'repeat'), Key('a', 'release'),
         Key('space'), Key('z'), Key('s'), Key('x'), Key('d'), Key('c'), Key('focus-out', 'press'),
         Key('g'), Key('b'), Key('esc', 'press')]
CTRL_C = [Key('ctrl-c')]
SEQUENCES = {
    b'': [], b'\x1b': [Key('esc')], b'\x1b\x1b': [Key('esc')] * 2, b'\x03': CTRL_C,
    b'?': [Key('?')], b'\x00\x01\x7f\x80\xff\r\n\t': [], b'\x1b[A': [], b'\x1b[1;2P': [],
    b'\x1bOA': [], b'\x1ba': [], b'\x1b[I': [], b'\x1b\x03': CTRL_C, b'\x1b[\x03': CTRL_C,
    b'\x1b]52;\x03': CTRL_C, b'\x1b[200~a\x03': CTRL_C,
    # Shift, Caps Lock and Num Lock are no other key; Ctrl, Alt and Super are.
    b'\x1b[97;2u': [Key('a', 'press')], b'\x1b[97;193:1u': [Key('a', 'press')],
    b'\x1b[97:65;2:1;65u': [Key('a', 'press')], b'\x1b[97;5u': [], b'\x1b[97;3u': [],
    b'\x1b[97;9u': [], b'\x1b[97;5:3u': [Key('a', 'release')],
    b'\x1b[99;5u': [Key('ctrl-c', 'press')], b'\x1b[32u': [Key('space', 'press')],
    b'\x1b[1092;1:3u': [Key('ф', 'release')], b'\x1b[97;1:9u': [],
    b'\x1b[u': [], b'\x1b[;;u': [], b'\x1b[?u': [],
    b'\x1b[?11u': [Flags(11)], b'\x1b[?1;2c': [], b'\x1b[-97u': [],
    b'\x1b[9' + b'9' * 60 + b'u': []}


def keys(*pieces, step=0.01):
    """Return what the pieces, ``step`` seconds apart, and a long silence make."""
    keyboard, found = Keyboard(), []
    for number, piece in enumerate(pieces):
        found += keyboard.feed(piece, number * step)
    return found + keyboard.idle(len(pieces) * step + 10.0)


def test_sequences_are_parsed_whole_and_in_pieces():
    for data, expected in (*SEQUENCES.items(), (SESSION, FOUND)):
        assert keys(*(bytes([each]) for each in data)) == expected, data
        assert keys(data) == expected or data == SESSION, data
    rng = random.Random(0)
    for _ in range(20):
        cuts = list(itertools.accumulate(rng.choices(range(1, 12), k=len(SESSION))))
        pieces = [SESSION[a:b] for a, b in itertools.pairwise([0, *cuts])]
        assert keys(*pieces) == FOUND, pieces


def test_unfinished_sequence_is_dropped():
    for begin in (b'\x1b[', b'\x1b[1;', b'\x1b]11;', b'\x1bP', b'\x1bO'):
        keyboard = Keyboard()
        assert keyboard.feed(begin, 0.0) == []
        assert keyboard.feed(b'a', 0.2) == [Key('a')], begin
    keyboard = Keyboard()
    assert keyboard.feed(b'\x1b[200~ae', 0.0) == []
    assert keyboard.feed(b'r', 0.9) == []
    assert keyboard.feed(b'a', 2.0) == [Key('a')]


def test_pasted_text_gives_no_keys():
    assert keys(b'rm -rf everything\n') == [Key('space')] * 2
    assert keys(b'aaaaaaaa') == [Key('a')] * 8, 'a key that repeated between two reads'
    assert Key('r') not in keys(b'release the arm \x03')
    assert keys(b'release\x03')[-1] == Key('ctrl-c')


def test_after_random_noise_motors_go_off_and_keys_work():
    for seed in range(5):
        rng, teleop, now = random.Random(seed), Teleop(TeleopConfig()), 0.0
        for _ in range(1000):
            now += rng.choice([0.0, 0.01, 0.1])
            teleop.feed(rng.randbytes(rng.randrange(1, 100)) if rng.random() < 0.3 else bytes(
                rng.choices(b'\x1b[]OP?;:0123456789~u\x07\\azbgx\xff', k=30)), now)
            assert len(teleop._keyboard._buffer) <= 200, seed
        teleop.feed(b'', now + 5.0)
        teleop.feed(b'', now + 10.0)
        assert teleop.motors(now + 10.0) == Motors(lamp=teleop.lamp == 1), seed
        assert teleop._keyboard.feed(b'a', now + 10.0) == [Key('a')], seed
