"""YAML of a stranger: what is read is plain and as large as the file, the rest one line."""

import os

import pytest

from vdl_ros.common.plain_yaml import MAX_BYTES, YamlError, dump_yaml, parse_yaml, read_yaml


def test_plain_values_are_read_and_dates_are_text():
    assert parse_yaml('a: [1, 0x10, 1.5, yes, null, "b"]\n2: 2024-01-31\n') == {
        'a': [1, 16, 1.5, True, None, 'b'], 2: '2024-01-31'}
    assert parse_yaml('') is None
    shared = [1]
    assert parse_yaml(dump_yaml({'a': shared, 'b': shared})) == {'a': [1], 'b': [1]}


def test_values_that_are_shared_tagged_nested_or_too_large_are_refused_in_one_line(tmp_path):
    path = tmp_path / 'file.yaml'
    for text, line, reason in (
            ('a: &a [x]\nb: *a\n', 2, r'\*a is not allowed: the value itself'),
            ('&a [*a]', 1, r'\*a is not allowed'), ('a: &a {}\n<<: *a', 2, 'not allowed'),
            ('a: !!binary eA==', 1, 'could not determine a constructor'),
            ('!!python/object/apply:os.getcwd []', 1, 'could not determine a constructor'),
            ('1' + ':59' * 10**5, 1, 'a number of 300001 characters'), ('[' * 10**5, 1, ''),
            ('!!bool x', 1, ''), ('!!int ""', 1, ''), ('{[a]: b}', 1, 'unhashable'),
            ('*' + 'a' * 1000, 1, r'\.\.\.$'), ('a: \x00', 1, 'special characters'),
            ('#' * (MAX_BYTES + 1), 0, f'larger than {MAX_BYTES} bytes')):
        path.write_text(text)
        with pytest.raises(YamlError, match=reason) as caught:
            read_yaml(path)
        assert caught.value.line == line, text[:99]
        assert '\n' not in str(caught.value)
        assert len(str(caught.value)) < 300
    os.mkfifo(tmp_path / 'pipe')
    for name, reason in (('pipe', 'cannot be read: not a file'),
                         ('none', 'cannot be read: No such file')):
        with pytest.raises(YamlError, match=reason):
            read_yaml(tmp_path / name)
