"""Of viser's messages only six kinds pass, and of elements only their values change."""

import math

import page_client
from viser import _messages

from vdl_ros.view.page_server import MAX_BYTES, is_allowed

KINDS = page_client.kinds()
KNOWN = ('ViewerCameraMessage', 'GuiButtonHoldMessage', 'GuiUpdateMessage',
         'TransformControlsUpdateMessage', 'TransformControlsDragStartMessage',
         'TransformControlsDragEndMessage')
UPDATES = [
    {}, {'update_cb': []}, {'value': True, 'update_cb': []}, {'uuid': 'x'}, {'value': 'text'},
    {'value': None}, {'value': [1.0]}, {'value': math.nan}, {'value': -math.inf}, 'value',
    [['value', True]], ['value']]


def test_the_six_known_kinds_pass_to_viser():
    for kind in KNOWN:
        message = page_client.encode(KINDS[kind])
        assert is_allowed(message), kind
        assert type(_messages.Message.deserialize(message)).__name__ == kind
        assert len(message) < MAX_BYTES


def test_other_kinds_other_attributes_and_broken_messages_are_refused():
    assert len(KINDS) > len(KNOWN)
    for data in (
            b'', b'\xff', b'\x91' * 4000, b'\x81\xa4type', '{"type": "ViewerCameraMessage"}',
            *map(page_client.encode, (
                [1], {}, {'type': 1}, {'type': [1]},
                *(message for kind, message in KINDS.items() if kind not in KNOWN),
                *({'type': 'GuiUpdateMessage', 'uuid': 'x', 'updates': each} for each in UPDATES),
                page_client.CAMERA | {'fov': math.nan},
                page_client.CAMERA | {'position': [0, 0, math.inf]}))):
        assert not is_allowed(data), data
