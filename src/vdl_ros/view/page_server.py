"""The server of a view, and who may open it: its own Host and Origin, with its token.

A browser sends in ``Host`` the address it was given and in ``Origin`` the page that asks; a page
can change neither. A page of another origin is refused by its Origin, and a foreign name that
points to this machine (DNS rebinding) by its Host. The token, the first part of the path, is
random, so that other users and programs of this machine cannot open the view either.
"""

import asyncio
import contextlib
import dataclasses
import http
import io
import ipaddress
import re
import secrets
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
import viser
import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from vdl_ros.common.quoting import quoted

_LOOPBACK = ('127.0.0.1', 'localhost', '[::1]')


class AccessError(ValueError):
    """A request that is refused; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Access:
    """The rules of a view that listens on ``host``; the token is new for each view."""

    host: str
    token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(16))

    def url(self, port: int) -> str:
        return f'http://{_bracketed(self.host)}:{port}/{self.token}/'

    def check(
        self, path: str, hosts: Sequence[str], origins: Sequence[str], *, port: int,
        websocket: bool,
    ) -> str:
        """Return the requested path without the token; AccessError: the request has to be refused.

        ``hosts`` and ``origins`` are the values of its headers; a page that is opened sends no
        Origin, a websocket needs one.
        """
        if len(hosts) != 1 or not self._is_own(hosts[0].lower(), port):
            raise AccessError(f'Host {quoted(", ".join(hosts), 40)} is not allowed: '
                              f'{self._allowed(port)}')
        own = f'http://{hosts[0].lower()}'
        if len(origins) > 1 or (websocket and not origins) or any(
                each.lower() != own for each in origins):
            raise AccessError(f'Origin {quoted(", ".join(origins), 40)} is not allowed: {own}')
        path = path.removeprefix('/')
        token = re.split('[/?]', path, maxsplit=1)[0]
        if not secrets.compare_digest(_bytes(token), _bytes(self.token)):
            raise AccessError('the address lacks the token of this view: open the whole address '
                              'that the viewer printed')
        rest = path.removeprefix(token)
        return rest if rest.startswith('/') else f'/{rest}'

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        address = _address(self.host)
        return address.is_loopback if address else self.host == 'localhost'

    @property
    def _is_wildcard(self) -> bool:
        address = _address(self.host)
        return address is not None and address.is_unspecified

    def _is_own(self, host: str, port: int) -> bool:
        # A browser leaves out port 80.
        if not host.endswith(f':{port}') and port != 80:
            return False
        host = host.removesuffix(f':{port}')
        # The name of a foreign page that is bound to this machine is no address.
        is_address = _address(host[1:-1] if host[:1] + host[-1:] == '[]' else host) is not None
        return host in self._names() or (self._is_wildcard and is_address)

    def _names(self) -> list[str]:
        local = self.is_local or self._is_wildcard
        return list(dict.fromkeys([_bracketed(self.host.lower()), *(_LOOPBACK if local else ())]))

    def _allowed(self, port: int) -> str:
        return ', '.join([f'{each}:{port}' for each in self._names()]
                         + ['any address in digits'] * self._is_wildcard)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f'[{host}]' if ':' in host else host


def _bytes(text: str) -> bytes:
    # A path may hold bytes that are no text.
    return text.encode('utf-8', 'surrogateescape')


#: Length of the longest message that is read, bytes; those of the page have less than 500.
MAX_BYTES = 4096
_Number = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
_Vector = tuple[_Number, _Number, _Number]
_Quaternion = tuple[_Number, _Number, _Number, _Number]


# What the page of this package sends, as viser defines it. With other kinds viser would take
# files, or share the page on the internet.
class _Message(msgspec.Struct, tag_field='type', tag=lambda name: f'{name[1:]}Message',
               forbid_unknown_fields=True):
    pass


class _ViewerCamera(_Message):
    wxyz: _Quaternion
    position: _Vector
    fov: _Number
    near: _Number
    far: _Number
    image_height: _Number
    image_width: _Number
    look_at: _Vector
    up_direction: _Vector


class _Value(msgspec.Struct, forbid_unknown_fields=True):
    """All that may be set of an element: viser would set any attribute."""

    value: bool | _Number


class _GuiUpdate(_Message):
    uuid: str
    updates: _Value


class _GuiButtonHold(_Message):
    uuid: str
    frequency: _Number


class _CommandTrigger(_Message):
    uuid: str


class _TransformControlsDragStart(_Message):
    name: str
    owner: str = ''


class _TransformControlsDragEnd(_TransformControlsDragStart):
    pass


class _TransformControlsUpdate(_Message):
    name: str
    wxyz: _Quaternion
    position: _Vector
    owner: str = ''


_DECODER = msgspec.msgpack.Decoder(
    _ViewerCamera | _GuiUpdate | _GuiButtonHold | _CommandTrigger
    | _TransformControlsDragStart | _TransformControlsDragEnd | _TransformControlsUpdate)


def is_allowed(message: str | bytes) -> bool:
    """Return whether a message of a browser may pass to viser: its kind, and its fields."""
    try:
        return not isinstance(message, str) and _DECODER.decode(message) is not None
    except (msgspec.DecodeError, RecursionError):
        return False


# Different refusals that are reported; a stranger can make up any number of them.
_MAX_REPORTS = 20
# The page may not be shown inside another one, where its buttons could be hidden under others,
# and its address may not be passed on.
_HEADERS = {'Content-Security-Policy': "frame-ancestors 'none'", 'X-Frame-Options': 'DENY',
            'Referrer-Policy': 'no-referrer', 'X-Content-Type-Options': 'nosniff'}

# viser takes its colours from the address, this page those of the browser's setting.
_ENTRY = """<!DOCTYPE html><script>
location.replace(matchMedia('(prefers-color-scheme: dark)').matches ? '?darkMode' : '?light')
</script>"""

_Process = Callable[[ServerConnection, Request], Awaitable[Response | None] | Response | None]


@dataclasses.dataclass
class PageServer:
    """A running server: ``viser`` to fill the page, ``url`` to open it.

    ``answers`` is that of :class:`LoopMonitor`; call it often.
    """

    viser: viser.ViserServer
    url: str
    answers: Callable[[float], bool]

    def stop(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.viser.stop()


class LoopMonitor:
    """Notices when an event loop hangs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
    host: str, port: int, warn: Callable[[str], None], *, allows: str = 'move the arm',
) -> PageServer:
    """Return a server at that address; OSError: it is in use, or none of this machine.

    Args:
        port: 0 selects a free one.
        warn: called, in a thread of the server, with a line for each different refusal.
        allows: what the page allows.
    """
    # Otherwise viser would silently use the next free port.
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
    except OSError as error:
        raise OSError(f'view: {host}:{port} cannot be used: {error.strerror}; '
                      f'view_port:=0 selects a free port') from error
    access = Access(host)
    # Suppress the banner.
    with contextlib.redirect_stdout(io.StringIO()), _checked(access, warn) as monitors:
        server = viser.ViserServer(host=host, port=port, verbose=False)
    if not monitors:
        server.stop()
        raise RuntimeError(f'viser {viser.__version__}: the view cannot be protected, this '
                           'version starts its server in another way')
    if not access.is_local:
        warn(f'view_host {host}: everyone who can reach this address can {allows} with its '
             'token, which is sent without encryption')
    return PageServer(server, access.url(server.get_port()), monitors[-1].answers)


@contextlib.contextmanager
def _checked(access: Access, warn: Callable[[str], None]) -> Iterator[list[LoopMonitor]]:
    """Let a websocket server that is started meanwhile check; yield the monitors of its loop."""
    reported: set[str] = set()
    monitors: list[LoopMonitor] = []
    original = websockets.asyncio.server.serve

    def report(line: str) -> None:
        if line not in reported and len(reported) < _MAX_REPORTS:
            reported.add(line)
            warn(line)

    class Connection(ServerConnection):
        async def recv(self, decode: bool | None = None) -> Any:
            while True:
                message = await super().recv(decode)
                if is_allowed(message):
                    return message
                report(f'message refused: {quoted(message[:40])}')

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
            if path == '/' and 'Upgrade' not in headers:
                response: Any = connection.respond(http.HTTPStatus.OK, _ENTRY)
                del response.headers['Content-Type']
                response.headers['Content-Type'] = 'text/html; charset=utf-8'
            else:
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
