"""The environment of ROS: domain, discovery, security, log folder.

``doctor`` reports these checks with all others; a launch and a node end if one fails.
"""

import dataclasses
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from vdl_ros.common.quoting import shown
from vdl_ros.ros.dds.transport import reaches_other_hosts


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the doctor's report; ``figures`` are for ``--json``, with units in the names."""

    name: str
    status: str  # ok, warn or fail
    finding: str
    advice: str = ''
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class System:
    """The machine to check; ``root`` contains its ``/proc``, ``/sys``, ``/dev`` and ``/etc``."""

    root: Path = Path('/')
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)

    def text(self, path: str) -> str | None:
        try:
            return (self.root / path).read_text(errors='replace').strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        words = (self.text(path) or '').split()
        return int(words[0]) if words and words[0].lstrip('-').isdigit() else None


RANGES = ('SUBNET', 'LOCALHOST', 'OFF', 'SYSTEM_DEFAULT')
# In 232 the ports of DDS end at its 63rd process, and nodes look for 64 (config/dds).
MAX_DOMAIN = 231
# From 102 to 214 the ports of a domain are in the ephemeral range of Linux.
SAFE_DOMAINS = (*range(102), *range(215, MAX_DOMAIN + 1))
LOOPBACK_ADVICE = 'sudo ip link set lo up; a new network namespace has it down'
_UP = 0x1  # IFF_UP of linux/if.h


def is_up(system: System, interface: str) -> bool:
    """Return whether a network interface is up; some virtual machines do not tell."""
    flags = system.text(f'sys/class/net/{interface}/flags') or ''
    return not re.fullmatch('0x[0-9a-f]+', flags) or bool(int(flags, 16) & _UP)


def domain_id(environ: Mapping[str, str]) -> int:
    value = environ.get('ROS_DOMAIN_ID') or '0'
    if not re.fullmatch('[0-9]{1,9}', value) or int(value) > MAX_DOMAIN:
        raise ValueError(f'ROS_DOMAIN_ID is {shown(value)}; allowed: a whole number from 0 to '
                         f'{MAX_DOMAIN}')
    return int(value)


def check_domain(system: System) -> Finding:
    try:
        domain = domain_id(system.environ)
    except ValueError as error:
        finding, _, allowed = str(error).partition('; ')
        return Finding('domain', 'fail', finding, allowed)
    if not system.environ.get('ROS_DOMAIN_ID'):
        return Finding('domain', 'ok', '0: shared with all machines that do not set it',
                       'export ROS_DOMAIN_ID=1..101 separates experiments')
    if domain not in SAFE_DOMAINS:
        return Finding('domain', 'warn', f'{domain}: its ports can be taken by other programs',
                       f'use 0 to 101, or 215 to {MAX_DOMAIN}')
    return Finding('domain', 'ok', str(domain))


def check_discovery(system: System) -> Finding:
    if not is_up(system, 'lo'):
        return Finding('discovery', 'fail', 'the loop-back interface lo is down: nodes of this '
                       'host do not discover each other', LOOPBACK_ADVICE)
    scope = system.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '').upper()
    peers = system.environ.get('ROS_STATIC_PEERS', '')
    if system.environ.get('ROS_LOCALHOST_ONLY') == '1':
        return Finding('discovery', 'warn', 'ROS_LOCALHOST_ONLY=1 overrides the newer variables',
                       'unset it; use ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST')
    if scope and scope not in RANGES:
        return Finding('discovery', 'fail', f'ROS_AUTOMATIC_DISCOVERY_RANGE is {scope!r}',
                       f'use one of {", ".join(RANGES)}')
    if scope == 'OFF':
        return Finding('discovery', 'warn', 'OFF: nodes do not discover each other',
                       'use LOCALHOST or SUBNET')
    if peers and scope == 'SYSTEM_DEFAULT':
        return Finding('discovery', 'warn', f'ROS_STATIC_PEERS={peers} has no effect here',
                       'use LOCALHOST or SUBNET with it')
    if unknown := [peer for peer in peers.split(';') if peer and not _is_known(peer)]:
        return Finding('discovery', 'fail', 'ROS_STATIC_PEERS: '
                       f'{", ".join(map(shown, unknown))} cannot be resolved',
                       'use addresses, or names of hosts that are known, separated by ;')
    server = system.environ.get('ROS_DISCOVERY_SERVER', '')
    text = ((scope or 'SUBNET (not set)') + (f', static peers {peers}' if peers else '')
            + (f', by the server {server}' if server else ''))
    slow = reaches_other_hosts(system.environ) and not peers and not server
    return Finding('discovery', 'ok', text, 'on one host, ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST '
                   'makes large messages several times faster' if slow else '')


