"""``doctor --peer`` and ``doctor --answer``: check the way between two hosts.

The doctor that asks sends requests over TCP, each a line of JSON; each answer is one too:

``hello`` {token, ports}: settings, MTU and UDP ports of the answering host. ``arrived``: which
datagrams came there. ``datagrams``: send such to the asking host, and close the ports. ``clock``:
times of reception and answer, ns since 1970. ``take`` {bytes}: drop as many that follow. ``give``
{bytes}: send as many. ``echo``: start a process that returns messages; the name of its topics.

Datagrams and bytes go only to the host that has connected.
"""

import contextlib
import importlib.util
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, NoReturn

import msgspec

from vdl_ros.common.quoting import quoted, shown
from vdl_ros.ros.checks import peer_checks
from vdl_ros.ros.checks.datagrams import ALL_SENT, Datagrams, Ports, interface_mtu
from vdl_ros.ros.checks.loopback import Endpoint, echo_command, end_echo, round_trips
from vdl_ros.ros.checks.peer_checks import Exchange, Way, read_settings
from vdl_ros.ros.environment import Finding, System, domain_id

#: TCP port of the doctor that answers: below 7400, where the ports of DDS start.
PORT = 7399
_MAX_MESSAGE = 16 << 10  # bytes of a message
_CHUNK = 1 << 16
_CONNECT_S, _ANSWER_S = 10.0, 60.0
# Exchanges for clock and round trip; fewer if the host is far.
_EXCHANGES, _MIN_EXCHANGES, _EXCHANGE_S = 400, 8, 3.0
# Bytes of one measurement of throughput, which grows until it lasts long enough.
_STREAM, _MAX_STREAM, _STREAM_S = 64 << 10, 64 << 20, 0.3
# bytes -> messages: a small one, and one of many datagrams.
_ROUNDS = {100: 200, 300_000: 20}
_DISCOVERY_S, _MESSAGE_S = 20.0, 10.0

_Text = Annotated[str, msgspec.Meta(max_length=2000)]


class _Request(msgspec.Struct, omit_defaults=True):
    request: Literal['hello', 'arrived', 'datagrams', 'clock', 'take', 'give', 'echo']
    token: Annotated[str, msgspec.Meta(pattern='^([0-9a-f]{32})?$')] = ''
    ports: Ports | None = None
    bytes: Annotated[int, msgspec.Meta(ge=0, le=_MAX_STREAM)] = 0


class _Answer(msgspec.Struct, omit_defaults=True):
    error: _Text = ''
    settings: dict[_Text, _Text] = {}
    mtu: int = 0
    ports: Ports | None = None
    arrived: list[tuple[str, int]] = []
    received: int = 0
    answered: int = 0
    name: Annotated[str, msgspec.Meta(pattern='^(vdl_doctor_[0-9a-f]{16})?$')] = ''


