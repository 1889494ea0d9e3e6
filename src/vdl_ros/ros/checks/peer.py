"""The other side of ``doctor --peer``: answer the requests of one doctor at a time.

Requests (JSON, see ``wire``) and their responses:

``hello`` {token, address}: settings of this host, its interface's MTU.
``clock``: times of reception and response, ns since 1970.
``open``: receive UDP datagrams; the ports. ``datagrams`` {discovery, data}: send such to these
ports of the asking host. ``arrived``: what has arrived. ``close``: receive no more.
``take`` {bytes}: drop as many bytes that follow. ``give`` {bytes}: send as many.
``echo``: start a process that returns messages; the name of its topics.

Datagrams and bytes go only to the host that has connected, and are limited.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from vdl_ros.common.quoting import shown
from vdl_ros.ros.checks import peer_checks
from vdl_ros.ros.checks.loopback import Endpoint, echo_command, round_trips
from vdl_ros.ros.checks.machine import Finding, System
from vdl_ros.ros.checks.peer_checks import Exchange, domain_id, read_settings
from vdl_ros.ros.checks.peer_messages import (
    ALL_SENT,
    Arrival,
    Datagrams,
    Wire,
    WireError,
    interface_mtu,
    mark,
    text,
    whole_number,
)

__all__ = ['LARGEST_STREAM', 'ipv4_address', 'run', 'serve']


LARGEST_STREAM = 64 << 20  # bytes of one measurement of throughput
_STREAMED = 1 << 30  # bytes of a session
_REQUESTS = 2000
_STEP_S, _SESSION_S = 60.0, 300.0
_TOKEN = 32  # hexadecimal digits


def serve(allowed: str, port: int, log: Callable[[str], None]) -> NoReturn:
    """Answer until KeyboardInterrupt; the settings of this host must be valid.

    Args:
        allowed: host that may ask; '' for any.
        log: takes each line for the user.

    Raises:
        OSError: ``allowed`` has no address, or the port cannot be used.
    """
    address = ''
    if allowed:
        try:
            allowed = ipv4_address(allowed)
            address = _local_address(allowed)
        except OSError as error:
            raise OSError(f'{shown(allowed)}: {error.strerror or error}') from None
    try:
        listener = socket.create_server((address, port))
    except OSError as error:
        raise OSError(f'TCP port {port}: {error.strerror or error}') from None
    with listener:
        log(f'doctor: answering {allowed or "every host that asks"} at '
            f'{address or "all addresses"} port {port}; Ctrl-C ends it')
        while True:
            connection, (host, _) = listener.accept()
            with connection:
                if allowed and host != allowed:
                    log(f'doctor: refused {host}')
                    continue
                log(f'doctor: {host} asks')
                session = _Session(Wire(connection, _STEP_S, _SESSION_S))
                try:
                    session.run()
                    log(f'doctor: {host} is done')
                except WireError as error:
                    log(f'doctor: {host}: {error}')
                finally:
                    session.close()


class _Session:
    """The requests of one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._token, self._streamed = wire, '', 0
        self._system = System()
        self._datagrams: Datagrams | None = None
        self._echo: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Answer until the other side says goodbye; raises WireError."""
        answers = {'hello': self._hello, 'clock': self._clock, 'open': self._open,
                   'datagrams': self._send_datagrams, 'arrived': self._arrived,
                   'close': self._close_datagrams, 'take': self._take, 'give': self._give,
                   'echo': self._start_echo}
        for _ in range(_REQUESTS):
            request = self._wire.receive()
            received = time.time_ns()
            name = text(request, 'request', 20)
            if name == 'goodbye':
                return
            if name not in answers or not (self._token or name == 'hello'):
                raise WireError(f'no such request: {shown(name)}')
            try:
                answer = answers[name](request | {'received': received})
            except WireError:
                raise
            except (OSError, ValueError) as error:
                answer = {'error': ' '.join(str(error).split())[:200]}
            if answer is not None:
                self._wire.send(answer)
        raise WireError(f'more than {_REQUESTS} requests')

    def close(self) -> None:
        """End what was started."""
        self._close_datagrams({})
        if self._echo is None:
            return
        assert self._echo.stdin is not None
        assert self._echo.stdout is not None
        self._echo.stdin.close()  # ends it
        try:
            self._echo.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._echo.kill()
            self._echo.wait()
        self._echo.stdout.close()

    def _hello(self, request: Mapping[str, Any]) -> dict[str, Any]:
        token = text(request, 'token', _TOKEN)
        if len(token) != _TOKEN or set(token) - set('0123456789abcdef'):
            raise WireError('the token is not allowed')
        self._token = token
        return {'settings': read_settings(self._system),
                'mtu': interface_mtu(self._wire.local_address)}

    def _clock(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {'received': request['received'], 'answered': time.time_ns()}

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._close_datagrams({})
        self._datagrams = Datagrams(self._wire.local_address, domain_id(self._system.environ))
        return self._datagrams.ports

    def _send_datagrams(self, request: Mapping[str, Any]) -> dict[str, Any]:
        ports = {name: whole_number(request, name, 1024, 65535) for name in ('discovery', 'data')}
        self._opened().send(self._wire.peer_address, ports, mark(self._token, False))
        return {}

    def _arrived(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {'arrived': sorted(self._opened().arrived(mark(self._token, True)))}

    def _close_datagrams(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None
        return {}

    def _opened(self) -> Datagrams:
        if self._datagrams is None:
            raise WireError('datagrams before open')
        return self._datagrams

    def _stream(self, request: Mapping[str, Any]) -> int:
        count = whole_number(request, 'bytes', 1, LARGEST_STREAM)
        self._streamed += count
        if self._streamed > _STREAMED:
            raise WireError(f'more than {_STREAMED} bytes')
        return count

    def _take(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._wire.drop(self._stream(request))
        return {}

    def _give(self, request: Mapping[str, Any]) -> None:
        self._wire.send_zeros(self._stream(request))

    def _start_echo(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._echo is not None:
            raise WireError('a second echo')
        name = f'vdl_doctor_{secrets.token_hex(8)}'
        # In a session of its own: Ctrl-C ends this process, which ends it.
        self._echo = subprocess.Popen(
            echo_command(name), start_new_session=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        assert self._echo.stdout is not None
        if self._echo.stdout.readline() != b'ready\n':
            raise OSError('the process that returns messages does not start')
        return {'name': name}


def ipv4_address(host: str) -> str:
    """Return the first IPv4 address of a host; raises OSError if it has none."""
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
    except UnicodeError:
        raise OSError('not a name') from None


def _local_address(host: str) -> str:
    """Return this host's address on the way to ``host``; raises OSError."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.connect((host, 9))  # sends nothing
        return str(probe.getsockname()[0])


