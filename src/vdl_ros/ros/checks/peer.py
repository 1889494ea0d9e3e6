"""``doctor --peer`` and ``doctor --answer``: check the way between two hosts.

The doctor that asks sends requests over TCP, each a line of JSON; each answer is one too:

``hello`` {token, ports}: settings, MTU and UDP ports of the answering host. ``arrived``: which
datagrams came there. ``datagrams``: send such to the asking host, and close the ports. ``clock``:
times of reception and answer, ns since 1970. ``take`` {bytes}: drop as many that follow. ``give``
{bytes}: send as many. ``echo``: start a process that returns messages; the name of its topics.

Datagrams and bytes go only to the host that has connected.
"""

import contextlib
import hashlib
import importlib.util
import platform
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import msgspec

from vdl_ros.common.files import find_resource
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.ros.checks import machine
from vdl_ros.ros.checks.datagrams import (
    ALL_SENT,
    GROUP,
    PACKETS,
    SMALL,
    Arrival,
    Datagrams,
    Ports,
    domain_ports,
    interface_mtu,
)
from vdl_ros.ros.checks.loopback import Endpoint, echo_command, end_echo, round_trips
from vdl_ros.ros.dds import transport
from vdl_ros.ros.dds.transport import FRAME_DATAGRAM, LARGE_DATAGRAM, UDP_HEADERS
from vdl_ros.ros.environment import LOOPBACK_ADVICE, Finding, System, domain_id, is_up


class Exchange(NamedTuple):
    """The times of a request and its answer, ns: two of this host's clock, two of the peer's."""

    sent: int
    received: int
    answered: int
    returned: int


def estimate_offset(exchanges: Sequence[Exchange]) -> tuple[float, float]:
    """Return the peer's clock minus this host's, and the largest error of it, both in s.

    The exchange with the least delay has the least queueing; half of its delay bounds the error
    (NTP, RFC 5905, section 8).
    """
    delay, best = min(((each.returned - each.sent) - (each.answered - each.received), each)
                      for each in exchanges)
    offset = ((best.received - best.sent) + (best.answered - best.returned)) / 2
    return offset / 1e9, max(delay, 0) / 2e9


def read_settings(system: System) -> dict[str, str]:
    """Return the settings of this host by name; raises ValueError for those that are wrong."""
    environ = system.environ
    choice = transport.choose(environ, transport.Host.read(system.root))
    scope = environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '').upper() or 'SUBNET'
    return {
        'vdl_ros': transport.package_version('vdl_ros', environ),
        'Python': platform.python_version(),
        'ROS': machine.ros_version(system),
        'middleware': machine.middleware(system),
        'domain': str(domain_id(environ)),
        'range': 'LOCALHOST' if environ.get('ROS_LOCALHOST_ONLY') == '1' else scope,
        'static peers': environ.get('ROS_STATIC_PEERS', ''),
        'loop-back': 'up' if is_up(system, 'lo') else 'down',
        'transport': choice.name,
        'messages': _messages(),
        'SROS2': 'on' if environ.get('ROS_SECURITY_ENABLE') == 'true' else 'off',
    }


def _messages() -> str:
    """Return a hash of the definitions of messages and services."""
    digest = hashlib.sha256()
    for folder in ('msg', 'srv'):
        for path in sorted(find_resource(folder).glob(f'*.{folder}')):
            digest.update(path.name.encode() + b'\0' + path.read_bytes() + b'\0')
    return digest.hexdigest()[:12]


def check_domain_ids(here: Mapping[str, str], there: Mapping[str, str]) -> Finding:
    ours, theirs = here['domain'], there['domain']
    if ours != theirs:
        return Finding('domain', 'fail', f'ROS_DOMAIN_ID is {ours} here and {shown(theirs)} there',
                       'export the same ROS_DOMAIN_ID on both')
    return Finding('domain', 'ok', f'{ours} on both')


