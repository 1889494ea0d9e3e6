"""The error of demonstrations that cannot be used."""

from __future__ import annotations

__all__ = ['DemonstrationError']


class DemonstrationError(ValueError):
    """Demonstrations that cannot be learned from; the message is one line."""
