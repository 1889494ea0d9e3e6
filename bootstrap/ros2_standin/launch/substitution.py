"""Substitution: a text that is only known once the launch is running."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class Substitution:
    """Base class of everything that can stand where a launch file expects a text."""

    def describe(self) -> str:
        """Say what this is, without a context to work it out in."""
        return repr(self)

    def perform(self, context: LaunchContext) -> str:
        """Work out the text."""
        raise NotImplementedError(f'{type(self).__name__} does not say how to perform itself')
