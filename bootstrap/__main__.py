"""Set up this checkout: `python3 bootstrap --help`.

Installs missing system packages, creates a Python environment, installs Python packages and builds
the workspace. Each step is skipped if nothing it depends on has changed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import system_packages
import workspace
from environment import Environment
from steps import SetupError, print_progress

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run every step; return the exit status."""
    parser = argparse.ArgumentParser(prog='python3 bootstrap', description=__doc__)
    tests = parser.add_mutually_exclusive_group()
    tests.add_argument('--with-tests', dest='tests', action='store_const', default=(),
                       const=system_packages.TESTING, help='also install what make test needs')
    tests.add_argument('--with-all-tests', dest='tests', action='store_const',
                       const=system_packages.TESTING + system_packages.TESTING_HOSTS,
                       help='also install what make test-all needs')
    parser.add_argument('--no-build', action='store_true',
                        help='install Python packages only; needs no file but those of bootstrap/')
    parser.add_argument('--force', action='store_true', help='run every step again')
    options = parser.parse_args()
    sections = ['torch', 'python', 'arm', 'atari']
    sections += ['export', 'onnx', 'box2d', 'worlds', 'test'] if options.tests else []
    try:
        if not options.no_build:
            system_packages.install(ROOT / 'log' / 'apt.log', tests=options.tests)
        environment = Environment(ROOT, force=options.force)
        environment.install(sections)
        workspace.prepare(ROOT, environment, force=options.force)
        if options.no_build:
            return 0
        workspace.build(ROOT, environment, force=options.force)
    except SetupError as error:
        print(f'setup: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\nsetup: interrupted; run it again to continue', file=sys.stderr)
        return 130
    print_progress('ready: source setup.bash')
    return 0


if __name__ == '__main__':
    sys.exit(main())
