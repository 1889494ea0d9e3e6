"""What two doctors find between their hosts: settings, clocks, and the datagrams that arrived."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vdl_ros.common.files import find_resource
from vdl_ros.common.quoting import shown
from vdl_ros.ros.checks import machine
from vdl_ros.ros.checks.datagrams import GROUP, PACKETS, SMALL, Arrival, domain_ports
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
