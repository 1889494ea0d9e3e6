"""Checks of what others can reach: the network, listening ports, private keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path, PurePath

import psutil

from vdl_ros.common.quoting import shown
from vdl_ros.ros.checks.types import Finding, System
from vdl_ros.ros.dds.transport import reaches_other_hosts

__all__ = ['check_network', 'check_ports', 'check_security']

# Of <net/if.h>.
_UP, _LOOPBACK = 0x1, 0x8
_PORT_ADVICE = {
    'viewer': 'start the viewer with host:=127.0.0.1',
    'training_viewer': 'start the training with view_host:=127.0.0.1',
    'learner': 'set group_address to an address that only the learners reach',
}


def check_network(system: System) -> Finding:
    """Check whether other hosts can send to the nodes."""
    if not reaches_other_hosts(system.environ):
        return Finding('network', 'ok', 'discovery stays on this machine')
    names = []
    for folder in sorted((system.root / 'sys/class/net').glob('*')):
        text = system.text(f'{folder}/flags') or ''
        # Where flags cannot be read, as in some virtual machines, all but the loop-back count.
        flags = int(text, 16) if text.startswith('0x') else (
            _LOOPBACK if folder.name == 'lo' else _UP)
        if flags & _UP and not flags & _LOOPBACK:
            names.append(folder.name)
    if not names:
        return Finding('network', 'ok', 'only the loopback interface is up')
    if system.environ.get('ROS_SECURITY_ENABLE') == 'true':
        return Finding('network', 'ok', f'nodes are announced on {", ".join(names)}, with SROS2')
    return Finding('network', 'warn', f'every host on {", ".join(names)} can send to the nodes, '
                   'unless a firewall that doctor cannot see stops it',
                   'on one machine export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST, else '
                   'docs/security.md')


def check_ports(
    system: System, listening: list[tuple[str, str, int]] | None = None,
) -> Finding:
    """Check for processes of this package with TCP ports that other hosts reach."""
    del system
    if listening is None:
        listening = list(_listening())
    found = sorted({(name, address, port) for name, address, port in listening
                    if not ipaddress.ip_address(address).is_loopback})
    if not found:
        return Finding('ports', 'ok', 'no TCP port of this package is open to other hosts')
    text = ', '.join(f'{name} at {address} port {port}' for name, address, port in found)
    names = {name for name, _, _ in found}
    advice = '; '.join(text for name, text in _PORT_ADVICE.items() if name in names)
    return Finding('ports', 'warn', f'other hosts can connect: {text}',
                   f'{advice or "close it"}, or block the port (docs/security.md)')


def check_security(system: System) -> Finding:
    """Check the settings of SROS2 and the modes of its private keys."""
    environ = system.environ
    enabled = environ.get('ROS_SECURITY_ENABLE') == 'true'
    given = environ.get('ROS_SECURITY_KEYSTORE', '')
    keystore = Path(given) if given else Path(
        environ.get('ROS_HOME') or Path.home() / '.ros') / 'keystore'
    exposed = [path for path in _private_keys(keystore) if path.stat().st_mode & 0o077]
    if exposed:
        return Finding('security', 'warn', f'{len(exposed)} private keys in '
                       f'{shown(str(keystore))} can be read by other users',
                       f'chmod -R go= {shown(str(keystore), 4096)}')
    if not enabled:
        return Finding('security', 'ok', 'SROS2 is off (ROS_SECURITY_ENABLE)')
    if not given or not keystore.is_dir():
        return Finding('security', 'warn', 'ROS_SECURITY_ENABLE is true, but '
                       f'ROS_SECURITY_KEYSTORE={shown(given)} is no folder',
                       'ros2 security create_keystore, see docs/security.md')
    if environ.get('ROS_SECURITY_STRATEGY') != 'Enforce':
        return Finding('security', 'warn', 'nodes without a key run without SROS2',
                       'export ROS_SECURITY_STRATEGY=Enforce')
    return Finding('security', 'ok', f'SROS2 with the keys in {shown(given)}')


def _listening() -> Iterator[tuple[str, str, int]]:
    """Yield executable, address and TCP port for the processes of this package."""
    for process in psutil.process_iter():
        try:
            name = _executable(process.cmdline())
            if not name:
                continue
            for each in process.net_connections('tcp'):
                if each.status == psutil.CONN_LISTEN:
                    yield name, each.laddr.ip, each.laddr.port
        except psutil.Error:  # it has ended, or belongs to another user
            continue


def _executable(words: list[str]) -> str:
    """Return the executable of this package that a command line starts, or ''."""
    for word in words[:3]:
        path = PurePath(word)
        if path.parent.parts[-2:] == ('lib', 'vdl_ros'):
            return shown(path.name)
        if word.startswith(('vdl_ros.nodes.', 'vdl_ros.tools.')):
            return shown(word.rpartition('.')[2])
    return ''


def _private_keys(keystore: Path) -> list[Path]:
    try:
        return [path for pattern in ('private/*.key.pem', 'enclaves/**/key.pem')
                for path in keystore.glob(pattern) if path.is_file()]
    except OSError:  # of a folder of another user
        return []
