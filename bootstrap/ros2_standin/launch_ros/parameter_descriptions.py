"""ParameterValue: a parameter of a node with the type that it must have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml
from launch._core import ADVICE, LaunchContext, Substitution, normalize, perform

__all__ = ['ParameterValue']

_SCALARS = (bool, int, float, str)


class ParameterValue:
    """A value of a type.

    Args:
        value: bool, int, float, text, a list of one of these, a substitution, or a list with
            substitutions, which are joined.
        value_type: bool, int, float or str; None: as YAML reads it.

    Raises:
        TypeError: another type, or a value that is not of this type.
    """

    def __init__(self, value: Any, *, value_type: Any = None) -> None:
        if value_type not in (None, *_SCALARS):
            raise TypeError(f'value_type={value_type!r} {ADVICE}')
        self.value = [value] if isinstance(value, Substitution) else value
        self.value_type = value_type
        self._is_text = _has_substitution(self.value)
        if not self._is_text and value_type is not None and not isinstance(value, value_type):
            raise TypeError(f'parameter value {value!r} is no {value_type.__name__}')

    def evaluate(self, context: LaunchContext) -> Any:
        """Return the value.

        Raises:
            ValueError: the text cannot be read as the type.
            TypeError: not a value that a parameter can have.
        """
        if not self._is_text:
            return _checked(self.value)
        text = perform(context, normalize(self.value))
        if self.value_type is str or not text:
            return text
        if self.value_type in (int, float):
            return self.value_type(text)
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise TypeError(f'parameter value {text!r} is not YAML; for a text use '
                            'ParameterValue(..., value_type=str)') from None
        if self.value_type is bool and not isinstance(value, bool):
            raise ValueError(f'parameter value {text!r} is no bool')
        return _checked(value)


def _has_substitution(value: Any) -> bool:
    return (isinstance(value, Iterable) and not isinstance(value, str)
            and any(isinstance(item, Substitution) for item in value))


def _checked(value: Any) -> Any:
    """Return a scalar, or a list of scalars of one type; raise TypeError for anything else."""
    if isinstance(value, _SCALARS):
        return value
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise TypeError(f'parameter value {value!r} is neither bool, int, float, text nor a list '
                        'of these')
    types = {type(item) for item in value}
    if types == {int, float}:
        return [float(item) for item in value]
    if len(types) != 1 or not types <= {*_SCALARS}:
        raise TypeError(f'parameter value {value!r}: items must be of one type, and not none')
    return list(value)
