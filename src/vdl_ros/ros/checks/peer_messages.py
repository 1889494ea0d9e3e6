"""Messages between two doctors: JSON objects over TCP, of bounded size, in bounded time.

A message is its length, four bytes big-endian, and that many bytes of UTF-8. Fields are read by
:func:`whole_number` and :func:`text`, which check type and range.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

import psutil

from vdl_ros.common.quoting import quoted
from vdl_ros.ros.dds.transport import LARGE_DATAGRAM, SOCKET_BUFFER, UDP_HEADERS

__all__ = ['ALL_SENT', 'Arrival', 'Datagrams', 'GROUP', 'LONGEST', 'PACKETS', 'PORT', 'SMALL',
           'Wire', 'WireError', 'domain_ports', 'interface_mtu', 'mark', 'text', 'whole_number']


# TCP port of the doctor that answers: below 7400, where the ports of DDS start.
PORT = 7399
LONGEST = 16 << 10  # bytes of a message
_LENGTH = struct.Struct('!I')
_CHUNK = 1 << 16


class WireError(ConnectionError):
    """The other doctor has ended, does not answer, or sent what is not allowed; one line."""


class Wire:
    """One connection to another doctor."""

    def __init__(self, connection: socket.socket, step: float, whole: float) -> None:
        self._connection, self._step = connection, step
        self._end = time.monotonic() + whole
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def local_address(self) -> str:
        """Return the address of this host that the connection uses."""
        return str(self._connection.getsockname()[0])

    @property
    def peer_address(self) -> str:
        """Return the address of the other host."""
        return str(self._connection.getpeername()[0])

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; raises WireError."""
        data = json.dumps(message).encode()
        self._send(_LENGTH.pack(len(data)) + data)

    def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            WireError: there is none, it is too long, or it is no JSON object.
        """
        length, = _LENGTH.unpack(self._receive(_LENGTH.size))
        if length > LONGEST:
            raise WireError(f'a message of {length} bytes; at most {LONGEST} are allowed')
        data = self._receive(length)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise WireError(f'no JSON: {quoted(data)}') from None
        if not isinstance(message, dict):
            raise WireError(f'no JSON object: {quoted(data)}')
        return message

    def request(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return the response.

        Raises:
            WireError: there is none, or it is an error.
        """
        self.send({'request': name, **fields})
        answer = self.receive()
        if 'error' in answer:
            raise WireError(f'the other doctor: {quoted(answer["error"], 200)}')
        return answer

    def send_zeros(self, count: int) -> None:
        """Send ``count`` bytes; raises WireError."""
        chunk = bytes(_CHUNK)
        for start in range(0, count, _CHUNK):
            self._send(chunk[:count - start])

    def drop(self, count: int) -> None:
        """Receive ``count`` bytes and drop them; raises WireError."""
        while count:
            count -= len(self._receive_some(min(count, _CHUNK)))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            data += self._receive_some(count - len(data))
        return bytes(data)

    def _receive_some(self, count: int) -> bytes:
        self._limit()
        try:
            data = self._connection.recv(count)
        except OSError as error:
            raise self._failure(error) from None
        if not data:
            raise WireError('the other doctor closed the connection')
        return data

    def _send(self, data: bytes) -> None:
        self._limit()
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise self._failure(error) from None

    def _limit(self) -> None:
        rest = self._end - time.monotonic()
        if rest <= 0.0:
            raise WireError('the checks took too long')
        self._connection.settimeout(min(rest, self._step))

    def _failure(self, error: OSError) -> WireError:
        if isinstance(error, TimeoutError):
            return WireError(f'no data within {self._step:g} s')
        return WireError(f'the connection ended: {error.strerror or error}')


def whole_number(message: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """Return a field that is a whole number from ``low`` to ``high``; raises WireError."""
    value = message.get(name)
    if type(value) is not int or not low <= value <= high:
        raise WireError(f'{name} is {quoted(value)}; allowed: a whole number from {low} to {high}')
    return value


def text(message: Mapping[str, Any], name: str, longest: int) -> str:
    """Return a field that is a text of at most ``longest`` characters; raises WireError."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise WireError(f'{name} is {quoted(value)}; allowed: at most {longest} characters')
    return value


GROUP = '239.255.0.1'  # of DDS discovery
SMALL = 256  # bytes
# Whole IP packets that are sent unfragmented, bytes: Ethernet, PPPoE, tunnels, VPNs, overlays.
PACKETS = (576, 1000, 1280, 1372, 1400, 1420, 1450, 1476, 1492, 1500, 4000, 9000)
COPIES = 4  # of each datagram, because single ones may be lost
# Of <linux/in.h>, which Python's socket module does not have.
_IP_MTU_DISCOVER, _PMTUDISC_WANT, _PMTUDISC_PROBE = 10, 1, 3
_PAUSE_S = 0.001
_QUIET_S = 1.0
_LONGEST_S = 10.0
_MAGIC = b'vdl_doctor'

# The socket, ``discovery``, ``data`` or ``multicast``, and the size in bytes.
Arrival = tuple[str, int]
ALL_SENT: frozenset[Arrival] = frozenset([
    ('discovery', SMALL), ('data', SMALL), ('multicast', SMALL), ('data', LARGE_DATAGRAM),
    *(('data', packet - UDP_HEADERS) for packet in PACKETS)])


def domain_ports(domain: int) -> range:
    """Return the UDP ports of a domain."""
    return range(7400 + 250 * domain, min(7400 + 250 * domain + 250, 65536))


def mark(token: str, asks: bool) -> bytes:
    """Return what marks datagrams of a session, of the doctor that asks or that answers."""
    return bytes.fromhex(token) + (b'a' if asks else b'b')


def interface_mtu(address: str) -> int:
    """Return the MTU of the interface with an address, in bytes; 0 if there is none."""
    for name, items in psutil.net_if_addrs().items():
        if any(item.address == address for item in items):
            return int(psutil.net_if_stats()[name].mtu)
    return 0


class Datagrams:
    """The sockets of one host: those of a free DDS participant, and that of multicast.

    Raises:
        OSError: all ports of the domain are taken.
    """

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
    def ports(self) -> dict[str, int]:
        """Return the unicast ports, ``discovery`` and ``data``."""
        return {name: self._sockets[name].getsockname()[1] for name in ('discovery', 'data')}

    def send(self, address: str, ports: dict[str, int], mark: bytes) -> None:
        """Send the datagrams of ``ALL_SENT``, each some times; ``mark`` is token and direction."""
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
                    to = self._group if name == 'multicast' else (address, ports[name])
                    head = _MAGIC + mark
                    # Larger than the interface's MTU, or no route: it does not arrive.
                    with contextlib.suppress(OSError):
                        sender.sendto(head + bytes(size - len(head)), to)
                    time.sleep(_PAUSE_S)

    def arrived(self, mark: bytes, expected: Iterable[Arrival] = ALL_SENT) -> set[Arrival]:
        """Return what has arrived with this mark.

        It waits until all expected datagrams are there, or none came for a second.
        """
        missing, found = set(expected), set()
        head = _MAGIC + mark
        names = {each: name for name, each in self._sockets.items()}
        end = time.monotonic() + _LONGEST_S
        while missing and time.monotonic() < end:
            ready = select.select(list(names), [], [], _QUIET_S)[0]
            if not ready:
                break
            for each in ready:
                data = each.recv(1 << 16)
                if data.startswith(head):
                    found.add((names[each], len(data)))
            missing -= found
        return found & set(expected)

    def close(self) -> None:
        """Close the sockets."""
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
