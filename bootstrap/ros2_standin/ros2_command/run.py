"""
`ros2 run`: run an executable of a package.

The executable takes the place of this process.  So it gets every signal itself, nothing is left
running when this process is ended, and its exit status is the one of the command.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from .packages import executable_paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the verb takes."""
    parser.add_argument('--prefix', help='a command to put before the executable')
    parser.add_argument('package_name', help='name of the package')
    parser.add_argument('executable_name', help='name of the executable')
    parser.add_argument(
        'argv', nargs=argparse.REMAINDER, help='arguments that are passed to the executable'
    )
    parser.set_defaults(main=main)


def main(options: argparse.Namespace) -> str:
    """Find the executable and run it; comes back only if that fails."""
    paths = [
        path
        for path in executable_paths(options.package_name)
        if os.path.basename(path) == options.executable_name
    ]
    if not paths:
        return 'No executable found'
    if len(paths) > 1:
        return 'Multiple executables found:' + ''.join(f'\n- {path}' for path in paths)
    command = [*shlex.split(options.prefix or ''), paths[0], *options.argv]
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        return f"cannot run '{command[0]}': {error.strerror}"
