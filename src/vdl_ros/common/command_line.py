"""The command line of programs that are no nodes: errors are one line, with exit status 2."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

__all__ = ['EXIT_BAD_INPUT', 'OneLineParser', 'number_above_0', 'whole_number']

EXIT_BAD_INPUT = 2


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Exit with a line that says what is wrong."""
        self.exit(EXIT_BAD_INPUT, f'{self.prog}: {message}\n')


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a function that parses a whole number from ``low`` to ``high``, for ``type``."""
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not allowed: a whole number from {low} to {high}')
        return number
    return parse


def number_above_0(text: str) -> float:
    """Return a finite number above 0, for ``type``."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f'{text!r} is not allowed: a number above 0')
    return number