def check_security(system: System) -> Finding:
    environ = system.environ
    given = environ.get('ROS_SECURITY_KEYSTORE', '')
    keystore = Path(given) if given else Path(
        environ.get('ROS_HOME') or os.path.expanduser('~/.ros')) / 'keystore'
    is_on = environ.get('ROS_SECURITY_ENABLE') == 'true'
    is_enforced = environ.get('ROS_SECURITY_STRATEGY') == 'Enforce'
    enclave = environ.get('ROS_SECURITY_ENCLAVE_OVERRIDE', '')
    if is_on and is_enforced and not (
            given and (keystore / 'enclaves' / enclave.lstrip('/')).is_dir()):
        return Finding('security', 'fail', 'ROS_SECURITY_STRATEGY is Enforce, but '
                       f'ROS_SECURITY_KEYSTORE={shown(given)} has no keys'
                       + (f' of the enclave {shown(enclave)}' if enclave else ''),
                       'ros2 security create_keystore, see docs/security.md')
    exposed = [path for path in _private_keys(keystore) if path.stat().st_mode & 0o077]
    if exposed:
        return Finding('security', 'warn', f'{len(exposed)} private keys in '
                       f'{shown(str(keystore))} can be read by other users',
                       f'chmod -R go= {shown(str(keystore), 4096)}')
    if not is_on:
        return Finding('security', 'ok', 'SROS2 is off (ROS_SECURITY_ENABLE)')
    if not given or not keystore.is_dir():
        return Finding('security', 'warn', 'ROS_SECURITY_ENABLE is true, but '
                       f'ROS_SECURITY_KEYSTORE={shown(given)} is no folder',
                       'ros2 security create_keystore, see docs/security.md')
    if not is_enforced:
        return Finding('security', 'warn', 'nodes without a key run without SROS2',
                       'export ROS_SECURITY_STRATEGY=Enforce')
    return Finding('security', 'ok', f'SROS2 with the keys in {shown(given)}')


def _private_keys(keystore: Path) -> list[Path]:
    try:
        return [path for pattern in ('private/*.key.pem', 'enclaves/**/key.pem')
                for path in keystore.glob(pattern) if path.is_file()]
    except OSError:  # of a folder of another user
        return []


def _is_known(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def check_logs(system: System) -> Finding:
    """Check the folder of logs, by the rules of rcl, which makes it too."""
    home = system.environ.get('HOME', '')
    name = system.environ.get('ROS_LOG_DIR') or os.path.join(
        system.environ.get('ROS_HOME') or '~/.ros', 'log')
    folder = Path(home + name[1:] if name.startswith('~') else name)
    reason = 'HOME is not set' if name.startswith('~') and not home else ''
    if not reason:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                reason = f'{shown(str(folder))} cannot be written'
        except OSError as error:
            reason = f'{shown(str(folder))}: {error.strerror}'
    if reason:
        return Finding('logs', 'fail', f'no folder for the logs of ROS: {reason}',
                       'set ROS_LOG_DIR to a folder that can be written')
    return Finding('logs', 'ok', f'in {folder}')


#: With one of these failed no node starts.
CHECKS: tuple[Callable[[System], Finding], ...] = (
    check_domain, check_discovery, check_security, check_logs)


def verify_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Raise a ValueError, a line for each fault, if no node can start in an environment."""
    found = [check(System(environ=environ)) for check in CHECKS]
    if faults := [f'{each.finding}; {each.advice}' for each in found if each.status == 'fail']:
        raise ValueError('\n'.join(faults))
