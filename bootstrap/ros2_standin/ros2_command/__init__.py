"""
A small stand-in for the command `ros2`, with the verbs `launch`, `run` and `pkg`.

A verb is a module with `add_arguments` and `main`.  The verb that was asked for is the only one
that is imported, so that `ros2 run` does not wait for what `ros2 launch` needs.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

VERBS = {
    'launch': 'Run a launch file',
    'pkg': 'Various package related sub-commands',
    'run': 'Run a package specific executable',
}


class _Parser(argparse.ArgumentParser):
    """A parser that names a verb that the stand-in does not have."""

    def error(self, message: str) -> NoReturn:
        if 'invalid choice' in message:
            from launch._unknown import ADVICE

            asked = message.split('invalid choice: ')[1].split(' (')[0]
            message = f"{asked} {ADVICE} (here: {', '.join(self.choices)})"
        super().error(message)

    choices: Sequence[str] = ()


def add_verbs(parser: argparse.ArgumentParser, verbs: dict[str, str]) -> Any:
    """Add sub-commands to a parser, and make errors name the ones there are."""
    if isinstance(parser, _Parser):
        parser.choices = list(verbs)
    return parser.add_subparsers(metavar='command', parser_class=_Parser)


def main(argv: Sequence[str] | None = None) -> Any:
    """Run the command; gives what `sys.exit` takes."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(
        prog='ros2', description='ros2 is a command-line tool for ROS 2 (stand-in).'
    )
    parser.add_argument(
        '--use-python-default-buffering',
        action='store_true',
        help='do not force line buffering in stdout',
    )
    subparsers = add_verbs(parser, VERBS)
    asked = next((argument for argument in arguments if not argument.startswith('-')), None)
    for verb, description in VERBS.items():
        subparser = subparsers.add_parser(verb, help=description, description=description)
        if verb == asked:
            importlib.import_module(f'{__name__}.{verb}').add_arguments(subparser)
    options = parser.parse_args(arguments)
    if not hasattr(options, 'main'):
        parser.print_help()
        return 0
    if not options.use_python_default_buffering:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        return options.main(options)
    except KeyboardInterrupt:
        return int(signal.SIGINT)
    except RuntimeError as error:
        return str(error)
