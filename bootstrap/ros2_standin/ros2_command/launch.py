"""`ros2 launch`: run a launch file, or show what it has."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

from launch.actions import IncludeLaunchDescription
from launch.invalid_launch_file_error import InvalidLaunchFileError
from launch.launch_description import LaunchDescription
from launch.launch_description_sources import (
    AnyLaunchDescriptionSource,
    get_launch_description_from_any_launch_file,
)
from launch.launch_introspector import LaunchIntrospector
from launch.launch_service import LaunchService

from .packages import find_share_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the verb takes."""
    parser.add_argument(
        '-n',
        '--noninteractive',
        default=not sys.stdin or not sys.stdin.isatty(),
        action='store_true',
        help='run the launch system non-interactively, with no terminal associated',
    )
    parser.add_argument('-d', '--debug', action='store_true', help='log more')
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        '-p',
        '--print',
        '--print-description',
        action='store_true',
        help='print the launch description instead of launching it',
    )
    instead.add_argument(
        '-s',
        '--show-args',
        '--show-arguments',
        action='store_true',
        help='show the arguments of the launch file instead of launching it',
    )
    parser.add_argument(
        '-a',
        '--show-all-subprocesses-output',
        action='store_true',
        help='show the output of all processes, whatever the launch file says',
    )
    parser.add_argument('--launch-prefix', help='a command to put before all executables')
    parser.add_argument(
        '--launch-prefix-filter',
        help='a regular expression for the names of the executables that get the launch prefix',
    )
    parser.add_argument('package_name', help='name of a package, or path of a launch file')
    parser.add_argument('launch_file_name', nargs='?', help='name of a launch file of the package')
    parser.add_argument(
        'launch_arguments', nargs='*', help="arguments to the launch file: '<name>:=<value>'"
    )
    parser.set_defaults(main=main)


def main(options: argparse.Namespace) -> Any:
    """Find the launch file and do what is asked for with it."""
    arguments = list(options.launch_arguments)
    if os.path.isfile(options.package_name):
        path = options.package_name
        if options.launch_file_name is not None:
            arguments.insert(0, options.launch_file_name)
    else:
        path = find_share_file(options.package_name, options.launch_file_name)
    if options.launch_prefix is None and options.launch_prefix_filter is not None:
        raise RuntimeError(
            '--launch-prefix must be specified if --launch-prefix-filter is provided'
        )
    if options.show_all_subprocesses_output:
        os.environ['OVERRIDE_LAUNCH_PROCESS_OUTPUT'] = 'both'
    if options.print or options.show_args:
        return _show(path, whole=options.print)
    for name in ('launch_prefix', 'launch_prefix_filter'):
        if getattr(options, name):
            arguments.append(f"{name.replace('_', '-')}:={getattr(options, name)}")
    pairs = parse_launch_arguments(arguments)
    service = LaunchService(
        argv=arguments, noninteractive=options.noninteractive, debug=options.debug
    )
    include = IncludeLaunchDescription(AnyLaunchDescriptionSource(path), launch_arguments=pairs)
    service.include_launch_description(LaunchDescription([include]))
    return service.run()


def parse_launch_arguments(arguments: Iterable[str]) -> list[tuple[str, str]]:
    """Split arguments into names and values; of arguments of the same name the last one counts."""
    pairs = {}
    for argument in arguments:
        name, separator, value = argument.partition(':=')
        if not (name and separator and value):
            raise RuntimeError(
                f"malformed launch argument '{argument}', expected format '<name>:=<value>'"
            )
        pairs[name] = value
    return list(pairs.items())


def _show(path: str, *, whole: bool) -> None:
    try:
        description = get_launch_description_from_any_launch_file(path)
    except InvalidLaunchFileError as error:
        raise RuntimeError(str(error)) from error
    if whole:
        print(LaunchIntrospector().format_launch_description(description))
        return
    print("Arguments (pass arguments as '<name>:=<value>'):")
    arguments = description.get_launch_arguments()
    for argument in arguments:
        mark = '*' if argument._conditionally_included else ''
        print(f"\n    '{argument.name}':{mark}\n        {argument.description}")
        if argument.default_value is not None:
            default = ' + '.join(token.describe() for token in argument.default_value)
            print(f'        (default: {default})')
    if not arguments:
        print('\n  No arguments.')
    elif any(argument._conditionally_included for argument in arguments):
        print('\n* argument(s) which are only used if specific conditions occur')
