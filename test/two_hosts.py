"""Two hosts: network namespaces of this machine, joined by a link or by a router."""

from __future__ import annotations

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


@pytest.fixture
def namespaces():
    """Return three network namespaces without links."""
    tag = uuid.uuid4().hex[:8]
    names = [f'vdl-{tag}-{side}' for side in 'abc']
    try:
        ip('netns', 'add', names[0])
    except subprocess.CalledProcessError as error:
        pytest.skip(f'may not make network namespaces: {error.stderr.strip()}')
    try:
        for name in names[1:]:
            ip('netns', 'add', name)
        for name in names:
            run_on(name, 'ip', 'link', 'set', 'lo', 'up')
        yield names
    finally:
        for name in names:
            subprocess.run(['ip', 'netns', 'del', name], check=False, capture_output=True)


def join(names: list[str], network: str, ends: tuple[int, int] = (1, 2)) -> None:
    """Join two namespaces; the interface to NETWORK.0/24 is called ``link-NETWORK``."""
    tag = uuid.uuid4().hex[:8]
    links = [f'v{tag}{side}' for side in 'ab']
    ip('link', 'add', links[0], 'type', 'veth', 'peer', 'name', links[1])
    for name, link, end in zip(names, links, ends, strict=True):
        ip('link', 'set', link, 'netns', name, 'name', f'link-{network}')
        run_on(name, 'ip', 'addr', 'add', f'{network}.{end}/24', 'dev', f'link-{network}')
        run_on(name, 'ip', 'link', 'set', f'link-{network}', 'up')


@pytest.fixture
def hosts(namespaces):
    """Return two hosts on one network, 10.91.7.1 and 10.91.7.2."""
    names = namespaces[:2]
    join(names, '10.91.7')
    for name in names:
        run_on(name, 'ip', 'route', 'add', 'default', 'dev', 'link-10.91.7')
    return names


@pytest.fixture
def routed_hosts(namespaces):
    """Return two hosts on two networks with a router between, 10.91.7.1 and 10.91.8.1."""
    first, second, router = namespaces
    run_on(router, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward')
    for name, network in ((first, '10.91.7'), (second, '10.91.8')):
        join([name, router], network)
        run_on(name, 'ip', 'route', 'add', 'default', 'via', f'{network}.2')
    return [first, second]
