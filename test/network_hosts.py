"""Hosts of a test: network namespaces, joined by a bridge in one more, and sshd with its keys."""

import contextlib
import os
import subprocess
from pathlib import Path

from two_hosts import ip, namespaces


@contextlib.contextmanager
def bridged(addresses: dict[str, str]):
    """Yield the namespaces of hosts with these addresses, by name; the first has the bridge."""
    with namespaces(*addresses) as names:
        bridge, *others = names.values()
        ip('-n', bridge, 'link', 'add', 'hosts', 'type', 'bridge')
        for index, host in enumerate(others):
            ip('-n', bridge, 'link', 'add', f'to{index}', 'type', 'veth',
               'peer', 'name', 'net', 'netns', host)
            ip('-n', bridge, 'link', 'set', f'to{index}', 'master', 'hosts', 'up')
        for host, address in zip(names.values(), addresses.values(), strict=True):
            device = 'hosts' if host == bridge else 'net'
            ip('-n', host, 'addr', 'add', f'{address}/24', 'dev', device)
            ip('-n', host, 'link', 'set', device, 'up')
        yield names


def key(path: Path) -> Path:
    """Make a pair of keys, and return the file of the private one."""
    subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', str(path)], check=True)
    return path


class Sshd:
    """A server of ssh that accepts one key, with a home folder and host key of its own."""

    def __init__(self, folder: Path, address: str, port: int, user_key: Path):
        self.address, self.port = address, port
        self.home = folder / 'home'
        self.home.mkdir(parents=True)
        self.host_key = key(folder / 'host_key')
        self._config = folder / 'sshd_config'
        self._config.write_text('\n'.join((
            f'ListenAddress {address}', f'Port {port}', f'HostKey {self.host_key}',
            f'AuthorizedKeysFile {user_key}.pub', 'PidFile none', 'UsePAM no', 'StrictModes no',
            'PermitRootLogin prohibit-password', 'PasswordAuthentication no',
            f'SetEnv HOME={self.home} TMPDIR={os.environ.get("TMPDIR", "/tmp")}')) + '\n')
        self._config.chmod(0o600)

    @property
    def known_host(self) -> str:
        """The line of known_hosts."""
        return f'[{self.address}]:{self.port} {Path(f"{self.host_key}.pub").read_text()}'

    def command(self) -> tuple[str, ...]:
        if os.geteuid() == 0:
            # Where it separates its privileges; the system's service makes it at its start.
            Path('/run/sshd').mkdir(mode=0o755, exist_ok=True)
        return '/usr/sbin/sshd', '-D', '-e', '-f', str(self._config)


def ssh_config(path: Path, user_key: Path, servers) -> Path:
    """Write a configuration that knows these servers and no others."""
    known = path.with_name('known_hosts')
    known.write_text(''.join(each.known_host for each in servers))
    path.write_text(f'UserKnownHostsFile {known}\nGlobalKnownHostsFile none\n'
                    f'IdentityFile {user_key}\nIdentitiesOnly yes\n')
    return path
