"""Where processes of benchmarks run: here, or in two network namespaces with a link between."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from typing import NamedTuple


class Hosts(NamedTuple):
    """Where server and clients run: the server's address, and words before their commands."""

    name: str
    address: str
    server: tuple[str, ...]
    clients: tuple[str, ...]


def _discovery(wanted: str) -> tuple[str, ...]:
    return ('env', '-u', 'ROS_STATIC_PEERS', '-u', 'ROS_LOCALHOST_ONLY',
            f'ROS_AUTOMATIC_DISCOVERY_RANGE={wanted}')


ONE_HOST = Hosts('one host', '127.0.0.1', _discovery('LOCALHOST'), _discovery('LOCALHOST'))


def _ip(*words: str, command: str = 'ip') -> None:
    try:
        subprocess.run([command, *words], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise OSError(f'there is no command `{command}`') from None
    except subprocess.CalledProcessError as error:
        raise OSError(f'{command} {" ".join(words)}: {error.stderr.strip()}') from None


@contextlib.contextmanager
def two_hosts(mbit: int = 0) -> Iterator[Hosts]:
    """Yield two network namespaces joined by a veth pair; remove them at the end.

    Args:
        mbit: rate of the link in either direction, Mbit/s; 0: as fast as it is.
    """
    tag = f'{os.getpid()}'
    names = [f'vdl-bench-{tag}-{side}' for side in 'ab']
    links = [f'vb{tag}{side}' for side in 'ab']
    try:
        for name in names:
            _ip('netns', 'add', name)
        _ip('link', 'add', links[0], 'netns', names[0], 'type', 'veth',
            'peer', 'name', links[1], 'netns', names[1])
        for index, (name, link) in enumerate(zip(names, links, strict=True)):
            _ip('-n', name, 'addr', 'add', f'10.91.8.{index + 1}/24', 'dev', link)
            _ip('-n', name, 'link', 'set', link, 'up')
            _ip('-n', name, 'link', 'set', 'lo', 'up')
            _ip('-n', name, 'route', 'add', 'default', 'dev', link)
            if mbit:
                # The burst has room for a packet of 64 KB, which the kernel splits later.
                _ip('-n', name, 'qdisc', 'add', 'dev', link, 'root', 'tbf', 'rate',
                    f'{mbit}mbit', 'burst', '128kb', 'limit', '4mb', command='tc')
        yield Hosts('two namespaces', '10.91.8.1', *(
            ('ip', 'netns', 'exec', name, *_discovery('SUBNET')) for name in names))
    finally:
        for name in names:  # with their links
            with contextlib.suppress(OSError):
                _ip('netns', 'del', name)
