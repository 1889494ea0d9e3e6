"""The command line of programs that are no nodes: errors are one line, with exit status 2."""

from __future__ import annotations

import argparse
from typing import NoReturn

__all__ = ['EXIT_BAD_INPUT', 'OneLineParser']

EXIT_BAD_INPUT = 2


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Exit with a line that says what is wrong."""
        self.exit(EXIT_BAD_INPUT, f'{self.prog}: {message}\n')