def check_ranges(
    here: Mapping[str, str], there: Mapping[str, str], addresses: tuple[str, str],
) -> Finding:
    down = [place for place, host in (('here', here), ('there', there))
            if host['loop-back'] == 'down']
    if down:
        return Finding('discovery', 'fail', f'the loop-back interface lo is down '
                       f'{" and ".join(down)}: DDS does not start', LOOPBACK_ADVICE)
    problems = []
    for place, host, other in (('here', here, addresses[1]), ('there', there, addresses[0])):
        environ = {'ROS_AUTOMATIC_DISCOVERY_RANGE': host['range'],
                   'ROS_STATIC_PEERS': host['static peers']}
        if not transport.reaches_other_hosts(environ) and not other.startswith('127.'):
            problems.append(f'{shown(host["range"])} {place}')
    if problems:
        return Finding('discovery', 'fail', f'the range is {" and ".join(problems)}: nodes do not '
                       'look for other hosts', 'export ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET, or '
                       f'ROS_STATIC_PEERS={addresses[1]} here and {addresses[0]} there')
    text = '; '.join(f'{shown(host["range"])} {place}' + (
        f', static peers {shown(host["static peers"])}' if host['static peers'] else '')
        for place, host in (('here', here), ('there', there)))
    return Finding('discovery', 'ok', text)


def check_settings(here: Mapping[str, str], there: Mapping[str, str]) -> Finding:
    """Compare what remains: messages of different definitions are not exchanged."""
    other = here['middleware'].split(' ')[0] != there['middleware'].split(' ')[0]
    version = 'install the same version on both'
    table = (('messages', 'fail', version),
             ('SROS2', 'fail', 'set ROS_SECURITY_ENABLE alike on both (docs/security.md)'),
             ('middleware', 'fail' if other else 'warn',
              'export the same RMW_IMPLEMENTATION on both' if other else version),
             ('vdl_ros', 'warn', version), ('ROS', 'warn', version),
             ('transport', 'ok', ''), ('Python', 'ok', ''))
    found = [row for row in table if here[row[0]] != there[row[0]]]
    if not found:
        return Finding('settings', 'ok', 'versions, messages and settings are the same on both')
    status = max((row[1] for row in found), key=('ok', 'warn', 'fail').index)
    text = '; '.join(f'{name} {shown(here[name]) or "unknown"} here, '
                     f'{shown(there[name]) or "unknown"} there' for name, _, _ in found)
    return Finding('settings', status, text,
                   '; '.join(dict.fromkeys(row[2] for row in found if row[2])))


MAX_OFFSET = 0.010  # of the clocks, s: ages of messages are in ms


class Way(NamedTuple):
    """One direction between the hosts."""

    receiver: str  # in sentences
    arrived: frozenset[Arrival]
    mtu: int  # of the sender's interface, bytes; 0 if unknown
    domain: int

    @property
    def packet(self) -> int:
        """Return the largest unfragmented IP packet that arrived, bytes; 0 for none."""
        return max((size + UDP_HEADERS for name, size in self.arrived
                    if name == 'data' and size + UDP_HEADERS in PACKETS), default=0)


def check_ways(ways: Sequence[Way], settings: Sequence[Mapping[str, str]]) -> list[Finding]:
    """Judge the datagrams that arrived; if small ones do not, larger ones tell nothing."""
    found = [_unicast(ways), _multicast(ways, settings)]
    if found[0].status != 'ok':
        return found + [
            Finding(name, 'warn', 'not measured: datagrams do not arrive', 'see unicast')
            for name in ('path MTU', 'IP fragments')]
    return [*found, _path_mtu(ways), _fragments(ways, settings)]


def _at(ways: Sequence[Way]) -> str:
    return ' and '.join(f'at {way.receiver}' for way in ways)


def _unicast(ways: Sequence[Way]) -> Finding:
    wanted = {('discovery', SMALL), ('data', SMALL)}
    closed = [way for way in ways if not wanted <= way.arrived]
    if not closed:
        return Finding('unicast', 'ok', 'the UDP ports of DDS are reached in both directions')
    advice = '; '.join(
        f'open the UDP ports {ports[0]} to {ports[-1]} of {way.receiver}'
        for way in closed for ports in (domain_ports(way.domain),))
    return Finding('unicast', 'fail', f'UDP datagrams do not arrive {_at(closed)}',
                   f'{advice} (sudo ufw status, sudo nft list ruleset)')


def _multicast(ways: Sequence[Way], settings: Sequence[Mapping[str, str]]) -> Finding:
    if ways[0].domain != ways[1].domain:
        return Finding('multicast', 'warn', 'not tested: the domains differ', 'see domain')
    silent = [way for way in ways if ('multicast', SMALL) not in way.arrived]
    if not silent:
        return Finding('multicast', 'ok', f'{GROUP} is received in both directions')
    text = f'datagrams to {GROUP} do not arrive {_at(silent)}'
    if any(each['static peers'] for each in settings):
        return Finding('multicast', 'ok', f'{text}; static peers do not need them')
    return Finding('multicast', 'warn', text,
                   'on both, export ROS_STATIC_PEERS with the address of the other host')


