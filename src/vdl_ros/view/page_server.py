"""
The server of the view: viser behind a check of requests and of messages.

viser has no option for either, so :func:`serve` adds them to the websocket server that viser
starts: ``process_request`` refuses a request that :class:`Access` does not allow with status 403
before the page or a websocket is opened, and the connection's ``recv`` drops messages that
:func:`check_message` does not allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http
import io
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import viser
import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from vdl_ros.view.access import Access, AccessError
from vdl_ros.view.browser_messages import MAX_BYTES, MessageError, check_message

__all__ = ['PageServer', 'serve']

# Different refusals that are reported; a stranger can make up any number of them.
_MAX_REPORTS = 20
# The page may not be shown inside another one, where its buttons could be hidden under others,
# and its address may not be passed on.
_HEADERS = {'Content-Security-Policy': "frame-ancestors 'none'", 'X-Frame-Options': 'DENY',
            'Referrer-Policy': 'no-referrer', 'X-Content-Type-Options': 'nosniff'}

_Process = Callable[[ServerConnection, Request], Awaitable[Response | None] | Response | None]


class PageServer:
    """A running server: ``viser`` to fill the page, ``url`` to open it."""

    def __init__(self, server: viser.ViserServer, url: str, loop: LoopMonitor) -> None:
        """Take a running server, its address and the monitor of its event loop."""
        self.viser, self.url, self._loop = server, url, loop

    def answers(self, within: float) -> bool:
        """Return whether the server handled an event in the last ``within`` s; call it often."""
        return self._loop.answers(within)

    def stop(self) -> None:
        """End the server."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.viser.stop()


class LoopMonitor:
    """Notices when an event loop hangs."""

    def __init__(self, loop: asyncio.AbstractEventLoop,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Start with a loop that runs now; ``clock`` returns s."""
        self._loop, self._clock = loop, clock
        self._answered_at = clock()
        self._asked = False

    def answers(self, within: float) -> bool:
        """Return whether the loop ran a callback in the last ``within`` s, and ask it again."""
        # Before it is asked: it may answer at once.
        silent = self._clock() - self._answered_at
        if not self._asked:
            self._asked = True
            self._loop.call_soon_threadsafe(self._answer)
        return silent <= within

    def _answer(self) -> None:
        self._answered_at, self._asked = self._clock(), False


def serve(
    host: str, port: int, refused: Callable[[str], None], *, setting: str = 'port',
) -> PageServer:
    """
    Return a server at that address.

    Args:
        host: address or name of this machine.
        port: 0 selects a free one.
        refused: called with a line for each different request or message that is refused, in a
            thread of the server.
        setting: name of the port's setting, for the error.

    Raises:
        OSError: the address is in use, or no address of this machine.
    """
    # Otherwise viser would silently use the next free port.
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
    except OSError as error:
        raise OSError(f'view: {host}:{port} cannot be used: {error.strerror}; '
                      f'{setting}:=0 selects a free port') from error
    access = Access(host)
    # Suppress the banner.
    with contextlib.redirect_stdout(io.StringIO()), _checked(access, refused) as monitors:
        server = viser.ViserServer(host=host, port=port, verbose=False)
    if not monitors:
        server.stop()
        raise RuntimeError(f'viser {viser.__version__}: the view cannot be protected, this '
                           'version starts its server in another way')
    return PageServer(server, access.url(server.get_port()), monitors[-1])


@contextlib.contextmanager
def _checked(access: Access, refused: Callable[[str], None]) -> Iterator[list[LoopMonitor]]:
    """Let a websocket server that is started meanwhile check; yield the monitors of its loop."""
    reported: set[str] = set()
    monitors: list[LoopMonitor] = []
    original = websockets.asyncio.server.serve

    def report(line: str) -> None:
        if line not in reported and len(reported) < _MAX_REPORTS:
            reported.add(line)
            refused(line)

    class Connection(ServerConnection):
        async def recv(self, decode: bool | None = None) -> Any:
            while True:
                message = await super().recv(decode)
                try:
                    return check_message(message)
                except MessageError as error:
                    report(f'message refused: {error}')

    def checked(*args: Any, process_request: _Process | None = None, **options: Any) -> Any:
        def check(connection: ServerConnection, request: Request) -> Any:
            headers = request.headers
            try:
                path = access.check(
                    request.path, headers.get_all('Host'), headers.get_all('Origin'),
                    port=connection.local_address[1], websocket='Upgrade' in headers)
            except AccessError as error:
                report(f'request refused: {error}')
                return connection.respond(http.HTTPStatus.FORBIDDEN, f'{error}\n')
            if process_request is None:
                return None
            response = process_request(connection, dataclasses.replace(request, path=path))
            if isinstance(response, Response):
                response.headers.update(_HEADERS)
            return response

        monitors.append(LoopMonitor(asyncio.get_running_loop()))
        return original(*args, process_request=check, **options | {
            'create_connection': Connection, 'max_size': MAX_BYTES})

    websockets.asyncio.server.serve = checked  # type: ignore[assignment, misc]
    try:
        yield monitors
    finally:
        websockets.asyncio.server.serve = original  # type: ignore[misc]
