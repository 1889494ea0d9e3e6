"""The processes of bench_transport: one server and its clients, here or on two hosts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.graph import module_command
from benchmarks.transport.worker import Cell

_START_S = 90.0
_GRACE_S = 60.0
_END_S = 5.0


class PeerError(RuntimeError):
    """A process does not start, does not answer or has failed; one line."""


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


class _Peer:
    """A worker process, with which lines of JSON are exchanged."""

    def __init__(self, prefix: Sequence[str], words: list[str]) -> None:
        self._name = ' '.join(words[:3])
        # In a new session Ctrl-C reaches only the parent, which ends its workers in order.
        self.process = subprocess.Popen(
            [*prefix, *module_command('benchmarks.transport.worker', *words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout

    def send(self, request: Mapping[str, Any]) -> None:
        try:
            self._requests.write(json.dumps(request) + '\n')
            self._requests.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self, seconds: float) -> dict[str, Any]:
        if not select.select([self._answers], [], [], seconds)[0]:
            raise PeerError(f'{self._name}: no answer within {seconds:g} s')
        line = self._answers.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if 'error' in answer:
            raise PeerError(answer['error'])
        return answer

    def _ended(self) -> PeerError:
        return PeerError(f'{self._name}: ended with status {self.process.wait()}')


class Team:
    """A server and its clients of one family."""

    def __init__(self, family: str, hosts: Hosts, clients: int) -> None:
        self._peers: list[_Peer] = []
        where = hosts.address if family == 'tcp' else f'/bench_transport_{os.getpid()}'
        try:
            self._peers.append(
                _Peer(hosts.server, [family, 'server', '0', str(clients), where, '0']))
            server = self._peers[0].receive(_START_S)
            self.transport = str(server['transport'])
            port = str(server.get('port', 0))
            for index in range(clients):
                self._peers.append(_Peer(
                    hosts.clients, [family, 'client', str(index), str(clients), where, port]))
            for peer in self._peers[1:]:
                peer.receive(_START_S)
        except BaseException:
            self.close()
            raise

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
        """Interrupt every process, wait for their ends, and kill what does not end."""
        for peer in self._peers:
            peer.process.send_signal(signal.SIGINT)
        for peer in self._peers:
            try:
                peer.process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                peer.process.kill()
                peer.process.communicate()
        self._peers.clear()
