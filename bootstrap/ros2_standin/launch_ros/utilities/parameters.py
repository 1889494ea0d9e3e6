"""
What a launch file gives as parameters, made into names and values as a parameter file has them.

Texts stay texts.  What substitutions come to is read as YAML, so that an argument `rate:=2.5` is
a number.  Nested dictionaries make names with dots.  A list is of one type; in it, texts next to
substitutions are joined with them into one value, and a list in it is one item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from launch.launch_context import LaunchContext
from launch.substitution import Substitution
from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions

from ..parameter_descriptions import Parameter, ParameterFile, ParameterValue

Flat = list[tuple[list[Substitution], Any]]
Normalized = list[Flat | ParameterFile | Parameter]

_SCALARS = (bool, int, float, str, bytes)
_ADVICE = (
    'If the parameter is meant to be a string, try wrapping it in '
    'launch_ros.parameter_descriptions.ParameterValue(value, value_type=str)'
)


def normalize_parameters(parameters: Any) -> Normalized:
    """Check the parameters of a node as far as that can be done without a context."""
    if isinstance(parameters, str) or not isinstance(parameters, Sequence):
        raise TypeError(f'Expecting list of parameters, got {parameters}')
    return [
        flatten(item)
        if isinstance(item, Mapping)
        else item
        if isinstance(item, (Parameter, ParameterFile))
        else ParameterFile(item)
        for item in parameters
    ]


def flatten(parameters: Mapping[Any, Any], prefix: Sequence[Substitution] = ()) -> Flat:
    """Give the names, in full, and the values of nested dictionaries."""
    result: Flat = []
    for key, value in parameters.items():
        name = [*prefix, *normalize_to_list_of_substitutions(key)]
        if isinstance(value, Mapping):
            dot = normalize_to_list_of_substitutions('.')
            result += flatten(value, [*name, *dot])
        elif isinstance(value, (*_SCALARS, Substitution, ParameterValue, Sequence)):
            result.append((name, value))
        else:
            raise TypeError(f'Unexpected type for parameter value {value!r}')
    return result


def evaluate_parameters(context: LaunchContext, parameters: Normalized) -> list[Any]:
    """Work parameters out: dictionaries of values, paths of files, and Parameter as it is."""
    return [
        evaluate(context, item)
        if isinstance(item, list)
        else item.evaluate(context)
        if isinstance(item, ParameterFile)
        else item
        for item in parameters
    ]


def evaluate(context: LaunchContext, parameters: Flat) -> dict[str, Any]:
    """Work names and values out."""
    result = {}
    for name_parts, value in parameters:
        name = perform_substitutions(context, name_parts)
        result[name] = _evaluate_value(context, name, value)
    return result


def _evaluate_value(context: LaunchContext, name: str, value: Any) -> Any:
    if isinstance(value, ParameterValue):
        return value.evaluate(context)
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Substitution):
        return _read_yaml(name, context.perform_substitution(value))
    return _evaluate_list(context, name, value)


def _evaluate_list(context: LaunchContext, name: str, items: Sequence[Any]) -> Any:
    if any(isinstance(item, Substitution) for item in items) and all(
        isinstance(item, (Substitution, str)) for item in items
    ):
        parts = normalize_to_list_of_substitutions(items)
        return _read_yaml(name, perform_substitutions(context, parts))
    types = {type(item) for item in items}
    if types == {int, float}:
        return [float(item) for item in items]
    values = [
        item
        if isinstance(item, _SCALARS)
        else yaml.safe_load(
            perform_substitutions(context, normalize_to_list_of_substitutions(item))
        )
        for item in items
    ]
    return _check_list(name, values)


def _check_list(name: str, values: list[Any]) -> list[Any]:
    allowed = (bool, int, float, str)
    if not values or type(values[0]) not in allowed or len({type(v) for v in values}) > 1:
        raise TypeError(
            'Expected a non-empty sequence, with items of uniform type. Allowed sequence item '
            f'types are bool, int, float, str. Got inconsistent input for "{name}"'
        )
    return values


def _read_yaml(name: str, text: str) -> Any:
    try:
        # Nothing at all is an empty text rather than YAML's null.
        value = yaml.safe_load(text) if text else ''
    except yaml.YAMLError:
        raise TypeError(
            f'Unable to parse the value of parameter {name} as yaml. {_ADVICE}'
        ) from None
    if isinstance(value, list):
        return _check_list(name, value)
    if not isinstance(value, _SCALARS):
        raise TypeError(
            'Allowed value types are bytes, bool, int, float, str, Sequence[bool], '
            f'Sequence[int], Sequence[float], Sequence[str]. Got {type(value)} for "{name}". '
            f'{_ADVICE}'
        )
    return value


def to_command_line(value: Any) -> str:
    """Write a value the way `-p name:=value` reads it back with the same type."""
    text = yaml.safe_dump(value, default_flow_style=True, width=float('inf'))
    return text.removesuffix('\n').removesuffix('\n...')
