"""`ros2 pkg`: list packages and their executables, and where packages are."""

from __future__ import annotations

import argparse
import os

from ament_index_python.packages import get_package_share_directory, get_packages_with_prefixes

from . import add_verbs
from .packages import executable_paths, find_prefix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the verb takes."""
    verbs = {
        'executables': 'output a list of package specific executables',
        'list': 'output a list of available packages',
        'prefix': 'output the prefix path of a package',
    }
    subparsers = add_verbs(parser, verbs)
    subparsers.required = True
    executables, list_, prefix = (
        subparsers.add_parser(verb, help=text, description=text) for verb, text in verbs.items()
    )
    executables.add_argument('package_name', nargs='?', help='name of the package')
    executables.add_argument('--full-path', action='store_true', help='show full paths')
    executables.set_defaults(main=_executables)
    list_.set_defaults(main=_list)
    prefix.add_argument('package_name', help='name of the package')
    prefix.add_argument('--share', action='store_true', help='show the share directory')
    prefix.set_defaults(main=_prefix)


def _list(options: argparse.Namespace) -> None:
    for name in sorted(get_packages_with_prefixes()):
        print(name)


def _prefix(options: argparse.Namespace) -> str | None:
    prefix = find_prefix(options.package_name)
    if prefix is None:
        return 'Package not found'
    print(get_package_share_directory(options.package_name) if options.share else prefix)
    return None


def _executables(options: argparse.Namespace) -> None:
    names = [options.package_name] if options.package_name else get_packages_with_prefixes()
    for name in sorted(names):
        for path in executable_paths(name):
            print(path if options.full_path else f'{name} {os.path.basename(path)}')
