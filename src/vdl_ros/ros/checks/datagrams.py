"""UDP datagrams to the ports of DDS of another host: small, as large as packets, and 64 KB."""

import contextlib
import select
import socket
import struct
import time
from typing import Annotated

import msgspec
import psutil

from vdl_ros.ros.dds.transport import LARGE_DATAGRAM, SOCKET_BUFFER, UDP_HEADERS

GROUP = '239.255.0.1'  # of DDS discovery
SMALL = 256  # bytes
# Whole IP packets that are sent unfragmented, bytes: Ethernet, PPPoE, tunnels, VPNs, overlays.
PACKETS = (576, 1000, 1280, 1372, 1400, 1420, 1450, 1476, 1492, 1500, 4000, 9000)
COPIES = 4  # of each datagram, because single ones may be lost
# Of <linux/in.h>, which Python's socket module does not have.
_IP_MTU_DISCOVER, _PMTUDISC_WANT, _PMTUDISC_PROBE = 10, 1, 3
_PAUSE_S = 0.001
_QUIET_S = 1.0
_MAX_WAIT_S = 10.0
_MAGIC = b'vdl_doctor'

# The socket, ``discovery``, ``data`` or ``multicast``, and the size in bytes.
Arrival = tuple[str, int]
ALL_SENT: frozenset[Arrival] = frozenset([
    ('discovery', SMALL), ('data', SMALL), ('multicast', SMALL), ('data', LARGE_DATAGRAM),
    *(('data', packet - UDP_HEADERS) for packet in PACKETS)])


_Port = Annotated[int, msgspec.Meta(ge=1024, le=65535)]


class Ports(msgspec.Struct):
    """The unicast ports of a DDS participant."""

    discovery: _Port
    data: _Port


def domain_ports(domain: int) -> range:
    return range(7400 + 250 * domain, min(7400 + 250 * domain + 250, 65536))


def interface_mtu(address: str) -> int:
    """Return the MTU of the interface with an address, in bytes; 0 if there is none."""
    for name, items in psutil.net_if_addrs().items():
        if any(item.address == address for item in items):
            return int(psutil.net_if_stats()[name].mtu)
    return 0


class Datagrams:
    """The sockets of one host: those of a free DDS participant, and that of multicast."""

    def __init__(self, address: str, domain: int) -> None:
        self._address, self._group = address, (GROUP, domain_ports(domain)[0])
        self._sockets: dict[str, socket.socket] = {}
        try:
            self._bind_pair(domain)
            self._join()
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> Ports:
        return Ports(*(self._sockets[name].getsockname()[1] for name in ('discovery', 'data')))

    def send(self, address: str, ports: Ports, mark: str) -> None:
        """Send the datagrams of ``ALL_SENT``, each some times; ``mark`` is token and direction."""
        head = _MAGIC + mark.encode()
        targets = {'multicast': self._group, 'discovery': (address, ports.discovery),
                   'data': (address, ports.data)}
        # From new sockets, as DDS does: a firewall may let answers to its own ports pass.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((self._address, 0))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                              socket.inet_aton(self._address))
            for _ in range(COPIES):
                for name, size in sorted(ALL_SENT):
                    way = _PMTUDISC_WANT if size in (SMALL, LARGE_DATAGRAM) else _PMTUDISC_PROBE
                    sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, way)
                    # Larger than the interface's MTU, or no route: it does not arrive.
                    with contextlib.suppress(OSError):
                        sender.sendto(head + bytes(size - len(head)), targets[name])
                    time.sleep(_PAUSE_S)

    def arrived(self, mark: str) -> frozenset[Arrival]:
        """Wait for all datagrams, or until none came for a second; return what has arrived."""
        found: set[Arrival] = set()
        head = _MAGIC + mark.encode()
        names = {each: name for name, each in self._sockets.items()}
        end = time.monotonic() + _MAX_WAIT_S
        while found != ALL_SENT and time.monotonic() < end:
            ready = select.select(list(names), [], [], _QUIET_S)[0]
            if not ready:
                break
            for each in ready:
                data = each.recv(1 << 16)
                if data.startswith(head):
                    found |= {(names[each], len(data))} & ALL_SENT
        return frozenset(found)

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def _bind_pair(self, domain: int) -> None:
        ports = domain_ports(domain)
        for first in ports[10:-1:2]:
            pair = [_receiver(), _receiver()]
            try:
                for offset, each in enumerate(pair):
                    each.bind(('', first + offset))
            except OSError:
                for each in pair:
                    each.close()
                continue
            self._sockets.update(zip(('discovery', 'data'), pair, strict=True))
            return
        raise OSError(f'all UDP ports from {ports[10]} to {ports[-1]} are taken')

    def _join(self) -> None:
        receiver = _receiver()
        self._sockets['multicast'] = receiver
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.bind(self._group)
        group = struct.pack('4s4s', *map(socket.inet_aton, (GROUP, self._address)))
        # An interface without multicast: no datagram arrives.
        with contextlib.suppress(OSError):
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)


def _receiver() -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)
    return receiver
