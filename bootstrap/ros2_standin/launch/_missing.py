"""One-line errors for what the stand-in lacks: modules, names in modules, keyword arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

ADVICE = ('is not part of this stand-in for the ROS 2 launch system; '
          'source a ROS 2 distribution to use the real package')


def missing_names(module: str) -> Callable[[str], Any]:
    """Return a module-level ``__getattr__`` that raises ImportError for public names.

    Of all errors, `from module import name` passes on only an ImportError unchanged. Private
    names raise AttributeError, because tools probe modules for them.
    """
    def __getattr__(name: str) -> NoReturn:  # noqa: N807 (the name that Python looks up)
        if name.startswith('_'):
            raise AttributeError(f'module {module!r} has no attribute {name!r}')
        raise ImportError(f'{module}.{name} {ADVICE}', name=module)

    return __getattr__


def reject_keywords(thing: object, keywords: Mapping[str, object]) -> None:
    """Raise TypeError if there are keyword arguments that no class took."""
    if keywords:
        raise TypeError(
            f'{type(thing).__name__}(): keyword argument {", ".join(sorted(keywords))} {ADVICE}')


class _MissingModules:
    """The last import finder: raises ImportError for modules of the real packages."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        package, _, rest = name.partition('.')
        if package in ('launch', 'launch_ros') and rest and not rest.startswith('_'):
            raise ImportError(f'{name} {ADVICE}', name=name)


sys.meta_path.append(_MissingModules)
