"""Notices at the learner that a bag has ended."""

from __future__ import annotations

from rclpy.node import Node

__all__ = ['EndOfBag']

_PERIOD_S = 0.5


class EndOfBag:
    """
    Whether the player of a bag has ended and everything that it sent has been received.

    All methods run in the executor's thread, but for :meth:`is_over`.
    """

    def __init__(self, node: Node, topic: str) -> None:
        """Watch the publishers of ``topic``."""
        self._node, self._topic = node, topic
        self._has_begun = self._is_over = False
        self._received = self._received_before = 0
        self._timer = node.create_timer(_PERIOD_S, self._check)

    def on_message(self) -> None:
        """Count a message."""
        self._received += 1

    def is_over(self) -> bool:
        """Return whether no message will come any more."""
        return self._is_over

    def _check(self) -> None:
        """
        Compare with the time before.

        Messages that the player has sent arrive before the news that it is gone, but they may
        still wait for their callbacks, which run in between two calls.
        """
        present = self._node.count_publishers(self._topic) > 0
        self._has_begun |= present or self._received > 0
        if self._has_begun and not present and self._received == self._received_before:
            self._is_over = True
        self._received_before = self._received
