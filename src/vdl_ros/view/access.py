"""
Who may open the view: requests for its own Host, from its own Origin, with its token.

A browser sends in ``Host`` the address it was given and in ``Origin`` the page that asks; a page
can change neither. A page of another origin is refused by its Origin, and a foreign name that
points to this machine (DNS rebinding) by its Host. The token, the first part of the path, is
random, so that other users and programs of this machine cannot open the view either.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import secrets
from collections.abc import Sequence

from vdl_ros.common.quoting import quoted

__all__ = ['Access', 'AccessError', 'is_local']

_LOOPBACK = ('127.0.0.1', 'localhost', '[::1]')


class AccessError(ValueError):
    """A request that is refused; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Access:
    """The rules of a view that listens on ``host``; the token is new for each view."""

    host: str
    token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(16))

    def url(self, port: int) -> str:
        """Return the address to open in a browser."""
        return f'http://{_bracketed(self.host)}:{port}/{self.token}/'

    def check(
        self, path: str, hosts: Sequence[str], origins: Sequence[str], *, port: int,
        websocket: bool,
    ) -> str:
        """
        Return the requested path without the token.

        Args:
            path: of the request.
            hosts: values of its headers ``Host``.
            origins: values of its headers ``Origin``; a page that is opened sends none.
            port: where the view listens.
            websocket: whether it asks for a websocket, which needs an Origin.

        Raises:
            AccessError: the request has to be refused.
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

    def _is_own(self, host: str, port: int) -> bool:
        ending = f':{port}'
        if host.endswith(ending):
            host = host[:-len(ending)]
        elif port != 80:  # which a browser leaves out
            return False
        return host in self._names() or (self._is_wildcard() and _is_address(host))

    def _names(self) -> tuple[str, ...]:
        own = _bracketed(self.host.lower())
        loopback = _LOOPBACK if is_local(self.host) or self._is_wildcard() else ()
        return tuple(dict.fromkeys([own, *loopback]))

    def _is_wildcard(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def _allowed(self, port: int) -> str:
        return ', '.join([*(f'{each}:{port}' for each in self._names()),
                          *(['any address in digits'] if self._is_wildcard() else [])])


def is_local(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == 'localhost'


def _bracketed(host: str) -> str:
    return f'[{host}]' if ':' in host else host


def _is_address(name: str) -> bool:
    """Return whether a name in a URL is an IP address; such a name cannot be rebound."""
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith('[') and name.endswith(']') else name)
    except ValueError:
        return False
    return True


def _bytes(text: str) -> bytes:
    # A path may hold bytes that are no text.
    return text.encode('utf-8', 'surrogateescape')
