"""
The other side of ``doctor --peer``: answer the requests of one doctor at a time.

Requests (JSON, see ``wire``) and their responses:

``hello`` {token, address}: settings of this host, its interface's MTU.
``clock``: times of reception and response, ns since 1970.
``open``: receive UDP datagrams; the ports. ``datagrams`` {discovery, data}: send such to these
ports of the asking host. ``arrived``: what has arrived. ``close``: receive no more.
``take`` {bytes}: drop as many bytes that follow. ``give`` {bytes}: send as many.
``echo``: start a process that returns messages; the name of its topics.

Datagrams and bytes go only to the host that has connected, and are limited.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from vdl_ros.common.quoting import shown
from vdl_ros.ros.checks.loopback import echo_command
from vdl_ros.ros.checks.peer.datagrams import Datagrams, interface_mtu, mark
from vdl_ros.ros.checks.peer.host_settings import domain_id, read_settings
from vdl_ros.ros.checks.peer.wire import Wire, WireError, text, whole_number
from vdl_ros.ros.checks.types import System

__all__ = ['LARGEST_STREAM', 'ipv4_address', 'serve']

LARGEST_STREAM = 64 << 20  # bytes of one measurement of throughput
_STREAMED = 1 << 30  # bytes of a session
_REQUESTS = 2000
_STEP_S, _SESSION_S = 60.0, 300.0
_TOKEN = 32  # hexadecimal digits


def serve(allowed: str, port: int, log: Callable[[str], None]) -> NoReturn:
    """
    Answer until KeyboardInterrupt; the settings of this host must be valid.

    Args:
        allowed: host that may ask; '' for any.
        port: TCP port to listen at.
        log: takes each line for the user.

    Raises:
        OSError: ``allowed`` has no address, or the port cannot be used.
    """
    address = ''
    if allowed:
        try:
            allowed = ipv4_address(allowed)
            address = _local_address(allowed)
        except OSError as error:
            raise OSError(f'{shown(allowed)}: {error.strerror or error}') from None
    try:
        listener = socket.create_server((address, port))
    except OSError as error:
        raise OSError(f'TCP port {port}: {error.strerror or error}') from None
    with listener:
        log(f'doctor: answering {allowed or "every host that asks"} at '
            f'{address or "all addresses"} port {port}; Ctrl-C ends it')
        while True:
            connection, (host, _) = listener.accept()
            with connection:
                if allowed and host != allowed:
                    log(f'doctor: refused {host}')
                    continue
                log(f'doctor: {host} asks')
                session = _Session(Wire(connection, _STEP_S, _SESSION_S))
                try:
                    session.run()
                    log(f'doctor: {host} is done')
                except WireError as error:
                    log(f'doctor: {host}: {error}')
                finally:
                    session.close()


class _Session:
    """The requests of one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._token, self._streamed = wire, '', 0
        self._system = System()
        self._datagrams: Datagrams | None = None
        self._echo: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Answer until the other side says goodbye; raises WireError."""
        answers = {'hello': self._hello, 'clock': self._clock, 'open': self._open,
                   'datagrams': self._send_datagrams, 'arrived': self._arrived,
                   'close': self._close_datagrams, 'take': self._take, 'give': self._give,
                   'echo': self._start_echo}
        for _ in range(_REQUESTS):
            request = self._wire.receive()
            received = time.time_ns()
            name = text(request, 'request', 20)
            if name == 'goodbye':
                return
            if name not in answers or not (self._token or name == 'hello'):
                raise WireError(f'no such request: {shown(name)}')
            try:
                answer = answers[name](request | {'received': received})
            except WireError:
                raise
            except (OSError, ValueError) as error:
                answer = {'error': ' '.join(str(error).split())[:200]}
            if answer is not None:
                self._wire.send(answer)
        raise WireError(f'more than {_REQUESTS} requests')

    def close(self) -> None:
        """End what was started."""
        self._close_datagrams({})
        if self._echo is None:
            return
        assert self._echo.stdin is not None
        assert self._echo.stdout is not None
        self._echo.stdin.close()  # ends it
        try:
            self._echo.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._echo.kill()
            self._echo.wait()
        self._echo.stdout.close()

    def _hello(self, request: Mapping[str, Any]) -> dict[str, Any]:
        token = text(request, 'token', _TOKEN)
        if len(token) != _TOKEN or set(token) - set('0123456789abcdef'):
            raise WireError('the token is not allowed')
        self._token = token
        return {'settings': read_settings(self._system),
                'mtu': interface_mtu(self._wire.local_address)}

    def _clock(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {'received': request['received'], 'answered': time.time_ns()}

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._close_datagrams({})
        self._datagrams = Datagrams(self._wire.local_address, domain_id(self._system.environ))
        return self._datagrams.ports

    def _send_datagrams(self, request: Mapping[str, Any]) -> dict[str, Any]:
        ports = {name: whole_number(request, name, 1024, 65535) for name in ('discovery', 'data')}
        self._opened().send(self._wire.peer_address, ports, mark(self._token, False))
        return {}

    def _arrived(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {'arrived': sorted(self._opened().arrived(mark(self._token, True)))}

    def _close_datagrams(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None
        return {}

    def _opened(self) -> Datagrams:
        if self._datagrams is None:
            raise WireError('datagrams before open')
        return self._datagrams

    def _stream(self, request: Mapping[str, Any]) -> int:
        count = whole_number(request, 'bytes', 1, LARGEST_STREAM)
        self._streamed += count
        if self._streamed > _STREAMED:
            raise WireError(f'more than {_STREAMED} bytes')
        return count

    def _take(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._wire.drop(self._stream(request))
        return {}

    def _give(self, request: Mapping[str, Any]) -> None:
        self._wire.send_zeros(self._stream(request))

    def _start_echo(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._echo is not None:
            raise WireError('a second echo')
        name = f'vdl_doctor_{secrets.token_hex(8)}'
        # In a session of its own: Ctrl-C ends this process, which ends it.
        self._echo = subprocess.Popen(
            echo_command(name), start_new_session=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        assert self._echo.stdout is not None
        if self._echo.stdout.readline() != b'ready\n':
            raise OSError('the process that returns messages does not start')
        return {'name': name}


def ipv4_address(host: str) -> str:
    """Return the first IPv4 address of a host; raises OSError if it has none."""
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
    except UnicodeError:
        raise OSError('not a name') from None


def _local_address(host: str) -> str:
    """Return this host's address on the way to ``host``; raises OSError."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.connect((host, 9))  # sends nothing
        return str(probe.getsockname()[0])
