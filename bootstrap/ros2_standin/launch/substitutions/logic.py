"""Substitutions that compare and combine truth values, and choose by them."""

from __future__ import annotations

import math
from typing import Any

from ..launch_context import LaunchContext
from ..some_substitutions_type import SomeSubstitutionsType
from ..substitution import Substitution
from ..utilities import normalize_to_list_of_substitutions, perform_substitutions
from ..utilities.type_utils import is_substitution, perform_typed_substitution
from .values import SubstitutionFailure


def _truth(context: LaunchContext, value: list[Substitution]) -> bool:
    try:
        return perform_typed_substitution(context, value, bool)
    except (TypeError, ValueError) as error:
        raise SubstitutionFailure(str(error)) from error


def _text(value: bool) -> str:
    return 'true' if value else 'false'


class NotSubstitution(Substitution):
    """True if the operand is false."""

    def __init__(self, value: SomeSubstitutionsType) -> None:
        """Keep the operand."""
        self.value = normalize_to_list_of_substitutions(value)

    def describe(self) -> str:
        """Give the operand."""
        return f'NotSubstitution({self.value})'

    def perform(self, context: LaunchContext) -> str:
        """Negate the operand."""
        return _text(not _truth(context, self.value))


class AllSubstitution(Substitution):
    """True if all operands are."""

    def __init__(self, *args: SomeSubstitutionsType) -> None:
        """Keep the operands."""
        self.args = [normalize_to_list_of_substitutions(arg) for arg in args]

    def describe(self) -> str:
        """Give the operands."""
        return f"{type(self).__name__}({' '.join(str(arg) for arg in self.args)})"

    def perform(self, context: LaunchContext) -> str:
        """Look at every operand, so that one that is no truth value is always found."""
        return _text(all([_truth(context, arg) for arg in self.args]))


class AnySubstitution(AllSubstitution):
    """True if any operand is."""

    def perform(self, context: LaunchContext) -> str:
        """Look at every operand, so that one that is no truth value is always found."""
        return _text(any([_truth(context, arg) for arg in self.args]))


class AndSubstitution(AllSubstitution):
    """True if both operands are."""

    def __init__(self, left: SomeSubstitutionsType, right: SomeSubstitutionsType) -> None:
        """Keep the operands."""
        super().__init__(left, right)
        self.left, self.right = self.args


class OrSubstitution(AnySubstitution):
    """True if either operand is."""

    def __init__(self, left: SomeSubstitutionsType, right: SomeSubstitutionsType) -> None:
        """Keep the operands."""
        super().__init__(left, right)
        self.left, self.right = self.args


class EqualsSubstitution(Substitution):
    """True if two values are equal: as truth values or numbers if both are, else as texts."""

    def __init__(self, left: Any, right: Any) -> None:
        """Keep the operands, which need not be texts."""
        self.left = _operand(left)
        self.right = _operand(right)

    def describe(self) -> str:
        """Give the operands."""
        return f'{type(self).__name__}({self.left} {self.right})'

    def perform(self, context: LaunchContext) -> str:
        """Compare the operands."""
        return _text(self._are_equal(context))

    def _are_equal(self, context: LaunchContext) -> bool:
        texts = [perform_substitutions(context, side) for side in (self.left, self.right)]
        if all(text.lower() in ('true', 'false', '1', '0') for text in texts):
            left, right = (text.lower() in ('true', '1') for text in texts)
            return left == right
        try:
            return math.isclose(float(texts[0]), float(texts[1]))
        except ValueError:
            return texts[0] == texts[1]


class NotEqualsSubstitution(EqualsSubstitution):
    """True if two values are not equal."""

    def perform(self, context: LaunchContext) -> str:
        """Compare the operands."""
        return _text(not self._are_equal(context))


def _operand(value: Any) -> list[Substitution]:
    if not is_substitution(value):
        value = '' if value is None else _text(value) if isinstance(value, bool) else str(value)
    return normalize_to_list_of_substitutions(value)


class IfElseSubstitution(Substitution):
    """One of two texts, depending on a truth value."""

    def __init__(
        self,
        condition: SomeSubstitutionsType,
        if_value: SomeSubstitutionsType = '',
        else_value: SomeSubstitutionsType = '',
    ) -> None:
        """Keep the truth value and the texts."""
        if if_value == else_value == '':
            raise RuntimeError('One of if_value and else_value must be specified')
        self.condition = normalize_to_list_of_substitutions(condition)
        self.if_value = normalize_to_list_of_substitutions(if_value)
        self.else_value = normalize_to_list_of_substitutions(else_value)

    def describe(self) -> str:
        """Give the truth value and the texts."""
        return f'IfElseSubstitution({self.condition}, {self.if_value}, {self.else_value})'

    def perform(self, context: LaunchContext) -> str:
        """Choose, and work out only the text that was chosen."""
        chosen = self.if_value if _truth(context, self.condition) else self.else_value
        return perform_substitutions(context, chosen)
