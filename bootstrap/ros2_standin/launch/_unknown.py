"""How the stand-in names what it does not have, instead of failing in some later, odder way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

ADVICE = (
    'is not part of this stand-in for the ROS 2 launch system; '
    'with a ROS 2 distribution sourced the real package is used'
)


def unknown_attributes(module_name: str) -> Callable[[str], Any]:
    """
    Make a module-level ``__getattr__`` that names a missing attribute.

    It raises ImportError, the one error that `from module import Name` passes on unchanged.
    Private names keep to AttributeError, since tools probe modules for those.
    """

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 (this is what modules call it)
        if name.startswith('_'):
            raise AttributeError(f'module {module_name!r} has no attribute {name!r}')
        raise ImportError(f'{module_name}.{name} {ADVICE}', name=module_name)

    return __getattr__


def reject_keywords(thing: object, keywords: Iterable[str]) -> None:
    """Raise TypeError if there are keywords left over that nobody knows."""
    names = ', '.join(sorted(keywords))
    if names:
        raise TypeError(f'{type(thing).__name__}(): keyword argument {names} {ADVICE}')
