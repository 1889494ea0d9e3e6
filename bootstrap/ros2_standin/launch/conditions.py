"""Conditions on actions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ._unknown import unknown_attributes
from .condition import Condition
from .launch_context import LaunchContext
from .some_substitutions_type import SomeSubstitutionsType
from .substitution import Substitution
from .utilities import normalize_to_list_of_substitutions, perform_substitutions

__all__ = [
    'IfCondition',
    'InvalidConditionExpressionError',
    'LaunchConfigurationEquals',
    'LaunchConfigurationNotEquals',
    'UnlessCondition',
    'evaluate_condition_expression',
]

_TRUTH = {'true': True, '1': True, 'false': False, '0': False}


class InvalidConditionExpressionError(ValueError):
    """The text of a condition is neither true nor false."""


def evaluate_condition_expression(
    context: LaunchContext, expression: Sequence[Substitution]
) -> bool:
    """Read the text that substitutions come to as true or false."""
    text = perform_substitutions(context, expression).strip().lower()
    if text not in _TRUTH:
        origin = ' + '.join(str(substitution) for substitution in expression)
        raise InvalidConditionExpressionError(
            f"invalid condition expression, expected one of [{', '.join(_TRUTH)}] "
            f"but got '{text}', expanded from '{origin}'"
        )
    return _TRUTH[text]


class IfCondition(Condition):
    """Met if an expression comes to `true` or `1`."""

    def __init__(self, predicate_expression: SomeSubstitutionsType) -> None:
        """Keep the expression."""
        self._expression = normalize_to_list_of_substitutions(predicate_expression)
        super().__init__(predicate=self._is_met)

    def _is_met(self, context: LaunchContext) -> bool:
        return evaluate_condition_expression(context, self._expression)


class UnlessCondition(IfCondition):
    """Met if an expression comes to `false` or `0`."""

    def _is_met(self, context: LaunchContext) -> bool:
        return not super()._is_met(context)


class LaunchConfigurationEquals(Condition):
    """Met if a launch configuration has a value, or with None if it is not set."""

    def __init__(
        self, launch_configuration_name: str, expected_value: SomeSubstitutionsType | None
    ) -> None:
        """Keep the name and the value."""
        warnings.warn(
            'LaunchConfigurationEquals and LaunchConfigurationNotEquals are deprecated: use '
            'IfCondition with EqualsSubstitution or NotEqualsSubstitution',
            UserWarning,
            stacklevel=2,
        )
        self._name = launch_configuration_name
        self._expected = (
            None
            if expected_value is None
            else normalize_to_list_of_substitutions(expected_value)
        )
        super().__init__(predicate=self._is_met)

    def _is_met(self, context: LaunchContext) -> bool:
        expected = (
            None if self._expected is None else perform_substitutions(context, self._expected)
        )
        return context.launch_configurations.get(self._name) == expected


class LaunchConfigurationNotEquals(LaunchConfigurationEquals):
    """Met if a launch configuration does not have a value, or with None if it is set."""

    def _is_met(self, context: LaunchContext) -> bool:
        return not super()._is_met(context)


__getattr__ = unknown_attributes(__name__)
