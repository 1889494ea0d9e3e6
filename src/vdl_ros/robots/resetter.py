"""What brings a robot to the start of an episode; no ROS."""

from __future__ import annotations

from typing import Protocol

import numpy as np

__all__ = ['ResetError', 'Resetter']


class ResetError(Exception):
    """A robot that was not reset; the message is one line."""


class Resetter(Protocol):
    """Brings a robot to the start of an episode."""

    def begin(self, random: np.random.Generator) -> None:
        """Begin to reset it."""

    def is_done(self, values: dict[str, float]) -> bool:
        """
        Return whether it is reset.

        Args:
            values: the latest features by name.

        Raises:
            ResetError: it could not be reset.
        """

    def cancel(self) -> None:
        """Stop what :meth:`begin` began."""