def _path_mtu(ways: Sequence[Way]) -> Finding:
    low = [way for way in ways
           if way.packet < max(size for size in PACKETS if size <= max(way.mtu, PACKETS[0]))]
    least = min(way.packet for way in ways)
    figures = {'packet_bytes': least}
    if not low:
        return Finding('path MTU', 'ok', f'packets of {least} bytes arrive in both directions',
                       '', figures)
    worst = min(low, key=lambda way: way.packet)
    text = f'packets of more than {worst.packet} bytes do not arrive at {worst.receiver}, ' \
           f'although the MTU is {worst.mtu}'
    advice = f'sudo ip link set dev INTERFACE mtu {worst.packet} on both'
    needed, status = FRAME_DATAGRAM + UDP_HEADERS, 'warn'
    if worst.packet < needed:
        text, status = f'{text}; large messages need {needed}', 'fail'
    return Finding('path MTU', status, text, advice, figures)


def _fragments(ways: Sequence[Way], settings: Sequence[Mapping[str, str]]) -> Finding:
    lost = [way for way in ways if ('data', LARGE_DATAGRAM) not in way.arrived]
    if not lost:
        return Finding('IP fragments', 'ok', 'datagrams of 64 KB arrive in both directions')
    text = f'datagrams of 64 KB do not arrive {_at(lost)}'
    if all(each['transport'] == 'udp' for each in settings):
        return Finding('IP fragments', 'warn', f'{text}; VDL_TRANSPORT=auto sends none',
                       'nodes without the profile of vdl_ros lose large messages '
                       '(docs/transport.md)')
    return Finding('IP fragments', 'fail', text, 'export VDL_TRANSPORT=auto on both')


def check_clock_offset(exchanges: Sequence[Exchange]) -> Finding:
    offset, uncertainty = estimate_offset(exchanges)
    text = f'{abs(offset) * 1e3:.3f} ms {"ahead" if offset >= 0 else "behind"}, ' \
           f'uncertain by {uncertainty * 1e3:.3f} ms'
    advice = ''
    if abs(offset) - uncertainty > MAX_OFFSET:
        text += ': ages of messages between the hosts are wrong'
        advice = 'synchronise both clocks: sudo apt install chrony'
    return Finding('clock offset', 'warn' if advice else 'ok', text, advice,
                   {'offset_s': offset, 'uncertainty_s': uncertainty})


def check_hop(exchanges: Sequence[Exchange], rates: Sequence[float]) -> Finding:
    trips = sorted((each.returned - each.sent) / 1e6 for each in exchanges)
    p50, p99 = trips[len(trips) // 2], trips[min(len(trips) * 99 // 100, len(trips) - 1)]
    there, back = (rate / 1e6 for rate in rates)
    return Finding('TCP', 'ok', f'round trip p50 {p50:.2f} ms, p99 {p99:.2f} ms; '
                   f'{there:.1f} MB/s there, {back:.1f} MB/s back', '',
                   {'p50_ms': round(p50, 3), 'p99_ms': round(p99, 3),
                    'MBps_there': round(there, 1), 'MBps_back': round(back, 1)})


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
        findings += [check_domain_ids(ours, theirs),
                     check_ranges(ours, theirs, addresses),
                     check_settings(ours, theirs)]
        if hello.ports is None:
            raise OSError('no UDP ports')
        datagrams.send(wire.peer_address, hello.ports, f'{token}a')
        there = ALL_SENT.intersection(wire.request('arrived').arrived)
        wire.request('datagrams')
        here = datagrams.arrived(f'{token}b')
    ways = (Way(host, there, interface_mtu(wire.local_address),
                domain_id({'ROS_DOMAIN_ID': theirs['domain']})),
            Way('this host', frozenset(here), hello.mtu, domain))
    findings += check_ways(ways, (ours, theirs))
    exchanges = _exchange_times(wire)
    findings.append(check_clock_offset(exchanges))

    def give(count: int) -> None:
        wire.send(_Request('take', bytes=count))
        wire.send_zeros(count)
        wire.receive(_Answer)

    def take(count: int) -> None:
        wire.send(_Request('give', bytes=count))
        wire.drop(count)

    findings.append(check_hop(exchanges, (_rate(give), _rate(take))))
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
