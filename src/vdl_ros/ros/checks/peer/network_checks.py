"""The checks of what has arrived: unicast, multicast, path MTU, fragments, clock, hop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from vdl_ros.ros.checks.peer.clock_offset import Exchange, estimate_offset
from vdl_ros.ros.checks.peer.datagrams import GROUP, PACKETS, SMALL, Arrival, domain_ports
from vdl_ros.ros.checks.types import Finding
from vdl_ros.ros.dds.transport import FRAME_DATAGRAM, LARGE_DATAGRAM, UDP_HEADERS

__all__ = [
    'Way', 'check_clock_offset', 'check_fragments', 'check_hop', 'check_multicast',
    'check_path_mtu', 'check_unicast',
]

# Of the clocks, s: ages of messages are in ms.
LARGEST_OFFSET = 0.010


@dataclasses.dataclass(frozen=True)
class Way:
    """
    One direction between the hosts.

    Attributes:
        receiver: name of the host that receives, for sentences.
        arrived: datagrams that arrived there.
        mtu: of the sender's interface, bytes; 0 if unknown.
        domain: ROS_DOMAIN_ID of the receiver.
    """

    receiver: str
    arrived: frozenset[Arrival]
    mtu: int
    domain: int

    @property
    def unicast(self) -> bool:
        """Return whether small datagrams arrive at both ports."""
        return {('discovery', SMALL), ('data', SMALL)} <= self.arrived

    @property
    def packet(self) -> int:
        """Return the largest unfragmented IP packet that arrived, bytes; 0 for none."""
        return max((size + UDP_HEADERS for name, size in self.arrived
                    if name == 'data' and size + UDP_HEADERS in PACKETS), default=0)

    @property
    def expected_packet(self) -> int:
        """Return the largest packet that was sent, bytes."""
        return max(size for size in PACKETS if size <= max(self.mtu, PACKETS[0]))


def check_unicast(ways: Sequence[Way]) -> Finding:
    """Check that datagrams arrive at the ports of DDS."""
    closed = [way for way in ways if not way.unicast]
    if not closed:
        return Finding('unicast', 'ok', 'the UDP ports of DDS are reached in both directions')
    advice = '; '.join(
        f'open the UDP ports {ports[0]} to {ports[-1]} of {way.receiver}'
        for way in closed for ports in (domain_ports(way.domain),))
    names = ' and '.join(f'at {way.receiver}' for way in closed)
    return Finding('unicast', 'fail', f'UDP datagrams do not arrive {names}',
                   f'{advice} (sudo ufw status, sudo nft list ruleset)')


def check_multicast(ways: Sequence[Way], settings: Sequence[Mapping[str, str]]) -> Finding:
    """Check that datagrams to the group of discovery arrive."""
    if ways[0].domain != ways[1].domain:
        return Finding('multicast', 'warn', 'not tested: the domains differ', 'see domain')
    silent = [way for way in ways if ('multicast', SMALL) not in way.arrived]
    if not silent:
        return Finding('multicast', 'ok', f'{GROUP} is received in both directions')
    names = ' and '.join(f'at {way.receiver}' for way in silent)
    text = f'datagrams to {GROUP} do not arrive {names}'
    if any(each['static peers'] for each in settings):
        return Finding('multicast', 'ok', f'{text}; static peers do not need them')
    return Finding('multicast', 'warn', text,
                   'on both, export ROS_STATIC_PEERS with the address of the other host')


def check_path_mtu(ways: Sequence[Way]) -> Finding:
    """Check that packets as large as the interface's MTU arrive."""
    if not all(way.unicast for way in ways):
        return Finding('path MTU', 'warn', 'not measured: datagrams do not arrive', 'see unicast')
    low = [way for way in ways if way.packet < way.expected_packet]
    figures = {'packet_bytes': min(way.packet for way in ways)}
    if not low:
        return Finding('path MTU', 'ok', 'packets of '
                       f'{figures["packet_bytes"]} bytes arrive in both directions', '', figures)
    worst = min(low, key=lambda way: way.packet)
    text = f'packets of more than {worst.packet} bytes do not arrive at {worst.receiver}, ' \
           f'although the MTU is {worst.mtu}'
    advice = f'sudo ip link set dev INTERFACE mtu {worst.packet} on both'
    needed = FRAME_DATAGRAM + UDP_HEADERS
    if worst.packet < needed:
        return Finding('path MTU', 'fail', f'{text}; large messages need {needed}', advice,
                       figures)
    return Finding('path MTU', 'warn', text, advice, figures)


def check_fragments(ways: Sequence[Way], settings: Sequence[Mapping[str, str]]) -> Finding:
    """Check that a datagram of 64 KB arrives, which IP sends in fragments."""
    if not all(way.unicast for way in ways):
        return Finding('IP fragments', 'warn', 'not measured: datagrams do not arrive',
                       'see unicast')
    lost = [way for way in ways if ('data', LARGE_DATAGRAM) not in way.arrived]
    if not lost:
        return Finding('IP fragments', 'ok', 'datagrams of 64 KB arrive in both directions')
    text = f'datagrams of 64 KB do not arrive {" and ".join(f"at {way.receiver}" for way in lost)}'
    if all(each['transport'] == 'udp' for each in settings):
        return Finding('IP fragments', 'warn', f'{text}; VDL_TRANSPORT=auto sends none',
                       'nodes without the profile of vdl_ros lose large messages '
                       '(docs/transport.md)')
    return Finding('IP fragments', 'fail', text, 'export VDL_TRANSPORT=auto on both')


def check_clock_offset(exchanges: Sequence[Exchange]) -> Finding:
    """Estimate the offset of the peer's clock."""
    offset = estimate_offset(exchanges)
    figures = {'offset_s': offset.seconds, 'uncertainty_s': offset.uncertainty}
    text = f'{abs(offset.seconds) * 1e3:.3f} ms {"ahead" if offset.seconds >= 0 else "behind"}, ' \
           f'uncertain by {offset.uncertainty * 1e3:.3f} ms'
    if abs(offset.seconds) - offset.uncertainty > LARGEST_OFFSET:
        return Finding('clock offset', 'warn', f'{text}: ages of messages between the hosts are '
                       'wrong', 'synchronise both clocks: sudo apt install chrony', figures)
    return Finding('clock offset', 'ok', text, '', figures)


def check_hop(exchanges: Sequence[Exchange], rates: Sequence[float]) -> Finding:
    """Report round trips and throughput over TCP; ``rates`` are to and from the peer, B/s."""
    trips = sorted((each.returned - each.sent) / 1e6 for each in exchanges)
    p50, p99 = trips[len(trips) // 2], trips[min(len(trips) * 99 // 100, len(trips) - 1)]
    there, back = (rate / 1e6 for rate in rates)
    return Finding('TCP', 'ok', f'round trip p50 {p50:.2f} ms, p99 {p99:.2f} ms; '
                   f'{there:.1f} MB/s there, {back:.1f} MB/s back', '',
                   {'p50_ms': round(p50, 3), 'p99_ms': round(p99, 3),
                    'MBps_there': round(there, 1), 'MBps_back': round(back, 1)})
