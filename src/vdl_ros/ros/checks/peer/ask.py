"""
The checks of ``doctor --peer HOST``: ask the doctor that answers on the other host.

Each step sends requests and turns the responses into findings. All of it runs over one TCP
connection, except the datagrams and the DDS messages, which take the ways of a real graph.
"""

from __future__ import annotations

import importlib.util
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from vdl_ros.common.quoting import shown
from vdl_ros.ros.checks.loopback import Endpoint, round_trips
from vdl_ros.ros.checks.peer import host_settings, network_checks
from vdl_ros.ros.checks.peer.answer import LARGEST_STREAM, ipv4_address
from vdl_ros.ros.checks.peer.clock_offset import Exchange
from vdl_ros.ros.checks.peer.datagrams import ALL_SENT, Arrival, Datagrams, interface_mtu, mark
from vdl_ros.ros.checks.peer.wire import Wire, WireError, text, whole_number
from vdl_ros.ros.checks.types import Finding, System

__all__ = ['run']

_CONNECT_S, _STEP_S, _WHOLE_S = 10.0, 60.0, 280.0
# Exchanges for clock and round trip; fewer if the host is far.
_EXCHANGES, _FEWEST, _EXCHANGE_S = 400, 8, 3.0
_STREAM, _STREAM_S = 64 << 10, 0.3
_LATEST_NS = 1 << 62
# bytes -> messages: a small one, and one of many datagrams.
_ROUNDS = {100: 200, 300_000: 20}
_DISCOVERY_S, _MESSAGE_S = 20.0, 10.0
_NAME = re.compile('vdl_doctor_[0-9a-f]{16}')


def run(host: str, port: int, system: System) -> list[Finding]:
    """Return the findings about this host and ``host``; this host's settings must be valid."""
    ours = host_settings.read_settings(system)
    wire, finding = _connect(host, port)
    if wire is None:
        return [finding]
    findings = [finding]
    try:
        _Asker(wire, shown(host), ours, findings.append).run()
    except WireError as error:
        findings.append(Finding('peer', 'fail', f'the checks ended early: {error}',
                                f'see the output of doctor --answer on {shown(host)}'))
    except OSError as error:  # of the sockets of this host
        findings.append(Finding('peer', 'fail', f'the checks ended early: {error}',
                                'end other programs that use the ports of this ROS_DOMAIN_ID'))
    finally:
        wire.close()
    return findings


def _connect(host: str, port: int) -> tuple[Wire | None, Finding]:
    name = shown(host)
    try:
        address = ipv4_address(host)
    except OSError:
        return None, Finding('peer', 'fail', f'{name} has no IPv4 address',
                             'use its address, or add its name to /etc/hosts')
    label = name if name == address else f'{name} ({address})'
    try:
        connection = socket.create_connection((address, port), _CONNECT_S)
    except ConnectionRefusedError:
        return None, Finding('peer', 'fail', f'{label} is up, but no doctor answers at port '
                             f'{port}', f'on {name}: ros2 run vdl_ros doctor --answer')
    except OSError as error:
        return None, Finding('peer', 'fail', f'{label} does not answer: '
                             f'{error.strerror or error}', f'check its address and cable, and '
                             f'open its TCP port {port}')
    wire = Wire(connection, _STEP_S, _WHOLE_S)
    return wire, Finding('peer', 'ok', f'{label} answers; this host is {wire.local_address}')


