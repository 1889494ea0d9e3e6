"""
Types and fields that a contract names: resolved once, from the installed interface packages.

Nothing that comes over the graph chooses a type. What a message holds is checked at each reading.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ament_index_python.resources import get_resource

from vdl_ros.bags.reader import BagError
from vdl_ros.common.settings import suggestion
from vdl_ros.robots.contract import Contract, ContractError, Feature
from vdl_ros.robots.reading import follow, read_feature
from vdl_ros.ros.bags.message_types import message_class

__all__ = [
    'feature_reader', 'field_reader', 'field_writer', 'has_field', 'resolve_message',
    'resolve_service']

_NUMBERS = {'double', 'float', 'boolean', 'octet', *(
    f'{sign}int{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64))}
_SEQUENCE = re.compile(r'sequence<([^,>]*)(?:, \d+)?>|([^\[\]]*)\[\d+\]')


def resolve_message(contract: Contract, place: str, type_name: str) -> Any:
    """
    Return the class of a message.

    Args:
        contract: for errors.
        place: key of the contract that names it.
        type_name: ``package/msg/Name``.

    Raises:
        ContractError: it is not installed here.
    """
    try:
        return message_class(type_name)
    except BagError as error:
        raise ContractError(f'{contract.name}.yaml: {place}: {error}') from None


def resolve_service(contract: Contract, place: str, type_name: str) -> Any:
    """
    Return the class of a service, ``package/srv/Name``.

    Raises:
        ContractError: it is not installed here.
    """
    package, _, name = type_name.split('/')
    try:
        interfaces, _ = get_resource('rosidl_interfaces', package)
        if f'srv/{name}.srv' in interfaces.splitlines():
            return getattr(importlib.import_module(f'{package}.srv'), name)
    except (LookupError, OSError, ImportError, AttributeError):
        pass
    raise ContractError(f'{contract.name}.yaml: {place}: {type_name!r}: no such service is '
                        'installed here')


def has_field(kind: Any, name: str) -> bool:
    """Return whether a message has a field of this name."""
    return name in kind.get_fields_and_field_types()


def feature_reader(
    contract: Contract, place: str, kind: Any, feature: Feature,
) -> Callable[[Any], float]:
    """
    Return the function that reads a feature from a message.

    The function raises ReadingError where the message does not have it as a finite number; of an
    optional feature it returns NaN then.

    Raises:
        ContractError: the message has no such field, or it is not a number.
    """
    _, found = _path(contract, place, kind, feature.field)
    item = _SEQUENCE.fullmatch(found)
    chosen = bool(feature.key) or feature.index >= 0
    if feature.convert:
        _check(contract, place, feature.field, found, 'geometry_msgs/Quaternion' in found,
               f'a quaternion, for {feature.convert}')
    else:
        _check(contract, place, feature.field, found,
               (item is not None and (item[1] or item[2]) in _NUMBERS) if chosen
               else found in _NUMBERS, 'numbers, for key or index' if chosen
               else 'a number; of several, index or key chooses one')
    if feature.key and not has_field(kind, 'name'):
        raise ContractError(f'{contract.name}.yaml: {place}: key: {feature.key!r} is not allowed: '
                            f'{kind.__name__} has no field "name"')

    return partial(read_feature, feature)


def field_reader(contract: Contract, place: str, kind: Any, field: str) -> Callable[[Any], Any]:
    """
    Return the function that reads a field, a number or a text.

    Raises:
        ContractError: the message has no such field.
    """
    get, found = _path(contract, place, kind, field)
    _check(contract, place, field, found, found in _NUMBERS or found == 'string',
           'a number or a text')
    return get


def field_writer(
    contract: Contract, place: str, kind: Any, field: str, index: int = -1,
) -> Callable[[Any, float], None]:
    """
    Return the function that writes a number to a field.

    Args:
        contract: for errors.
        place: key of the contract that names it.
        kind: class of the message.
        field: dotted path.
        index: place in the field, if it holds several numbers; else -1.

    Raises:
        ContractError: the message has no such field, or it is not a number.
    """
    get, found = _path(contract, place, kind, field)
    item = _SEQUENCE.fullmatch(found)
    number = (item[1] or item[2]) if item is not None and index >= 0 else found
    _check(contract, place, field, found, number in _NUMBERS and (index < 0) == (item is None),
           'a number; of several, index chooses one')
    *parents, last = field.split('.')
    whole = number not in ('double', 'float')

    def write(message: Any, value: float) -> None:
        converted: Any = (bool(value) if number == 'boolean' else
                          round(value) if whole else float(value))
        if index < 0:
            for name in parents:
                message = getattr(message, name)
            setattr(message, last, converted)
            return
        values = get(message)
        while len(values) <= index:
            values.append(type(converted)())
        values[index] = converted

    return write


def _path(
    contract: Contract, place: str, kind: Any, field: str,
) -> tuple[Callable[[Any], Any], str]:
    """Return the function that follows a dotted path, and the type at its end."""
    names = field.split('.')
    found = ''
    for depth, name in enumerate(names):
        if kind is None:
            raise ContractError(f'{contract.name}.yaml: {place}: field: {field!r} is not allowed: '
                                f'{".".join(names[:depth])} is {found}')
        known = kind.get_fields_and_field_types()
        if name not in known:
            raise ContractError(
                f'{contract.name}.yaml: {place}: field: {field!r} is not allowed: {kind.__name__} '
                f'has {", ".join(known)}{suggestion(name, known)}')
        found = known[name]
        package, _, short = found.partition('/')
        kind = message_class(f'{package}/msg/{short}') if short and '<' not in found \
            and '[' not in found else None

    return partial(follow, path=field), found


def _check(
    contract: Contract, place: str, field: str, found: str, good: bool, allowed: str,
) -> None:
    if not good:
        raise ContractError(f'{contract.name}.yaml: {place}: field: {field!r} is {found}, which '
                            f'is not allowed: {allowed}')

