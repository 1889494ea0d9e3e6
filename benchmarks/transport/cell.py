"""One measurement of bench_transport: what its server and its clients are told."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Any

__all__ = ['WAYS', 'Cell', 'Way', 'cpu_seconds']


@dataclass(frozen=True)
class Way:
    """
    How packets travel.

    ``family`` names its processes: ``tcp``, or the executor of those with DDS. With
    ``serialized``, packets are encoded once, before the clock starts, and never decoded: what is
    left is the transport's own share. With ``kept``, each TCP packet gets memory of its own, as
    it must where somebody wants to have it, and as DDS does.
    """

    family: str
    serialized: bool = False
    kept: bool = False


WAYS = {
    'tcp': Way('tcp'),
    'tcp-kept': Way('tcp', kept=True),
    'dds-events': Way('events'),
    'dds-single': Way('single'),
    'dds-multi': Way('multi'),
    'dds-serialized': Way('events', serialized=True),
}


@dataclass(frozen=True)
class Cell:
    """
    What is measured now.

    ``task`` is ``throughput`` or ``round_trip``; ``size`` is the bytes of data in a packet,
    ``packets`` how many each client sends, ``window`` how many of them it may have under way over
    DDS (TCP has the kernel's window), ``limit`` the seconds after which what has not come is
    lost. ``token`` is another one in each measurement: what is late belongs to none.
    """

    way: str
    task: str
    clients: int
    size: int
    packets: int
    window: int
    limit: float
    token: int

    @classmethod
    def from_order(cls, order: dict[str, Any]) -> Cell:
        """Return the cell of a line that another process wrote."""
        return cls(**order)

    def start_id(self, client: int) -> int:
        """Return the number that packets of a client of this cell carry."""
        return self.token * 256 + client

    def client(self, start_id: int) -> int | None:
        """Return whose packet it is, or None if it is of another cell."""
        token, client = divmod(start_id, 256)
        return client if token == self.token and client < self.clients else None


def cpu_seconds() -> float:
    """Return the processor time of this process and all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