class _Asker:
    """The steps, in order; each passes its findings on."""

    def __init__(
        self, wire: Wire, host: str, ours: Mapping[str, str], report: Callable[[Finding], None],
    ) -> None:
        self._wire, self._host, self._ours, self._report = wire, host, ours, report
        self._token = secrets.token_hex(16)

    def run(self) -> None:
        """Run all checks; raises WireError and OSError."""
        answer = self._wire.request('hello', token=self._token)
        theirs = answer.get('settings')
        if not isinstance(theirs, dict):
            raise WireError('no settings')
        theirs = {name: text(theirs, name, 2000) for name in host_settings.NAMES}
        mtu = whole_number(answer, 'mtu', 0, 1 << 20)
        addresses = self._wire.local_address, self._wire.peer_address
        try:
            domain = host_settings.domain_id({'ROS_DOMAIN_ID': theirs['domain']})
        except ValueError as error:
            raise WireError(f'the other doctor: {error}') from None
        self._report(host_settings.check_domain_ids(self._ours, theirs))
        self._report(host_settings.check_ranges(self._ours, theirs, addresses))
        self._report(host_settings.check_settings(self._ours, theirs))
        self._network(theirs, domain, mtu)
        exchanges = self._exchange_times()
        self._report(network_checks.check_clock_offset(exchanges))
        self._report(network_checks.check_hop(exchanges, self._rates()))
        self._report(self._dds())
        self._wire.send({'request': 'goodbye'})

    def _network(self, theirs: dict[str, str], other: int, mtu: int) -> None:
        domain = int(self._ours['domain'])
        datagrams = Datagrams(self._wire.local_address, domain)
        try:
            opened = self._wire.request('open')
            ports = {name: whole_number(opened, name, 1024, 65535) for name in datagrams.ports}
            datagrams.send(self._wire.peer_address, ports, mark(self._token, True))
            there = _arrivals(self._wire.request('arrived'))
            self._wire.request('datagrams', **datagrams.ports)
            here = frozenset(datagrams.arrived(mark(self._token, False)))
            self._wire.request('close')
        finally:
            datagrams.close()
        ours = interface_mtu(self._wire.local_address)
        ways = (network_checks.Way(self._host, there, ours, other),
                network_checks.Way('this host', here, mtu, domain))
        settings = self._ours, theirs
        self._report(network_checks.check_unicast(ways))
        self._report(network_checks.check_multicast(ways, settings))
        self._report(network_checks.check_path_mtu(ways))
        self._report(network_checks.check_fragments(ways, settings))

    def _exchange_times(self) -> list[Exchange]:
        found: list[Exchange] = []
        end = time.monotonic() + _EXCHANGE_S
        while len(found) < _EXCHANGES and (len(found) < _FEWEST or time.monotonic() < end):
            sent, began = time.time_ns(), time.perf_counter_ns()
            answer = self._wire.request('clock')
            # Not a second time_ns: the clock may be set meanwhile.
            returned = sent + time.perf_counter_ns() - began
            received, answered = (whole_number(answer, name, 0, _LATEST_NS)
                                  for name in ('received', 'answered'))
            found.append(Exchange(sent, received, answered, returned))
        return found

    def _rates(self) -> tuple[float, float]:
        """Return the throughput to and from the peer, B/s."""
        def give(count: int) -> None:
            self._wire.send({'request': 'take', 'bytes': count})
            self._wire.send_zeros(count)
            self._wire.receive()

        def take(count: int) -> None:
            self._wire.send({'request': 'give', 'bytes': count})
            self._wire.drop(count)

        return _rate(give), _rate(take)

    def _dds(self) -> Finding:
        name = self._wire.request('echo').get('name')
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise WireError('the name of the topics is not allowed')
        if importlib.util.find_spec('rclpy') is None:
            return Finding('DDS', 'fail', 'not measured: rclpy cannot be imported',
                           'source setup.bash')
        arrivals: list[float] = []
        began = time.perf_counter()
        peer = Endpoint(name, f'{name}/ping', f'{name}/pong',
                        lambda _: arrivals.append(time.perf_counter()))
        figures: dict[str, float] = {}
        try:
            if not peer.until(peer.matched, _DISCOVERY_S):
                return Finding('DDS', 'fail', 'the nodes of the two hosts do not discover each '
                               f'other within {_DISCOVERY_S:g} s', 'resolve the lines above '
                               'first: domain, discovery, unicast, multicast')
            figures['discovery_s'] = round(time.perf_counter() - began, 3)
            for size, rounds in _ROUNDS.items():
                trips = round_trips(peer, arrivals, size, rounds, _MESSAGE_S)
                figures[f'p50_ms_{size}_bytes'] = round(trips[rounds // 2] * 1e3, 3)
        except TimeoutError as error:
            return Finding('DDS', 'fail', str(error), 'resolve the lines above first: unicast, '
                           'path MTU, IP fragments', figures)
        finally:
            peer.close()
        trips_text = ', '.join(f'{size / 1e3:g} KB {figures[f"p50_ms_{size}_bytes"]:.2f} ms'
                               for size in _ROUNDS)
        return Finding('DDS', 'ok', f'discovered within {figures["discovery_s"]:.1f} s; '
                       f'round trip p50 {trips_text}', '', figures)


def _arrivals(answer: Mapping[str, Any]) -> frozenset[Arrival]:
    items = answer.get('arrived')
    if not isinstance(items, list):
        raise WireError('arrived is no list')
    # What was not sent cannot have arrived, whatever the other side says.
    return frozenset(each for each in ALL_SENT if list(each) in items)


def _rate(stream: Callable[[int], None]) -> float:
    """Return the throughput of a stream that lasts long enough to be measured, B/s."""
    count = _STREAM
    while True:
        began = time.perf_counter()
        stream(count)
        seconds = time.perf_counter() - began
        if seconds >= _STREAM_S or count >= LARGEST_STREAM:
            return count / seconds
        count = min(4 * count, LARGEST_STREAM)
