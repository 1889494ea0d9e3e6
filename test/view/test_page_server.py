"""The server behind the page: no stranger, and only six kinds of its messages, have an effect."""

import asyncio
import contextlib
import http.client
import math
import threading
from urllib.parse import urlsplit

import numpy as np
import page_client
import pytest
import viser
import websockets.asyncio.server
from viser import _messages
from websockets.exceptions import InvalidStatus

from vdl_ros.arm.joints import JOINTS
from vdl_ros.view import page_server
from vdl_ros.view.panel import ClientClosed, EmergencyStop, Hold, MoveTo, Panel, Release

LIMITS = np.radians([-90.0] * 5), np.radians([90.0] * 5)
STOP = 'EMERGENCY STOP'
HOME = MoveTo(dict.fromkeys(JOINTS, 0.0))


class View:
    """A served panel and what was refused."""

    def __init__(self):
        self.refusals = []
        self.server = page_server.serve('127.0.0.1', 0, self.refusals.append)
        self.url = self.server.url
        self.stopped = threading.Event()
        self.panel = Panel(self.server.viser, self.stopped.set)
        self.panel.set_limits(*LIMITS)
        self.panel.show_emergency_stop(False)

    def events_until(self, last):
        """Return the users' inputs up to this one, which has to come."""
        events, pause = [], threading.Event()
        for _ in range(6000):
            for each in self.panel.events():
                if isinstance(each, ClientClosed):  # that of an earlier test
                    continue
                events.append(each)
                if each == last:
                    return events
            pause.wait(0.01)
        raise AssertionError(f'{last}: did not come; {events}')

    def client(self):
        client = page_client.PageClient(self.url)
        client.read(STOP, 'Home', 'wrist (°)', 'lamp')
        client.send(page_client.CAMERA)
        return client

    def get(self, path):
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        connection.request('GET', path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body


@pytest.fixture(scope='module')
def shared():
    view = View()
    yield view
    view.server.stop()


@pytest.fixture
def view(shared):
    shared.refusals.clear()
    shared.panel.show_emergency_stop(False)
    return shared


def test_page_is_served_with_its_token_only(view):
    path = urlsplit(view.url).path
    response, body = view.get(path)
    assert response.headers['Content-Type'] == 'text/html; charset=utf-8'
    assert b"'?darkMode' : '?light'" in body, 'by the setting of the browser'
    response, body = view.get(f'{path}?light')
    assert response.status == 200
    assert b'<html' in body
    assert response.headers['Content-Security-Policy'] == "frame-ancestors 'none'"
    assert response.headers['Referrer-Policy'] == 'no-referrer'
    assert view.get('/index.html')[0].status == 403
    assert view.get(f'{path}../../../etc/passwd')[0].status == 404


def test_stranger_is_refused_at_the_handshake(view):
    # All of them: test_access.py.
    for how in ({'origin': 'http://evil.example'}, {'host': 'evil.example'}):
        with pytest.raises(InvalidStatus) as refusal:
            page_client.PageClient(view.url, **how)
        assert refusal.value.response.status_code == 403, how
        # Nothing that a stranger needs.
        assert urlsplit(view.url).path.strip('/') not in refusal.value.response.body.decode()


def test_forbidden_messages_of_the_own_page_have_no_effect(view, monkeypatch):
    shared = []
    monkeypatch.setattr(viser.ViserServer, 'request_share_url',
                        lambda *_, **__: shared.append('a public tunnel'))
    with view.client() as client:
        stop = client.ids[STOP]
        for message in page_client.kinds(stop).values():
            if message['type'] not in ('GuiUpdateMessage', 'GuiButtonHoldMessage'):
                client.send(message)
        for message in ({'type': 'GuiUpdateMessage', 'uuid': stop, 'updates': {'removed': True}},
                        b'\xff\xff', 'text'):
            client.send(message)
        client.press(STOP)
        client.press('Home')
        assert view.events_until(HOME) == [EmergencyStop(True), HOME]
    assert shared == []
    assert all(line.startswith('message refused: ') for line in view.refusals)


def test_disabled_buttons_have_no_effect_and_sliders_keep_their_range(view):
    with view.client() as client:
        view.panel.show_emergency_stop(True)
        hold = {'type': 'GuiButtonHoldMessage', 'uuid': client.ids['base left'], 'frequency': 20.0}
        client.send(hold)
        client.press('Go')
        client.press('Home')
        # The end of a hold is taken at any time: it only switches off.
        client.press('base left')
        client.press('Release the emergency stop')
        first, second = view.events_until(EmergencyStop(False))
        assert isinstance(first, Release)
        assert second == EmergencyStop(False)
        view.panel.show_emergency_stop(False)
        client.press('Release the emergency stop')
        client.send(hold)
        client.press(STOP)
        first, second = view.events_until(EmergencyStop(True))
        assert isinstance(first, Hold)
        # A slider beyond its range is set to the end.
        client.send({'type': 'GuiUpdateMessage', 'uuid': client.ids['wrist (°)'],
                     'updates': {'value': 1e9}})
        client.press('Go')
        client.press(STOP)
        first, _ = view.events_until(EmergencyStop(True))
        assert isinstance(first, MoveTo)
        assert first.positions['wrist'] == pytest.approx(np.pi / 2)


def test_the_stop_waits_for_no_other_thread(view):
    view.stopped.clear()
    with view.client() as client:
        client.press(STOP)
        # Nobody takes the events.
        assert view.stopped.wait(60.0)


def test_message_too_long_ends_the_connection_and_others_go_on(view):
    with view.client() as other:
        with view.client() as client:
            client.send(page_client.CAMERA | {'type': 'x' * 100_000})
            with pytest.raises(websockets.exceptions.ConnectionClosed):
                client.read('no such element')
        other.press(STOP)
        assert view.events_until(EmergencyStop(True))[-1] == EmergencyStop(True)


def test_server_that_viser_starts_in_another_way_is_refused(view, monkeypatch):
    assert websockets.asyncio.server.serve.__module__ == 'websockets.asyncio.server', 'restored'
    monkeypatch.setattr(page_server, '_checked', lambda *_: contextlib.nullcontext([]))
    with pytest.raises(RuntimeError, match='cannot be protected'):
        page_server.serve('127.0.0.1', 0, print)


def test_hanging_event_loop_is_noticed_and_its_recovery_too():
    now, loop = [0.0], asyncio.new_event_loop()
    monitor = page_server.LoopMonitor(loop, lambda: now[0])

    def turn():
        """Let the loop handle what was asked before."""
        loop.call_soon(loop.stop)
        loop.run_forever()

    assert monitor.answers(0.5)
    turn()
    for now[0] in (1.0, 2.0):
        assert not monitor.answers(0.5), 'it hangs'
    turn()
    assert monitor.answers(0.5)
    turn()
    now[0] = 2.6
    assert not monitor.answers(0.5)
    turn()
    assert monitor.answers(0.5)
    loop.close()


KINDS = page_client.kinds()
# The first of them are those of the page.
KNOWN = tuple(KINDS)[:7]
UPDATES = [
    {}, {'update_cb': []}, {'value': True, 'update_cb': []}, {'uuid': 'x'}, {'value': 'text'},
    {'value': None}, {'value': [1.0]}, {'value': math.nan}, {'value': -math.inf}, 'value',
    [['value', True]], ['value']]


def test_the_known_kinds_pass_to_viser():
    for kind in KNOWN:
        message = page_client.encode(KINDS[kind])
        assert page_server.is_allowed(message), kind
        assert type(_messages.Message.deserialize(message)).__name__ == kind
        assert len(message) < page_server.MAX_BYTES


def test_other_kinds_other_attributes_and_broken_messages_are_refused():
    assert len(KINDS) > len(KNOWN)
    for data in (
            b'', b'\xff', b'\x91' * 4000, b'\x81\xa4type', '{"type": "ViewerCameraMessage"}',
            *map(page_client.encode, (
                [1], {}, {'type': 1}, {'type': [1]},
                *(message for kind, message in KINDS.items() if kind not in KNOWN),
                *({'type': 'GuiUpdateMessage', 'uuid': 'x', 'updates': each} for each in UPDATES),
                page_client.CAMERA | {'fov': math.nan}, page_client.CAMERA | {'more': 1},
                page_client.CAMERA | {'position': b'bytes'}, page_client.CAMERA | {'wxyz': [1]},
                {'type': 'GuiButtonHoldMessage', 'uuid': [], 'frequency': 20.0},
                page_client.CAMERA | {'position': [0, 0, math.inf]}))):
        assert not page_server.is_allowed(data), data
