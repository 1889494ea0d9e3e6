"""Text from strangers is printed in one line, without control characters, and not at length."""

import numpy as np

from vdl_ros.common.quoting import cause, in_one_line, quoted, shown


def test_a_value_is_quoted_in_one_short_line_with_its_control_characters_escaped():
    for value, text in (
            ('elbow', "'elbow'"), ('', "''"), (3, '3'), ("it's", '"it\'s"'),
            ('x\x1b[2J\n[FATAL] forged', r"'x\x1b[2J\n[FATAL] forged'"),
            ('\u202eabc\x9b', r"'\u202eabc\x9b'"), ('a' * 78, repr('a' * 78)),
            (np.zeros((2, 1)), 'array([[0.],        [0.]])')):
        assert quoted(value) == text
    shared = ['x'] * 10
    for _ in range(99):  # 10**100 texts
        shared = [shared] * 10
    itself = [{'a': ('b',)}, *shared]
    itself.append(itself)
    for value in ('a' * 79, '\n' * 60, 'a' * 10**8, b'b' * 100, list(range(99)), shared, itself):
        text = quoted(value)
        assert (len(text), text[-3:]) == (80, '...')
    for value in ((), (1,), (1, 2.0), [], {}, {'a': [None, ('b',)], 2: {}}):
        assert quoted(value) == repr(value)
    assert quoted('abcdef', 6) == "'ab..."


class NoTextError(ValueError):
    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


class Nameless(type):
    def __getattribute__(cls, name):
        raise RuntimeError


class NoAttributeError(Exception, metaclass=Nameless):
    def __getattribute__(self, name):
        raise RuntimeError


def test_an_error_or_a_value_without_a_text_is_named_by_its_kind():
    text = '<NoTextError whose text raises RuntimeError>'
    assert cause(NoTextError()) == f'NoTextError: {text}'
    assert in_one_line(NoTextError()) == quoted(NoTextError()) == text
    # Not by pytest, which asks it for what it is.
    assert cause(NoAttributeError('lost')) == 'NoAttributeError: lost'


def test_only_a_short_printable_text_is_shown_without_quotes():
    for text, limit, printed in (
            ('/arm/teleop', 80, '/arm/teleop'), ('', 80, ''), ('déjà vu', 80, 'déjà vu'),
            ('a\x1b[2J\n[FATAL] b', 80, r"'a\x1b[2J\n[FATAL] b'"),
            ('a\u202eb', 80, r"'a\u202eb'"), ('abcdefg', 6, "'ab..."),
            ('x' * 10**7, 80, f"'{'x' * 76}...")):
        assert shown(text, limit) == printed
