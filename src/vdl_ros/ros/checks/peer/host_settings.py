"""What two hosts should have in common: versions, ROS settings, message definitions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from vdl_ros.common.quoting import shown
from vdl_ros.common.resources import find_resource
from vdl_ros.ros.checks.middleware import (
    LOOPBACK_ADVICE,
    check_distribution,
    check_middleware,
    check_python,
    loopback_is_up,
)
from vdl_ros.ros.checks.types import Finding, System
from vdl_ros.ros.dds import transport

__all__ = [
    'NAMES', 'check_domain_ids', 'check_ranges', 'check_settings', 'domain_id', 'read_settings',
]

NAMES = ('vdl_ros', 'Python', 'ROS', 'middleware', 'domain', 'range', 'static peers', 'loop-back',
         'transport', 'messages', 'SROS2')
_SUBNET = 'SUBNET'


def domain_id(environ: Mapping[str, str]) -> int:
    """Return ROS_DOMAIN_ID; raises ValueError."""
    value = environ.get('ROS_DOMAIN_ID') or '0'
    if not value.isdecimal() or int(value) > 232:
        raise ValueError(f'ROS_DOMAIN_ID is {shown(value)}; allowed: a whole number from 0 to 232')
    return int(value)


def read_settings(system: System) -> dict[str, str]:
    """Return the settings of this host by name; raises ValueError for those that are wrong."""
    environ = system.environ
    choice = transport.choose(environ, transport.Host.read(system.root))
    scope = environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '').upper() or _SUBNET
    return {
        'vdl_ros': transport.package_version('vdl_ros', environ),
        'Python': check_python(system).finding,
        'ROS': check_distribution(system).finding,
        'middleware': check_middleware(system).finding,
        'domain': str(domain_id(environ)),
        'range': 'LOCALHOST' if environ.get('ROS_LOCALHOST_ONLY') == '1' else scope,
        'static peers': environ.get('ROS_STATIC_PEERS', ''),
        'loop-back': 'up' if loopback_is_up(system) else 'down',
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
    """Compare ROS_DOMAIN_ID."""
    ours, theirs = here['domain'], there['domain']
    if ours != theirs:
        return Finding('domain', 'fail', f'ROS_DOMAIN_ID is {ours} here and {shown(theirs)} there',
                       'export the same ROS_DOMAIN_ID on both')
    return Finding('domain', 'ok', f'{ours} on both')


def check_ranges(
    here: Mapping[str, str], there: Mapping[str, str], addresses: tuple[str, str],
) -> Finding:
    """Check that discovery includes the other host; ``addresses`` are ours and the peer's."""
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
    status, parts, advice = 'ok', [], []

    def differs(name: str, how: str, remedy: str = '') -> None:
        nonlocal status
        if here[name] == there[name]:
            return
        status = 'fail' if 'fail' in (status, how) else 'warn' if 'warn' in (status, how) else 'ok'
        parts.append(f'{name} {shown(here[name]) or "unknown"} here, '
                     f'{shown(there[name]) or "unknown"} there')
        if remedy and remedy not in advice:
            advice.append(remedy)

    other = here['middleware'].split(' ')[0] != there['middleware'].split(' ')[0]
    version = 'install the same version on both'
    differs('messages', 'fail', version)
    differs('SROS2', 'fail', 'set ROS_SECURITY_ENABLE alike on both (docs/security.md)')
    differs('middleware', 'fail' if other else 'warn',
            'export the same RMW_IMPLEMENTATION on both' if other else version)
    differs('vdl_ros', 'warn', version)
    differs('ROS', 'warn', version)
    differs('transport', 'ok')
    differs('Python', 'ok')
    if not parts:
        return Finding('settings', 'ok', 'versions, messages and settings are the same on both')
    return Finding('settings', status, '; '.join(parts), '; '.join(advice))
