"""The error for a launch file that cannot be loaded."""

from __future__ import annotations

from collections.abc import Sequence


class InvalidLaunchFileError(Exception):
    """A launch file cannot be loaded; the errors met on the way are in the message."""

    def __init__(
        self, extension: str = '', *, likely_errors: Sequence[Exception] = ()
    ) -> None:
        """Put the message together."""
        message = 'The launch file may have a syntax error, or its format is unknown'
        if extension and likely_errors:
            kind = 'multiple exceptions' if len(likely_errors) > 1 else 'exception'
            message = f'Caught {kind} when trying to load file of format [{extension}]:'
            message += ''.join(f'\n - {type(error).__name__}: {error}' for error in likely_errors)
            self.__cause__ = likely_errors[0]
        super().__init__(message)
