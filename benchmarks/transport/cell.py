"""One measurement of bench_transport, as its server and its clients receive it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """How packets are sent.

    Attributes:
        family: of its processes: ``tcp``, or with DDS the executor.
        serialized: encode packets once, before the measurement, and never decode them.
        kept: receive each TCP packet into a new buffer, as DDS does.
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
    """One measurement.

    Attributes:
        task: ``throughput`` or ``round_trip``.
        size: bytes of data in a packet.
        packets: that each client sends.
        window: packets that a client may have under way over DDS; TCP has the kernel's window.
        limit: s after which a missing packet is lost.
        token: different in each measurement, so that late packets are ignored.
    """

    way: str
    task: str
    clients: int
    size: int
    packets: int
    window: int
    limit: float
    token: int

    def start_id(self, client: int) -> int:
        """Return the number in the packets of a client of this cell."""
        return self.token * 256 + client

    def client(self, start_id: int) -> int | None:
        """Return the client that sent a packet, or None if it is of another cell."""
        token, client = divmod(start_id, 256)
        return client if token == self.token and client < self.clients else None
