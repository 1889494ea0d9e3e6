"""A small stand-in for the command `ros2`, with the verbs `launch`, `run` and `pkg`.

Only the module of the given verb is imported, so that `ros2 run` starts quickly.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

# Module and description of each verb.
VERBS = {
    'launch': ('launch', 'Run a launch file'),
    'pkg': ('packages', 'Various package related sub-commands'),
    'run': ('packages', 'Run a package specific executable'),
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name verbs and options that the stand-in lacks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        _, found, given = message.partition('invalid choice: ')
        if not found:
            _, found, given = message.partition('unrecognized arguments: ')
        if found:
            from launch._core import ADVICE
            name, _, choices = given.partition(' (')
            message = f'{name} {ADVICE}' + (f' ({choices}' if choices else '')
        super().error(message)


def main(argv: Sequence[str] | None = None) -> Any:
    """Run the command; return what ``sys.exit`` takes."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return 'the working directory was removed: change to one that exists'
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(prog='ros2', description='ros2 is a command-line tool for ROS 2 (stand-in).')
    verbs = parser.add_subparsers(metavar='command', parser_class=_Parser)
    given = next((each for each in arguments if not each.startswith('-')), None)
    for verb, (module, description) in VERBS.items():
        subparser = verbs.add_parser(verb, help=description, description=description)
        if verb == given:
            functions = importlib.import_module(f'{__name__}.{module}')
            getattr(functions, f'add_{verb}_arguments')(subparser)
    options = parser.parse_args(arguments)
    if not hasattr(options, 'main'):
        parser.print_help()
        return 0
    sys.stdout.reconfigure(line_buffering=True, errors='replace')  # type: ignore[union-attr]
    try:
        return options.main(options)
    except KeyboardInterrupt:
        return int(signal.SIGINT)
    except BrokenPipeError:  # `ros2 launch ... --show-args | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except RuntimeError as error:
        return str(error)
