"""The processes of bench_transport: one server and its clients, here or on two hosts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.graph import module_command
from benchmarks.transport.cell import Cell

_START_S = 90.0
_GRACE_S = 60.0
_END_S = 5.0


class PeerError(RuntimeError):
    """A process does not start, does not answer or has failed; one line."""


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Where server and clients run.

    Attributes:
        server: words before its command.
        clients: words before their commands.
    """

    name: str
    address: str
    discovery: str
    server: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()


ONE_HOST = Hosts('one host', '127.0.0.1', 'LOCALHOST')


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
        server, clients = (('ip', 'netns', 'exec', name) for name in names)
        yield Hosts('two namespaces', '10.91.8.1', 'SUBNET', server, clients)
    finally:
        for name in names:  # with their links
            with contextlib.suppress(OSError):
                _ip('netns', 'del', name)


class _Peer:
    """A worker process, with which lines of JSON are exchanged."""

    def __init__(self, prefix: tuple[str, ...], words: list[str], env: Mapping[str, str]) -> None:
        self._name = ' '.join(words[:3])
        # In a new session Ctrl-C reaches only the parent, which ends its workers in order.
        self._process = subprocess.Popen(
            [*prefix, *module_command('benchmarks.transport.worker', *words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(env),
            start_new_session=True)

    def send(self, request: Mapping[str, Any]) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + '\n')
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(f'{self._name}: ended with status {self._process.wait()}') from None

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the answer."""
        stream = self._process.stdout
        assert stream is not None
        if not select.select([stream], [], [], seconds)[0]:
            raise PeerError(f'{self._name}: no answer within {seconds:g} s')
        line = stream.readline()
        if not line:
            raise PeerError(f'{self._name}: ended with status {self._process.wait()}')
        answer: dict[str, Any] = json.loads(line)
        if 'error' in answer:
            raise PeerError(answer['error'])
        return answer

    def interrupt(self) -> None:
        """Ask the process to end, without waiting."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Wait for the end of the process; kill it after a while."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Team:
    """A server and its clients of one family."""

    def __init__(self, family: str, hosts: Hosts, clients: int) -> None:
        self.transport = ''
        self._peers: list[_Peer] = []
        env = dict(os.environ, ROS_AUTOMATIC_DISCOVERY_RANGE=hosts.discovery)
        for name in ('ROS_STATIC_PEERS', 'ROS_LOCALHOST_ONLY'):
            env.pop(name, None)
        where = hosts.address if family == 'tcp' else f'/bench_transport_{os.getpid()}/{family}'
        try:
            self._start(hosts.server, [family, 'server', '0', str(clients), where, '0'], env)
            server = self._peers[0].receive(_START_S)
            self.transport = str(server['transport'])
            port = str(server.get('port', 0))
            for index in range(clients):
                self._start(
                    hosts.clients, [family, 'client', str(index), str(clients), where, port], env)
            for peer in self._peers[1:]:
                peer.receive(_START_S)
        except BaseException:
            self.close()
            raise

    def _start(self, prefix: tuple[str, ...], words: list[str], env: Mapping[str, str]) -> None:
        self._peers.append(_Peer(prefix, words, env))

    def measure(self, cell: Cell) -> dict[str, Any]:
        """Return the measurement of a cell.

        ``received``, ``seconds`` (by the server) and ``sent`` have a number for each client;
        ``trips_ms`` all round trips; ``cpu_s`` is the processor time of all processes.
        """
        active = self._peers[:1 + cell.clients]
        for peer in active:
            peer.send(dataclasses.asdict(cell))
        for peer in active:
            peer.receive(_START_S)
        for peer in active:
            peer.send({'go': True})
        server, *clients = [peer.receive(cell.limit + _GRACE_S) for peer in active]
        return {
            'received': server['received'], 'seconds': server['seconds'],
            'sent': [each['sent'] for each in clients],
            'trips_ms': [trip for each in clients for trip in each.get('trips_ms', ())],
            'cpu_s': server['cpu_s'] + sum(each['cpu_s'] for each in clients)}

    def close(self) -> None:
        """End every process."""
        for peer in self._peers:
            peer.interrupt()
        for peer in self._peers:
            peer.end()
        self._peers.clear()
