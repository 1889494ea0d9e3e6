"""Mutations for tests of readers: of bytes, of settings, of the fields of ROS messages."""

import array
import contextlib
import resource
import string
import struct
from pathlib import Path

from vdl_ros.msg import Tensor

#: Values at which lengths, counts and numbers are likely to be wrong.
_LENGTHS = (0, 1, 4, 0x7F, 0xFF, 0xFFFF, 1 << 20, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_TEXTS = ('', 'x', 'x' * 300, 'x' * 70_000, 'two\nlines', '\x1b[2J', 'é', 'object', 'float32',
          'int64', 'bool', 'uint8', '../..', '{}', 'nan')
_DOUBLES = (0.0, -1.0, 1e9, -1e9, 1e38, 1e300, float('inf'), float('-inf'), float('nan'))


def pick(rng, among):
    return among[int(rng.integers(len(among)))]


@contextlib.contextmanager
def limited_memory(more):
    """Keep this process from mapping more than ``more`` bytes beyond what it has mapped."""
    lines = Path('/proc/self/status').read_text().splitlines()
    mapped = next(int(line.split()[1]) << 10 for line in lines if line.startswith('VmSize:'))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def mutated_bytes(data, rng):
    """Return bytes with one to eight changes: bits, bytes, lengths, cuts, repeats."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 9)) if rng.random() < 0.5 else 1):
        if not data:
            break
        mutate = mutate_value if rng.random() < 2 / 3 else mutate_length
        mutate(data, int(rng.integers(len(data))), rng)
    return bytes(data)


def mutate_value(data, at, rng):
    """Change one bit, byte, length or number of a bytearray, whose length stays."""
    how = rng.integers(6)
    if how == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif how < 3:
        data[at] = int(rng.integers(256))
    elif how < 5:
        at -= at % 4
        data[at:at + 4] = struct.pack('<I', pick(rng, _LENGTHS))[:len(data) - at]
    else:
        data[at:at + 8] = struct.pack('<d', pick(rng, _DOUBLES))[:len(data) - at]


def mutate_length(data, at, rng):
    """Cut a bytearray, or remove or repeat a part of it."""
    how, part = rng.integers(3), data[at:at + int(rng.integers(1, 65))]
    if how == 0:
        del data[at:]
    elif how == 1:
        del data[at:at + len(part)]
    else:
        data[at:at] = part * int(rng.integers(1, 9))


def mutated_settings(settings, rng):
    """Return a JSON object's values with one changed, removed, renamed or nested."""
    changed = dict(settings)
    name = pick(rng, list(changed))
    value = pick(rng, [*_LENGTHS, *_DOUBLES, *_TEXTS, -1, 10**400, None, True, [], {}, [[]],
                       {'a': {}}, list(settings)])
    how = rng.random()
    if how < 0.1:
        del changed[name]
    elif how < 0.2:
        changed[pick(rng, [*_TEXTS, name.upper()])] = value
    else:
        changed[name] = value
    return changed


def mutate_fields(message, rng):
    """Change a field of a message, or of one within it, in place."""
    kinds = message.get_fields_and_field_types()
    # Arrays more often: the other fields are numbers and names.
    arrays = [each for each, kind in kinds.items() if kind.startswith('sequence<')]
    name = pick(rng, [*kinds, *arrays * 5])
    kind, value = kinds[name], getattr(message, name)
    if kind.startswith('sequence<'):
        setattr(message, name, _mutated_sequence(message, name, kind, value, rng))
    elif hasattr(value, 'get_fields_and_field_types'):
        mutate_fields(value, rng)
    elif isinstance(value, str):
        setattr(message, name, pick(rng, _TEXTS) if rng.random() < 0.7 else ''.join(
            pick(rng, string.printable) for _ in range(int(rng.integers(40)))))
    elif isinstance(value, int):
        bits = int(''.join(filter(str.isdigit, kind)) or 8)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if not kind.startswith('u') else (
            0, (1 << bits) - 1)
        setattr(message, name, pick(rng, (0, 1, low, high, value + 1 if value < high else low)))


def _mutated_sequence(message, name, kind, value, rng):
    if kind == 'sequence<uint8>':
        value = bytearray(value)
        if not value or rng.random() < 0.3:
            return array.array('B', mutated_bytes(value, rng))
        mutate_value(value, int(rng.integers(len(value))), rng)
        return array.array('B', value)
    if kind == 'sequence<uint32>':
        return _mutated_shape(list(value), rng)
    value = list(value)
    how = rng.random()
    if not value:
        return [Tensor(name='x', dtype='uint8', shape=[1], data=b'1')] if name == 'tensors' else []
    at = int(rng.integers(len(value)))
    if how < 0.1:
        del value[at]
    elif how < 0.2:
        value.append(value[at])
    elif how < 0.25:
        value *= min(int(rng.integers(2, 1000)), 5000 // len(value) + 1)
    elif how < 0.35:
        value.reverse()
    else:
        mutate_fields(value[at], rng)
    return value


def _mutated_shape(shape, rng):
    how = rng.random()
    if how < 0.3 and shape:
        shape[int(rng.integers(len(shape)))] = pick(rng, _LENGTHS)
    elif how < 0.5 and shape:
        at = int(rng.integers(len(shape)))
        shape[at] = min(shape[at] + 1, (1 << 32) - 1)
    elif how < 0.6:
        shape.append(pick(rng, (0, 1, (1 << 32) - 1)))
    elif how < 0.7 and shape:
        shape.pop()
    elif how < 0.8:
        shape.reverse()
    elif how < 0.9:
        shape = [1] * int(rng.integers(2, 80)) + shape
    else:
        shape = [pick(rng, (0, 1, (1 << 32) - 1))] * int(rng.integers(1, 10_000))
    return array.array('I', shape)
