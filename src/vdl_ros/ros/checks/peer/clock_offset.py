"""
Estimate the offset between the clocks of two hosts from request and response times.

As in NTP (RFC 5905, section 8), an exchange gives offset and delay. The exchange with the least
delay has the least queueing, so its offset is used. Half of its delay bounds the error: that is
the error if one way took no time and the other took it all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

__all__ = ['Exchange', 'Offset', 'estimate_offset']


@dataclasses.dataclass(frozen=True)
class Exchange:
    """
    The times of one request and its response, in ns.

    ``sent`` and ``returned`` are of this host's clock, ``received`` and ``answered`` of the
    peer's.
    """

    sent: int
    received: int
    answered: int
    returned: int

    @property
    def delay(self) -> int:
        """Return the time on the way, both ways, in ns."""
        return (self.returned - self.sent) - (self.answered - self.received)

    @property
    def offset(self) -> float:
        """Return the peer's clock minus this host's, in ns, if both ways take as long."""
        return ((self.received - self.sent) + (self.answered - self.returned)) / 2


@dataclasses.dataclass(frozen=True)
class Offset:
    """The peer's clock minus this host's, and the largest error of it, both in s."""

    seconds: float
    uncertainty: float


def estimate_offset(exchanges: Sequence[Exchange]) -> Offset:
    """Return the offset by the exchange with the least delay; raises ValueError without any."""
    if not exchanges:
        raise ValueError('there are no exchanges')
    best = min(exchanges, key=lambda each: each.delay)
    return Offset(best.offset / 1e9, max(best.delay, 0) / 2e9)
