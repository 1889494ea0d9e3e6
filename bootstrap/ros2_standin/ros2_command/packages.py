"""`ros2 run` and `ros2 pkg`: packages, their files and executables.

`ros2 run` replaces this process by the executable, which then gets every signal and whose exit
status is that of the command.
"""

import argparse
import os
import shlex
import sys

from ament_index_python.packages import (
    PackageNotFoundError,
    get_package_prefix,
    get_package_share_directory,
    get_packages_with_prefixes,
)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--prefix', default='', help='a command to put before the executable')
    parser.add_argument('package_name', help='name of the package')
    parser.add_argument('executable_name', help='name of the executable')
    parser.add_argument(
        'argv', nargs=argparse.REMAINDER, help='arguments that are passed to the executable')
    parser.set_defaults(main=run)


def run(options: argparse.Namespace) -> str:
    """Run an executable; return only an error."""
    paths = [path for path in executable_paths(options.package_name)
             if os.path.basename(path) == options.executable_name]
    if not paths:
        return 'No executable found'
    if len(paths) > 1:
        return 'Multiple executables found:' + ''.join(f'\n- {path}' for path in paths)
    command = [*shlex.split(options.prefix), paths[0], *options.argv]
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        return f"cannot run '{command[0]}': {error.strerror}"


def add_pkg_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar='command', parser_class=type(parser), required=True)
    executables = verbs.add_parser(
        'executables', help='output a list of package specific executables')
    executables.add_argument('package_name', nargs='?', help='name of the package')
    executables.add_argument('--full-path', action='store_true', help='show full paths')
    executables.set_defaults(main=print_executables)
    verbs.add_parser('list', help='output a list of available packages').set_defaults(
        main=lambda options: print(*sorted(get_packages_with_prefixes()), sep='\n'))
    prefix = verbs.add_parser('prefix', help='output the prefix path of a package')
    prefix.add_argument('package_name', help='name of the package')
    prefix.add_argument('--share', action='store_true', help='show the share directory')
    prefix.set_defaults(main=print_prefix)


def print_prefix(options: argparse.Namespace) -> str | None:
    """Print the folder of a package; return only an error."""
    prefix = find_prefix(options.package_name)
    if prefix is None:
        return 'Package not found'
    print(get_package_share_directory(options.package_name) if options.share else prefix)
    return None


def print_executables(options: argparse.Namespace) -> None:
    names = [options.package_name] if options.package_name else get_packages_with_prefixes()
    for name in sorted(names):
        for path in executable_paths(name):
            print(path if options.full_path else f'{name} {os.path.basename(path)}')


def find_prefix(package: str) -> str | None:
    try:
        return get_package_prefix(package)
    except (PackageNotFoundError, ValueError):
        return None


def executable_paths(package: str) -> list[str]:
    prefix = find_prefix(package)
    if prefix is None:
        raise RuntimeError(f"Package '{package}' not found")
    paths = []
    for folder, folders, names in os.walk(os.path.join(prefix, 'lib', package)):
        folders[:] = [name for name in folders if not name.startswith('.')]
        paths += [os.path.join(folder, name) for name in names]
    return sorted(path for path in paths if os.access(path, os.X_OK))


def find_share_file(package: str, file: str | None) -> str:
    """Return the path of the only file of this name below the share folder of a package."""
    try:
        share = get_package_share_directory(package)
    except ValueError:
        raise RuntimeError(f"'{package}' is neither a file nor the name of a package") from None
    except PackageNotFoundError as error:
        raise RuntimeError(f"Package '{package}' not found: {error}") from error
    if file is None:
        raise RuntimeError(f"package '{package}' is given without the name of a launch file")
    paths = [os.path.join(folder, file) for folder, _, names in os.walk(share) if file in names]
    if not paths:
        raise RuntimeError(f"file '{file}' was not found in the share directory of package "
                           f"'{package}' which is at '{share}'")
    if len(paths) > 1:
        raise RuntimeError(f"file '{file}' was found more than once in the share directory of "
                           f"package '{package}': {paths}")
    return paths[0]
