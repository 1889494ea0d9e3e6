"""Condition: what decides whether an action is executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class Condition:
    """A predicate on the launch context; without one it is never met."""

    def __init__(
        self, *, predicate: Callable[[LaunchContext], bool] | None = None
    ) -> None:
        """Keep the predicate."""
        self._predicate = predicate

    def describe(self) -> str:
        """Say what this condition is."""
        return repr(self)

    def evaluate(self, context: LaunchContext) -> bool:
        """Say whether the condition is met now."""
        return self._predicate is not None and self._predicate(context)
