"""Where packages are, with their launch files and executables."""

from __future__ import annotations

import os

from ament_index_python.packages import (
    PackageNotFoundError,
    get_package_prefix,
    get_package_share_directory,
)


def find_prefix(package_name: str) -> str | None:
    """Give the directory that a package is installed below, or None if there is no such one."""
    try:
        return get_package_prefix(package_name)
    except (PackageNotFoundError, ValueError):
        return None


def find_share_file(package_name: str, file_name: str | None) -> str:
    """Give the path of the one file of this name anywhere in the share directory of a package."""
    try:
        share = get_package_share_directory(package_name)
    except ValueError:
        raise RuntimeError(
            f"'{package_name}' is neither a file nor the name of a package"
        ) from None
    except PackageNotFoundError as error:
        raise RuntimeError(f"Package '{package_name}' not found: {error}") from error
    if file_name is None:
        raise RuntimeError(f"package '{package_name}' is given without the name of a launch file")
    paths = [
        os.path.join(directory, file_name)
        for directory, _, names in os.walk(share)
        if file_name in names
    ]
    if not paths:
        raise RuntimeError(
            f"file '{file_name}' was not found in the share directory of package "
            f"'{package_name}' which is at '{share}'"
        )
    if len(paths) > 1:
        listed = ', '.join(f"'{path}'" for path in paths)
        raise RuntimeError(
            f"file '{file_name}' was found more than once in the share directory of package "
            f"'{package_name}': [{listed}]"
        )
    return paths[0]


def executable_paths(package_name: str) -> list[str]:
    """List the executables of a package, which are below `lib/<package>` of its prefix."""
    prefix = find_prefix(package_name)
    if prefix is None:
        raise RuntimeError(f"Package '{package_name}' not found")
    paths = []
    for directory, directories, names in os.walk(os.path.join(prefix, 'lib', package_name)):
        directories[:] = [name for name in directories if not name.startswith('.')]
        paths += [os.path.join(directory, name) for name in names]
    return sorted(path for path in paths if os.access(path, os.X_OK))
