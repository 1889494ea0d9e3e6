"""Where a trainer gets its unrolls from."""

from __future__ import annotations

from typing import Protocol

from vdl_ros.rl.data.unroll import Unroll

__all__ = ['EndOfBagError', 'Inbox']


class EndOfBagError(Exception):
    """All unrolls of a bag have been taken."""


class Inbox(Protocol):
    """The source of unrolls."""

    def get(self, timeout: float) -> Unroll:
        """
        Return the next unroll, whose arrays have passed :meth:`UnrollSchema.check`.

        Raises:
            queue.Empty: none arrived within ``timeout`` seconds.
            EndOfBagError: no more will come.
        """
