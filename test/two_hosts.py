"""Hosts of tests: network namespaces of this machine, joined by a link, a router or a bridge."""

import contextlib
import subprocess
import uuid

import pytest


def ip(*words: str) -> None:
    subprocess.run(['ip', *words], check=True, capture_output=True, text=True)


def on(host: str, *command: str) -> tuple[str, ...]:
    # Not `ip netns exec`, which fails where / is no mount, as in a chroot.
    return 'nsenter', f'--net=/run/netns/{host}', *command


def run_on(host: str, *command: str) -> None:
    subprocess.run(on(host, *command), check=True, capture_output=True)


@contextlib.contextmanager
def namespaces(*names: str):
    """Yield network namespaces without links, by name."""
    tag = uuid.uuid4().hex[:8]
    found = {name: f'vdl-{tag}-{name}' for name in names}
    try:
        for index, host in enumerate(found.values()):
            try:
                ip('netns', 'add', host)
            except subprocess.CalledProcessError as error:
                if index:
                    raise
                pytest.skip(f'may not make network namespaces: {error.stderr.strip()}')
            ip('-n', host, 'link', 'set', 'lo', 'up')
        yield found
    finally:
        for host in found.values():
            subprocess.run(['ip', 'netns', 'del', host], check=False, capture_output=True)


def join(first: str, second: str, network: str, ends: tuple[int, int] = (1, 2)) -> None:
    """Join two namespaces; the interface to NETWORK.0/24 is called ``link-NETWORK``."""
    link = f'link-{network}'
    # The ends have the namespaces from the start: their names are no one else's.
    ip('-n', first, 'link', 'add', link, 'type', 'veth', 'peer', 'name', link, 'netns', second)
    for host, end in zip((first, second), ends, strict=True):
        ip('-n', host, 'addr', 'add', f'{network}.{end}/24', 'dev', link)
        ip('-n', host, 'link', 'set', link, 'up')


@pytest.fixture
def hosts():
    """Return two hosts on one network, 10.91.7.1 and 10.91.7.2."""
    with namespaces('a', 'b') as names:
        join(*names.values(), '10.91.7')
        for host in names.values():
            ip('-n', host, 'route', 'add', 'default', 'dev', 'link-10.91.7')
        yield [*names.values()]


@pytest.fixture
def routed_hosts():
    """Return two hosts on two networks with a router between, 10.91.7.1 and 10.91.8.1."""
    with namespaces('a', 'b', 'router') as names:
        *ends, router = names.values()
        run_on(router, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward')
        for host, network in zip(ends, ('10.91.7', '10.91.8'), strict=True):
            join(host, router, network)
            ip('-n', host, 'route', 'add', 'default', 'via', f'{network}.2')
        yield ends
