"""ParameterValue: a parameter of a node with the type that it must have."""

from typing import Any

import yaml
from launch._core import ADVICE, LaunchContext, Substitution, normalize, perform

_SCALARS = (bool, int, float, str)


class ParameterValue:
    """A value of a type.

    Args:
        value: bool, int, float, text, a list of one of these, a substitution, or a list with
            substitutions, which are joined.
        value_type: bool, int, float or str; None: as YAML reads it.
    """

    def __init__(self, value: Any, *, value_type: Any = None) -> None:
        if value_type not in (None, *_SCALARS):
            raise TypeError(f'value_type={value_type!r} {ADVICE}')
        self.value = [value] if isinstance(value, Substitution) else value
        self.value_type = value_type
        self._is_text = isinstance(self.value, (list, tuple)) and any(
            isinstance(item, Substitution) for item in self.value)

    def evaluate(self, context: LaunchContext) -> Any:
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


def _checked(value: Any) -> Any:
    """Return a scalar, or a list of scalars of one type; raise TypeError for anything else."""
    if isinstance(value, _SCALARS):
        return value
    types = {type(item) for item in value} if isinstance(value, (list, tuple)) else set()
    if types == {int, float}:
        return [float(item) for item in value]
    if len(types) != 1 or not types <= {*_SCALARS}:
        raise TypeError(f'parameter value {value!r} is neither bool, int, float, text nor a list '
                        'of one of these')
    return list(value)
