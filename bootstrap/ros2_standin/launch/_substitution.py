"""Base of the substitutions, and functions that turn what a launch file gives into texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .launch_context import LaunchContext


class Substitution:
    """A text that is known once the launch is running."""

    def describe(self) -> str:
        """Return a description that needs no context."""
        return repr(self)

    def perform(self, context: LaunchContext) -> str:
        """Return the text."""
        raise NotImplementedError


SomeSubstitutionsType = str | Substitution | Iterable[str | Substitution]


class TextSubstitution(Substitution):
    """A constant text."""

    def __init__(self, *, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f'TextSubstitution(): text {text!r} is a {type(text).__name__}')
        self.text = text

    def describe(self) -> str:
        """Return the text in quotes."""
        return f"'{self.text}'"

    def perform(self, context: LaunchContext) -> str:
        """Return the text."""
        return self.text


def normalize(some: SomeSubstitutionsType) -> list[Substitution]:
    """Return a text, a substitution, or a sequence of both as a list of substitutions.

    Raises:
        TypeError: something else.
    """
    items = [some] if isinstance(some, (str, Substitution)) else list(some)
    result = [TextSubstitution(text=item) if isinstance(item, str) else item for item in items]
    for item in result:
        if not isinstance(item, Substitution):
            raise TypeError(f'{item!r} is neither a text nor a substitution')
    return result


def perform(context: LaunchContext, substitutions: Sequence[Substitution]) -> str:
    """Return the joined texts of substitutions."""
    return ''.join(context.perform_substitution(each) for each in substitutions)


def describe(substitutions: Sequence[Substitution]) -> str:
    """Return the joined descriptions of substitutions."""
    return ' + '.join(each.describe() for each in substitutions)
