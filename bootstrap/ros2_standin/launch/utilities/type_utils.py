"""
Typed values out of texts: how `value_type`, `respawn` and the like read what they are given.

A value comes in as a scalar, as substitutions, or as a list of either.  It is checked when the
launch file is loaded and worked out when it is needed, by YAML's rules unless a type is asked for.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._unknown import unknown_attributes
from ..substitution import Substitution
from . import normalize_to_list_of_substitutions, perform_substitutions

if TYPE_CHECKING:
    from ..launch_context import LaunchContext

SCALARS = (int, float, bool, str)


def extract_type(data_type: Any) -> tuple[Any, bool]:
    """Give the scalar type that a type is made of, and whether it is a list of it."""
    is_list = typing.get_origin(data_type) is list
    scalar = typing.get_args(data_type)[0] if is_list else data_type
    if scalar not in SCALARS:
        raise ValueError(f'Unrecognized data type: {data_type}')
    return scalar, is_list


def is_substitution(value: Any) -> bool:
    """Say whether a value is a substitution or texts and substitutions to be joined."""
    if isinstance(value, Substitution):
        return True
    if isinstance(value, str) or not isinstance(value, Iterable):
        return False
    items = list(value)
    return any(isinstance(item, Substitution) for item in items) and all(
        isinstance(item, (str, Substitution)) for item in items
    )


def normalize_typed_substitution(value: Any, data_type: Any) -> Any:
    """
    Check a value against a type and turn the substitutions in it into lists of them.

    Substitutions come out as a list of Substitution, everything else as it is.
    """
    if isinstance(value, SCALARS):
        if data_type is not None and not _is_instance(value, data_type):
            raise TypeError(f"value='{value}' is not an instance of {data_type}")
        return value
    if is_substitution(value):
        return normalize_to_list_of_substitutions(value)
    if not isinstance(value, Iterable):
        raise TypeError(
            'value should be either a scalar, a substitution, or a list of them, '
            f"got '{value}' of type '{type(value)}'"
        )
    scalar = None
    if data_type is not None:
        scalar, is_list = extract_type(data_type)
        if not is_list:
            raise TypeError(f"got the list '{value}' where '{data_type}' is needed")
    items = [
        normalize_to_list_of_substitutions(item) if is_substitution(item) else item
        for item in value
    ]
    plain = [item for item in items if not isinstance(item, list)]
    if any(not isinstance(item, SCALARS) for item in plain):
        raise TypeError(
            'value is a list, and one of the items is not a scalar, a Substitution or a list of '
            f"substitutions. Got value='{value}'"
        )
    types = {type(item) for item in plain}
    if types == {int, float}:
        types = {float}
        items = [float(item) if isinstance(item, int) else item for item in items]
    if len(types) > 1 or (scalar is not None and not types <= {scalar}):
        raise TypeError(f"Got a list that is not one of '{data_type}'. value='{value}'")
    return items


def coerce_to_type(value: str, data_type: Any = None) -> Any:
    """Read a text as a value of a type, or by YAML's rules if that is None."""
    if data_type is None:
        return _read_yaml(value)
    scalar, is_list = extract_type(data_type)
    if is_list:
        items = _read_yaml(value)
        if not isinstance(items, list) or not all(isinstance(item, scalar) for item in items):
            raise ValueError(f"Cannot convert value '{value}' to a list of '{scalar}'")
        return items
    if scalar is bool:
        result = _read_yaml({'1': 'true', '0': 'false'}.get(value, value))
        if not isinstance(result, bool):
            raise ValueError(f"Cannot convert value '{value}' to '{scalar}'")
        return result
    return scalar(value)


def perform_typed_substitution(context: LaunchContext, value: Any, data_type: Any) -> Any:
    """Work out a value that was normalized for the same type."""
    if isinstance(value, SCALARS):
        return value
    if _is_normalized(value):
        return coerce_to_type(perform_substitutions(context, value), data_type)
    scalar = None if data_type is None else extract_type(data_type)[0]
    result = [
        coerce_to_type(perform_substitutions(context, item), scalar)
        if _is_normalized(item)
        else item
        for item in value
    ]
    if len({type(item) for item in result}) > 1:
        raise ValueError(f'The output list is not uniform: {result}')
    return result


def _is_normalized(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Substitution)


def _is_instance(value: Any, data_type: Any) -> bool:
    scalar, is_list = extract_type(data_type)
    return not is_list and isinstance(value, scalar)


def _read_yaml(text: str) -> Any:
    # An empty text stays one, where YAML would make it null.
    if not text:
        return text
    import yaml

    try:
        result = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"Failed to convert '{text}' using yaml rules: {error}") from error
    items = result if isinstance(result, list) else [result]
    if any(type(item) not in SCALARS or type(item) is not type(items[0]) for item in items):
        raise ValueError(
            f"Failed to convert '{text}' using yaml rules: "
            f'output type is not allowed, got {type(result)}'
        )
    return result


__getattr__ = unknown_attributes(__name__)
