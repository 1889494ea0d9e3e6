"""Which versions the packages in an error require, and which are installed."""

import traceback
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# What the set-up pins. Many environments name no upper limit of these, and need one.
_PINNED = ('gymnasium', 'mujoco', 'numpy')


def version_hint(error: BaseException, later: bool = True) -> str:
    """Return which requirements of the packages in the traceback the installed versions miss.

    Args:
        later: if none is missed, name those that a later major version of a pinned package meets.

    Returns:
        The end of a line, with packages, requirements and versions; '' if there is none.
    """
    missed: dict[str, str] = {}
    unlimited: dict[str, str] = {}
    for owner, requirement, installed in _requirements(error):
        name = canonicalize_name(requirement.name)
        text = (f'; {owner} requires {requirement.name}{requirement.specifier}, installed is '
                f'{installed}')
        if not requirement.specifier.contains(installed, prereleases=True):
            missed.setdefault(name, text)
        elif later and name in _PINNED and requirement.specifier and all(
                Version(installed).major > Version(each.version.removesuffix('.*')).major
                for each in requirement.specifier):
            unlimited.setdefault(name, text)
    found = ''.join((missed or unlimited).values())
    return found and f'{found}; docs/environments.md#versions installs other versions apart'


def _requirements(error: BaseException) -> Iterator[tuple[str, Requirement, str]]:
    """Yield name and version of a package, what it requires, and the installed version of that."""
    owners = metadata.packages_distributions()
    for name in dict.fromkeys(name for top in _packages(error) for name in owners.get(top, ())):
        if canonicalize_name(name) in _PINNED:
            continue
        for text in metadata.requires(name) or ():
            try:
                requirement = Requirement(text)
                if not requirement.marker or requirement.marker.evaluate({'extra': ''}):
                    yield (f'{name} {metadata.version(name)}', requirement,
                           metadata.version(requirement.name))
            # Metadata that follow no standard, or a package that is not installed.
            except (ValueError, metadata.PackageNotFoundError):
                continue


def _packages(error: BaseException | None) -> Iterator[str]:
    """Yield the top-level modules in the tracebacks of an error and of its causes."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            yield str(frame.f_globals.get('__name__')).partition('.')[0]
        error = error.__cause__ or error.__context__
