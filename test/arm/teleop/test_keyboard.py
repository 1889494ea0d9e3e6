"""Parser of terminal input: whole, in pieces, and with random noise."""

import itertools
import random

from vdl_ros.arm.teleop.keyboard import Flags, Key, Keyboard

SESSION = (b'a\x1b[?0uA\x1b[97;1:1u\x1b[97;1:2u\x1b[97;1:3u \x1bOPz\x1b]11;rgb:0/0/0\x07s'
           b'\x1b[200~aq\x1b[Ae\x1b[201~x\x1bP>|term\x1b\\d\x1b[1;5Dc\x1b[Og\x1bab\xc3\xa4\x1b[27u')
KEYS = [Key('a'), Flags(0), Key('a'), Key('a', 'press'), Key('a', 'repeat'), Key('a', 'release'),
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
    b'\x1b[57441u': [], b'\x1b[97;1:9u': [], b'\x1b[u': [], b'\x1b[;;u': [], b'\x1b[?u': [],
    b'\x1b[?11u': [Flags(11)], b'\x1b[?1;2c': [], b'\x1b[-97u': [],
    b'\x1b[9' + b'9' * 60 + b'u': []}


def keys(*pieces, step=0.01):
    """Return what the pieces, ``step`` seconds apart, and a long silence make."""
    keyboard, found = Keyboard(), []
    for number, piece in enumerate(pieces):
        found += keyboard.feed(piece, number * step)
    return found + keyboard.idle(len(pieces) * step + 10.0)


def test_sequences_are_parsed_whole_and_in_pieces():
    for data, expected in (*SEQUENCES.items(), (SESSION, KEYS)):
        assert keys(*(bytes([each]) for each in data)) == expected, data
        assert keys(data) == expected or data == SESSION, data
    rng = random.Random(0)
    for _ in range(20):
        cuts = list(itertools.accumulate(rng.choices(range(1, 12), k=len(SESSION))))
        pieces = [SESSION[a:b] for a, b in itertools.pairwise([0, *cuts])]
        assert keys(*pieces) == KEYS, pieces


def test_unfinished_sequence_is_dropped():
    for begin in (b'\x1b[', b'\x1b[1;', b'\x1b]11;', b'\x1bP', b'\x1bO'):
        keyboard = Keyboard()
        assert keyboard.feed(begin, 0.0) == []
        assert keyboard.feed(b'a', 0.2) == [Key('a')], begin
    keyboard = Keyboard()
    assert keyboard.feed(b'\x1b[200~ae', 0.0) == []
    assert keyboard.feed(b'r', 0.9) == []
    assert keyboard.feed(b'a', 2.0) == [Key('a')]


def test_lone_escape_is_a_key_after_a_timeout():
    keyboard = Keyboard()
    assert keyboard.feed(b'\x1b', 0.0) == []
    assert [keyboard.idle(at) for at in (0.05, 0.11, 0.2)] == [[], [Key('esc')], []]


def test_pasted_text_gives_no_keys():
    assert keys(b'rm -rf everything\n') == [Key('space')] * 2
    assert keys(b'aaaaaaaa') == [Key('a')] * 8, 'a key that repeated between two reads'
    assert Key('r') not in keys(b'release the arm \x03')
    assert keys(b'release\x03')[-1] == Key('ctrl-c')


def test_keyboard_works_after_random_noise():
    for seed in range(5):
        rng = random.Random(seed)
        keyboard, now = Keyboard(), 0.0
        for _ in range(1000):
            now += rng.choice([0.0, 0.01])
            if rng.random() < 0.5:
                data = rng.randbytes(rng.randrange(1, 100))
            else:
                data = bytes(rng.choices(b'\x1b[]OP?;:0123456789~u\x07\\abc\x03', k=30))
            keyboard.feed(data, now)
            assert len(keyboard._buffer) <= 200, seed
        keyboard.idle(now + 5.0)
        keyboard.idle(now + 10.0)
        assert keyboard.feed(b'a', now + 11.0) == [Key('a')], seed
