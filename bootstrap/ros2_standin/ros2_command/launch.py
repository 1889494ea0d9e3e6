"""`ros2 launch`: run a launch file, or show its arguments."""

import argparse
import os
import sys
from collections.abc import Iterable

from launch import InvalidLaunchFileError, LaunchContext, LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

from .packages import find_share_file


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '-n', '--noninteractive', action='store_true',
        default=not sys.stdin or not sys.stdin.isatty(),
        help='run the launch system without a terminal')
    parser.add_argument('-d', '--debug', action='store_true', help='log tracebacks')
    parser.add_argument(
        '-s', '--show-args', '--show-arguments', action='store_true',
        help='show the arguments of the launch file')
    parser.add_argument('package_name', help='name of a package, or path of a launch file')
    parser.add_argument('launch_file_name', nargs='?', help='name of a launch file of the package')
    parser.add_argument(
        'launch_arguments', nargs='*', help="arguments to the launch file: '<name>:=<value>'")
    parser.set_defaults(main=main)


def main(options: argparse.Namespace) -> int:
    """Find the launch file; run it or show its arguments."""
    arguments = list(options.launch_arguments)
    if os.path.isfile(options.package_name):
        path = options.package_name
        if options.launch_file_name is not None:
            arguments.insert(0, options.launch_file_name)
    else:
        path = find_share_file(options.package_name, options.launch_file_name)
    source = PythonLaunchDescriptionSource(path)
    if options.show_args:
        return show_arguments(source)
    pairs = parse_launch_arguments(arguments)
    service = LaunchService(
        argv=arguments, noninteractive=options.noninteractive, debug=options.debug)
    service.include_launch_description(
        LaunchDescription([IncludeLaunchDescription(source, launch_arguments=pairs)]))
    return service.run()


def parse_launch_arguments(arguments: Iterable[str]) -> list[tuple[str, str]]:
    """Return names and values; of a name that is given twice the last value."""
    pairs = {}
    for argument in arguments:
        name, _, value = argument.partition(':=')
        if not (name and value):
            raise RuntimeError(f"malformed launch argument '{argument}', expected format "
                               "'<name>:=<value>'")
        pairs[name] = value
    return list(pairs.items())


def show_arguments(source: PythonLaunchDescriptionSource) -> int:
    """Print the arguments of a launch file with descriptions and defaults."""
    try:
        description = source.get_launch_description(LaunchContext())
    except InvalidLaunchFileError as error:
        raise RuntimeError(str(error)) from error
    print("Arguments (pass arguments as '<name>:=<value>'):")
    arguments = description.get_launch_arguments()
    for argument in arguments:
        print(f"\n    '{argument.name}':\n        {argument.description}")
        if argument.default_value is not None:
            default = ' + '.join(each.describe() for each in argument.default_value)
            print(f'        (default: {default})')
    if not arguments:
        print('\n  No arguments.')
    return 0
