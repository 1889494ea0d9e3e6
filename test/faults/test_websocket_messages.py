"""Messages of any content to the view, by its own page and by strangers: the stop still works."""

import contextlib
import re
from urllib.parse import urlsplit

import page_client
import pytest
from mutations import pick
from std_msgs.msg import String
from websockets.exceptions import ConnectionClosed, InvalidStatus

from vdl_ros.arm.geometry import expand

STOP = 'EMERGENCY STOP'
LABELS = STOP, 'base left', 'Go', 'Home', 'lamp', 'wrist (°)'
PER_KIND = 30
KINDS = tuple(page_client.kinds())
VALUES = (None, True, False, 0, -1, 1.5, 1e308, float('nan'), float('inf'), 2**64 - 1, -2**63, '',
          'text', 'x' * 5000, '\x1b[2J', b'bytes', [], [[]], [1.0] * 3, [1.0] * 500, {}, {'a': {}},
          {'value': True}, {'value': 1e300}, {'value': float('nan')}, {'value': True, 'x': 1},
          {'visible': False}, {'update_cb': []})
NAMES = 'more', 'uuid', 'updates', 'type ', 'x' * 3000


class View:
    """A running viewer, and the topic of the emergency stop that it publishes."""

    def __init__(self, launch, peer):
        self.peer = peer
        self.process = launch(
            'ros2', 'run', 'vdl_ros', 'viewer', '--ros-args', '-p', 'view_port:=0')
        self._stops = peer.listen('arm/emergency_stop')
        peer.talk('robot_description').publish(String(data=expand()))
        self.url = self.process.wait_for(lambda: re.search(
            r'view: (http://127.0.0.1:\d+/?\S*)\n', self.process.output), 'the address')[1]

    def open(self):
        client = page_client.PageClient(self.url)
        client.read(*LABELS)
        return client

    def check_stop(self):
        """Press the emergency stop as a page does; check that the viewer publishes it."""
        self._stops.clear()
        with self.open() as client:
            client.send(page_client.CAMERA)
            client.press(STOP)
            self.peer.until(lambda: self._stops, 'the stop', 60.0)


def stranger(rng, url):
    """Return address, Host and Origin of a request that is not of the view's own page."""
    parts = urlsplit(url)
    own, port = parts.netloc, parts.port
    names = [f'evil.example:{port}', f'127.0.0.1.evil.example:{port}', f'127.0.0.2:{port}',
             f'127.0.0.1:{port ^ 1}', '127.0.0.1', f'[::2]:{port}', f'localhost.:{port}',
             ''.join(chr(97 + each) for each in rng.integers(26, size=12)) + f':{port}']
    origins = [*(f'http://{each}' for each in names), f'https://{own}', f'http://{own}/',
               f'http://{own}.evil.example', f'http://{own}@evil.example', 'null', None, 'file://']
    how = int(rng.integers(4))
    if how == 0:
        host = pick(rng, names)
        return url, host, f'http://{host}'
    if how == 1:
        return url, pick(rng, names), ''
    if how == 2:
        return url, None, pick(rng, origins)
    token = list(parts.path.strip('/'))
    token[int(rng.integers(len(token)))] = '.'
    return f'http://{own}/{"".join(token)}', None, ''


def status_of(url, host, origin):
    """Return the HTTP status of a handshake; 101 if it opened a websocket."""
    try:
        page_client.PageClient(url, host=host, origin=origin).close()
    except InvalidStatus as refusal:
        return refusal.response.status_code
    return 101


def with_random_fields(message, ids, rng):
    changed = dict(message)
    for _ in range(int(rng.integers(1, 4))):
        name = pick(rng, [each for each in changed if each != 'type'] or ['uuid'])
        how = rng.random()
        if how < 0.15:
            changed.pop(name, None)
        elif how < 0.3:
            changed[pick(rng, NAMES)] = pick(rng, VALUES)
        elif how < 0.6 and 'uuid' in changed:
            changed['uuid'] = pick(rng, ids)
        else:
            changed[name] = pick(rng, VALUES)
    return changed


@pytest.mark.fault_row(
    'websocket messages of each kind, random fields, foreign Origin and Host',
    'the handshake is refused (HTTP 403); the stop works after each', reduced=120,
    full=len(KINDS) * PER_KIND)
def test_websocket_messages_leave_the_stop_working(trials, launch, peer):
    assert len(KINDS) == 15
    view = View(launch, peer)

    def send(index, rng):
        url, host, origin = stranger(rng, view.url)
        assert status_of(url, host, origin) == 403, (host, origin)
        with view.open() as client:
            ids = [each for label, each in client.ids.items() if label != STOP]
            message = page_client.kinds(pick(rng, ids))[KINDS[index // PER_KIND]]
            # One that is too long ends the connection.
            with contextlib.suppress(ConnectionClosed):
                client.send(with_random_fields(message, [*ids, 'none'], rng))
                client.send(page_client.CAMERA)
            view.check_stop()
        assert view.process.process.poll() is None
        assert 'Traceback' not in view.process.output, view.process.output[-2000:]

    trials.run(send)
