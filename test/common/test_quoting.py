"""Text from strangers is printed in one line, without control characters, and not at length."""

import numpy as np
import pytest

from vdl_ros.common.quoting import quoted, shown


@pytest.mark.parametrize(('value', 'text'), [
    ('elbow', "'elbow'"), ('', "''"), (3, '3'), ("it's", '"it\'s"'),
    ('x\x1b[2J\n[FATAL] forged', r"'x\x1b[2J\n[FATAL] forged'"),
    ('\u202eabc\x9b', r"'\u202eabc\x9b'")])
def test_a_value_is_quoted_with_its_control_characters_escaped(value, text):
    assert quoted(value) == text


@pytest.mark.parametrize('value', ['a' * 79, '\n' * 60, 'a' * 10**8, b'b' * 100, list(range(99))])
def test_a_long_value_is_cut(value):
    text = quoted(value)
    assert len(text) == 80
    assert text.endswith('...')


def test_a_value_of_the_longest_length_is_whole():
    assert quoted('a' * 78) == repr('a' * 78)
    assert quoted('abcdef', 6) == "'ab..."


@pytest.mark.parametrize(('text', 'limit', 'printed'), [
    ('/arm/teleop', 80, '/arm/teleop'), ('', 80, ''), ('déjà vu', 80, 'déjà vu'),
    ('a\x1b[2J\n[FATAL] b', 80, r"'a\x1b[2J\n[FATAL] b'"), ('a\u202eb', 80, r"'a\u202eb'"),
    ('abcdefg', 6, "'ab..."), ('x' * 10**7, 80, f"'{'x' * 76}...")])
def test_only_a_short_printable_text_is_shown_without_quotes(text, limit, printed):
    assert shown(text, limit) == printed


def test_a_value_whose_repr_has_several_lines_is_quoted_in_one():
    assert quoted(np.zeros((2, 1))) == 'array([[0.],        [0.]])'
