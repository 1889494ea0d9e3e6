"""Fields of messages that a contract names: their types are checked once, then read or written."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from vdl_ros.bags.reader import BagError
from vdl_ros.common.settings import suggestion
from vdl_ros.robots import contract as contracts
from vdl_ros.robots.contract import ContractError
from vdl_ros.robots.readings import follow, named, read_feature
from vdl_ros.ros.bags.bag_writer import message_class

_NUMBERS = {'double', 'float', 'boolean', 'octet', *(
    f'{sign}int{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64))}
_SEQUENCE = re.compile(r'sequence<([^,>]*)(?:, \d+)?>|([^\[\]]*)\[\d+\]')


def resolve_type(where: str, type_name: str, kind: str = 'msg') -> Any:
    try:
        return message_class(type_name, kind)
    except BagError as error:
        raise ContractError(f'{where}: {error}') from None


def feature_reader(where: str, kind: Any, feature: contracts.Feature) -> Callable[[Any], float]:
    """Return the function that reads a feature from a message, as :func:`read_feature` does."""
    found = _type_of(where, kind, feature.field)
    item = _SEQUENCE.fullmatch(found)
    if feature.convert:
        _check(where, feature.field, found, 'geometry_msgs/Quaternion' in found,
               f'a quaternion, for {feature.convert}')
    elif feature.key or feature.index >= 0:
        _check(where, feature.field, found,
               item is not None and (item[1] or item[2]) in _NUMBERS, 'numbers, for key or index')
    else:
        _check(where, feature.field, found, found in _NUMBERS,
               'a number; of several, index or key chooses one')
    if feature.key and 'name' not in kind.get_fields_and_field_types():
        raise ContractError(f'{where}: key: {feature.key!r} is not allowed: {kind.__name__} has '
                            'no field "name"')
    return partial(read_feature, feature)


def field_reader(where: str, kind: Any, field: str) -> Callable[[Any], Any]:
    found = _type_of(where, kind, field)
    _check(where, field, found, found in _NUMBERS or found == 'string', 'a number or a text')
    return partial(follow, path=field)


def number_reader(where: str, kind: Any, field: str, index: int) -> Callable[[Any], float]:
    """Return the function that reads a number, 0 if it has no such ``index``."""
    found = _type_of(where, kind, field)
    item = _SEQUENCE.fullmatch(found)
    number = (item[1] or item[2]) if item is not None and index >= 0 else found
    _check(where, field, found, number in _NUMBERS and (index < 0) == (item is None),
           'a number; of several, index chooses one')

    def read(message: Any) -> float:
        value = follow(message, field)
        if index >= 0:
            value = value[index] if index < len(value) else 0.0
        return float(value)

    return read


def part_writer(where: str, kind: Any, part: contracts.ActionPart) -> Callable[[Any, float], None]:
    """Return the function that writes a part of an action, as ``read_part`` reads it."""
    if not part.key:
        return scaled(part.scale, field_writer(where, kind, part.field, part.index))
    point = message_class('trajectory_msgs/msg/JointTrajectoryPoint') if kind.__name__ == (
        'JointTrajectory') else None
    if point is None and 'name' not in kind.get_fields_and_field_types():
        raise ContractError(f'{where}: key: {part.key!r} is not allowed: {kind.__name__} has '
                            'neither name nor joint_names')
    write_at = _writer(where, point or kind, part.field, several=True)

    def write(message: Any, value: float) -> None:
        if point is not None and not message.points:
            message.points.append(point())
        names, holder = named(message)
        if part.key not in names:
            names.append(part.key)
        write_at(holder, value / part.scale, names.index(part.key))

    return write


def scaled(
    scale: float, write: Callable[[Any, float], None],
) -> Callable[[Any, float], None]:
    """Return the function that writes what, times ``scale``, is the number."""
    return lambda message, value: write(message, value / scale)


def field_writer(where: str, kind: Any, field: str, index: int) -> Callable[[Any, float], None]:
    """Return the function that writes a number to a field, or to a place in it unless -1."""
    return partial(_writer(where, kind, field, several=index >= 0), index=index)


def _writer(where: str, kind: Any, field: str, *, several: bool) -> Callable[..., None]:
    found = _type_of(where, kind, field)
    item = _SEQUENCE.fullmatch(found)
    number = (item[1] or item[2]) if item is not None and several else found
    _check(where, field, found, number in _NUMBERS and several == (item is not None),
           'a number; of several, index or key chooses one')
    convert: Callable[[float], Any] = (
        bool if number == 'boolean' else float if number in ('double', 'float') else round)

    def write(message: Any, value: float, index: int) -> None:
        if not several:
            write_field(message, field, convert(value))
            return
        values = follow(message, field)
        while len(values) <= index:
            values.append(convert(0.0))
        values[index] = convert(value)

    return write


def write_field(message: Any, field: str, value: Any) -> None:
    *parents, last = field.split('.')
    for name in parents:
        message = getattr(message, name)
    setattr(message, last, value)


def _type_of(where: str, kind: Any, field: str) -> str:
    """Return the type at the end of a dotted path."""
    names, found = field.split('.'), ''
    for depth, name in enumerate(names):
        if kind is None:
            raise ContractError(f'{where}: field: {field!r} is not allowed: '
                                f'{".".join(names[:depth])} is {found}')
        known = kind.get_fields_and_field_types()
        if name not in known:
            raise ContractError(f'{where}: field: {field!r} is not allowed: {kind.__name__} has '
                                f'{", ".join(known)}{suggestion(name, known)}')
        found = known[name]
        package, _, short = found.partition('/')
        kind = message_class(f'{package}/msg/{short}') if short and '<' not in found \
            and '[' not in found else None
    return found


def _check(where: str, field: str, found: str, good: bool, allowed: str) -> None:
    if not good:
        raise ContractError(
            f'{where}: field: {field!r} is {found}, which is not allowed: {allowed}')
