"""Of viser's messages only six kinds pass, with their own fields."""

import math

import msgspec
import page_client
from viser import _messages

from vdl_ros.view.page_server import MAX_BYTES, MessageError, check_message

KINDS = page_client.kinds()
KNOWN = ('ViewerCameraMessage', 'GuiButtonHoldMessage', 'GuiUpdateMessage',
         'TransformControlsUpdateMessage', 'TransformControlsDragStartMessage',
         'TransformControlsDragEndMessage')
BROKEN_UPDATES = [
    {}, {'update_cb': []}, {'value': True, 'update_cb': []}, {'props': {}}, {'uuid': 'x'},
    {'value': 'text'}, {'value': None}, {'value': [1.0]}, {'value': math.nan},
    {'value': -math.inf}, 'value', [['value', True]]]
BROKEN_CAMERAS = [
    {'type': 'Nothing'}, {'type': 1}, {'fov': math.nan}, {'position': [0, 0]},
    {'position': [0, 0, math.inf]}, {'wxyz': 'wxyz'}, {'image_height': '100'}, {'more': 1}]
BROKEN = [
    b'', b'\xff', b'\x91' * 4000, b'\x81\xa4type', '{"type": "ViewerCameraMessage"}',
    *map(page_client.encode, (
        [1], {'type': 'GuiUpdateMessage', 'uuid': 'x' * 65, 'updates': {'value': True}},
        {'x' * 4000: 1, 'type': '\x1b[2J'},
        *(message for kind, message in KINDS.items() if kind not in KNOWN),
        *({'type': 'GuiUpdateMessage', 'uuid': 'x', 'updates': each} for each in BROKEN_UPDATES),
        *(page_client.CAMERA | each for each in BROKEN_CAMERAS)))]


def test_the_six_known_kinds_pass_to_viser():
    for kind in KNOWN:
        checked = check_message(page_client.encode(KINDS[kind]))
        assert msgspec.msgpack.decode(checked) == KINDS[kind]
        assert type(_messages.Message.deserialize(checked)).__name__ == kind
        assert len(checked) < MAX_BYTES


def refusal(data):
    try:
        check_message(data)
    except MessageError as error:
        return str(error)
    return ''


def test_other_kinds_and_broken_messages_are_refused_in_one_short_line():
    assert len(KINDS) > len(KNOWN)
    for data in BROKEN:
        line = refusal(data)
        assert line, data
        assert line.isprintable(), data
        assert len(line) < 120, data


def test_repeated_key_passes_as_it_was_checked():
    # One decoder takes the first, another one the last: what passes has each once.
    twice = (b'\x83\xa4type\xb0GuiUpdateMessage\xa4uuid\xa1x\xa7updates'
             b'\x82\xa5value\x01\xa5value\xc3')
    assert msgspec.msgpack.decode(check_message(twice))['updates'] == {'value': True}
    assert check_message(twice).count(b'value') == 1