class _Wire:
    """One connection to another doctor; all methods raise OSError if that has ended."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_ANSWER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._file = connection, connection.makefile('rwb')
        self.local_address = str(connection.getsockname()[0])
        self.peer_address = str(connection.getpeername()[0])

    def send(self, message: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(message) + b'\n')
        self._file.flush()

    def receive(self, kind: type[Any]) -> Any:
        """Return the next message; None after the last one."""
        line = self._file.readline(_MAX_MESSAGE)
        if not line:
            return None
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise OSError(f'{error}: {quoted(line)}') from None

    def request(self, name: Any, **fields: Any) -> _Answer:
        """Send a request and return the answer; raises OSError also for an error."""
        self.send(_Request(name, **fields))
        answer: _Answer | None = self.receive(_Answer)
        if answer is None:
            raise OSError('the other doctor closed the connection')
        if answer.error:
            raise OSError(f'the other doctor: {quoted(answer.error, 200)}')
        return answer

    def send_zeros(self, count: int) -> None:
        for start in range(0, count, _CHUNK):
            self._file.write(bytes(min(_CHUNK, count - start)))
        self._file.flush()

    def drop(self, count: int) -> None:
        while count:
            data = self._file.read(min(count, _CHUNK))
            if not data:
                raise OSError('the other doctor closed the connection')
            count -= len(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what was not sent
            self._file.close()
        self._connection.close()


def serve(allowed: str, port: int, log: Callable[[str], None]) -> NoReturn:
    """Answer ``allowed``, or any host if it is '', until KeyboardInterrupt."""
    address = ''
    if allowed:
        try:
            allowed = _ipv4_address(allowed)
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
            if allowed and host != allowed:
                connection.close()
                log(f'doctor: refused {host}')
                continue
            log(f'doctor: {host} asks')
            try:
                with contextlib.ExitStack() as stack:
                    _answer(connection, stack)
                log(f'doctor: {host} is done')
            except OSError as error:
                log(f'doctor: {host}: {error.strerror or error}')


def _answer(connection: socket.socket, stack: contextlib.ExitStack) -> None:
    """Answer one doctor until it closes the connection; ``stack`` ends what was started."""
    wire = _Wire(connection)
    stack.callback(wire.close)
    system = System()
    datagrams: Datagrams | None = None
    token = ''
    ports: Ports | None = None
    while (request := wire.receive(_Request)) is not None:
        received, answer = time.time_ns(), _Answer()
        try:
            match request.request:
                case 'hello' if request.ports is not None:
                    token, ports = request.token, request.ports
                    datagrams = stack.enter_context(contextlib.closing(
                        Datagrams(wire.local_address, domain_id(system.environ))))
                    answer = _Answer(
                        settings=read_settings(system), mtu=interface_mtu(wire.local_address),
                        ports=datagrams.ports)
                case 'clock':
                    answer = _Answer(received=received, answered=time.time_ns())
                case 'arrived' if datagrams is not None:
                    answer = _Answer(arrived=sorted(datagrams.arrived(f'{token}a')))
                case 'datagrams' if datagrams is not None and ports is not None:
                    datagrams.send(wire.peer_address, ports, f'{token}b')
                    datagrams.close()  # their ports are those of a DDS participant
                case 'take':
                    wire.drop(request.bytes)
                case 'give':
                    wire.send_zeros(request.bytes)
                    continue
                case 'echo':
                    answer = _Answer(name=_start_echo(stack))
                case name:
                    raise OSError(f'{name} before hello')
        except (OSError, ValueError) as error:
            answer = _Answer(error=' '.join(str(error).split())[:200])
        wire.send(answer)


def _start_echo(stack: contextlib.ExitStack) -> str:
    name = f'vdl_doctor_{secrets.token_hex(8)}'
    # In a session of its own: Ctrl-C ends this process, which ends it.
    process = subprocess.Popen(
        echo_command(name), start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stack.callback(end_echo, process)
    assert process.stdout is not None
    if process.stdout.readline() != b'ready\n':
        raise OSError('the process that returns messages does not start')
    return name


def _ipv4_address(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
    except UnicodeError:
        raise OSError('not a name') from None


def _local_address(host: str) -> str:
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.connect((host, 9))  # sends nothing
        return str(probe.getsockname()[0])


def run(host: str, port: int, system: System) -> list[Finding]:
    """Return the findings about this host and ``host``; this host's settings must be valid."""
    name, findings = shown(host), []
    try:
        address = _ipv4_address(host)
    except OSError:
        return [Finding('peer', 'fail', f'{name} has no IPv4 address',
                        'use its address, or add its name to /etc/hosts')]
    label = name if name == address else f'{name} ({address})'
    try:
        wire = _Wire(socket.create_connection((address, port), _CONNECT_S))
    except ConnectionRefusedError:
        return [Finding('peer', 'fail', f'{label} is up, but no doctor answers at port {port}',
                        f'on {name}: ros2 run vdl_ros doctor --answer')]
    except OSError as error:
        return [Finding('peer', 'fail', f'{label} does not answer: {error.strerror or error}',
                        f'check its address and cable, and open its TCP port {port}')]
    with contextlib.closing(wire):
        findings.append(Finding(
            'peer', 'ok', f'{label} answers; this host is {wire.local_address}'))
        try:
            _ask(wire, name, read_settings(system), findings)
        except (OSError, ValueError) as error:
            findings.append(Finding(
                'peer', 'fail', 'the checks ended early: '
                f'{getattr(error, "strerror", None) or error}',
                f'see the output of doctor --answer on {name}'))
    return findings


def _ask(wire: _Wire, host: str, ours: dict[str, str], findings: list[Finding]) -> None:
    """Append the findings of all checks; raises OSError and ValueError."""
    token, domain = secrets.token_hex(16), int(ours['domain'])
    addresses = wire.local_address, wire.peer_address
    with contextlib.closing(Datagrams(wire.local_address, domain)) as datagrams:
        hello = wire.request('hello', token=token, ports=datagrams.ports)
        theirs = {name: hello.settings.get(name, '') for name in ours}
        findings += [peer_checks.check_domain_ids(ours, theirs),
                     peer_checks.check_ranges(ours, theirs, addresses),
                     peer_checks.check_settings(ours, theirs)]
        if hello.ports is None:
            raise OSError('no UDP ports')
        datagrams.send(wire.peer_address, hello.ports, f'{token}a')
        there = ALL_SENT.intersection(wire.request('arrived').arrived)
        wire.request('datagrams')
        here = datagrams.arrived(f'{token}b')
    ways = (Way(host, there, interface_mtu(wire.local_address),
                domain_id({'ROS_DOMAIN_ID': theirs['domain']})),
            Way('this host', frozenset(here), hello.mtu, domain))
    findings += peer_checks.check_ways(ways, (ours, theirs))
    exchanges = _exchange_times(wire)
    findings.append(peer_checks.check_clock_offset(exchanges))

    def give(count: int) -> None:
        wire.send(_Request('take', bytes=count))
        wire.send_zeros(count)
        wire.receive(_Answer)

    def take(count: int) -> None:
        wire.send(_Request('give', bytes=count))
        wire.drop(count)

    findings.append(peer_checks.check_hop(exchanges, (_rate(give), _rate(take))))
    findings.append(_dds(wire.request('echo').name))


def _exchange_times(wire: _Wire) -> list[Exchange]:
    found: list[Exchange] = []
    end = time.monotonic() + _EXCHANGE_S
    while len(found) < _EXCHANGES and (len(found) < _MIN_EXCHANGES or time.monotonic() < end):
        sent, began = time.time_ns(), time.perf_counter_ns()
        answer = wire.request('clock')
        # Not a second time_ns: the clock may be set meanwhile.
        returned = sent + time.perf_counter_ns() - began
        found.append(Exchange(sent, answer.received, answer.answered, returned))
    return found


def _rate(stream: Callable[[int], None]) -> float:
    count = _STREAM
    while True:
        began = time.perf_counter()
        stream(count)
        seconds = time.perf_counter() - began
        if seconds >= _STREAM_S or count >= _MAX_STREAM:
            return count / seconds
        count = min(4 * count, _MAX_STREAM)


def _dds(name: str) -> Finding:
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