_CONNECT_S, _ANSWER_S, _WHOLE_S = 10.0, 60.0, 280.0
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
    ours = peer_checks.read_settings(system)
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
    wire = Wire(connection, _ANSWER_S, _WHOLE_S)
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
        theirs = {name: text(theirs, name, 2000) for name in peer_checks.NAMES}
        mtu = whole_number(answer, 'mtu', 0, 1 << 20)
        addresses = self._wire.local_address, self._wire.peer_address
        try:
            domain = peer_checks.domain_id({'ROS_DOMAIN_ID': theirs['domain']})
        except ValueError as error:
            raise WireError(f'the other doctor: {error}') from None
        self._report(peer_checks.check_domain_ids(self._ours, theirs))
        self._report(peer_checks.check_ranges(self._ours, theirs, addresses))
        self._report(peer_checks.check_settings(self._ours, theirs))
        self._network(theirs, domain, mtu)
        exchanges = self._exchange_times()
        self._report(peer_checks.check_clock_offset(exchanges))
        self._report(peer_checks.check_hop(exchanges, self._rates()))
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
        ways = (peer_checks.Way(self._host, there, ours, other),
                peer_checks.Way('this host', here, mtu, domain))
        settings = self._ours, theirs
        self._report(peer_checks.check_unicast(ways))
        self._report(peer_checks.check_multicast(ways, settings))
        self._report(peer_checks.check_path_mtu(ways))
        self._report(peer_checks.check_fragments(ways, settings))

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
