"""Of viser's messages only six kinds pass, with their own fields."""

import math

import msgspec
import page_client
import pytest
from viser import _messages

from vdl_ros.view.browser_messages import MAX_BYTES, MessageError, check_message

KINDS = page_client.kinds()
KNOWN = ('ViewerCameraMessage', 'GuiButtonHoldMessage', 'GuiUpdateMessage',
         'TransformControlsUpdateMessage', 'TransformControlsDragStartMessage',
         'TransformControlsDragEndMessage')


@pytest.mark.parametrize('kind', KNOWN)
def test_known_kind_passes_to_viser(kind):
    checked = check_message(page_client.encode(KINDS[kind]))
    assert msgspec.msgpack.decode(checked) == KINDS[kind]
    assert type(_messages.Message.deserialize(checked)).__name__ == kind
    assert len(checked) < MAX_BYTES


@pytest.mark.parametrize('kind', [each for each in KINDS if each not in KNOWN])
def test_other_kind_is_refused(kind):
    with pytest.raises(MessageError):
        check_message(page_client.encode(KINDS[kind]))


@pytest.mark.parametrize('updates', [
    {}, {'update_cb': []}, {'value': True, 'update_cb': []}, {'props': {}}, {'uuid': 'x'},
    {'value': 'text'}, {'value': None}, {'value': [1.0]}, {'value': math.nan},
    {'value': -math.inf}, 'value', [['value', True]]])
def test_only_a_value_may_be_updated(updates):
    with pytest.raises(MessageError):
        check_message(page_client.encode(
            {'type': 'GuiUpdateMessage', 'uuid': 'x', 'updates': updates}))


@pytest.mark.parametrize('change', [
    {'type': 'Nothing'}, {'type': 1}, {'fov': math.nan}, {'position': [0, 0]},
    {'position': [0, 0, math.inf]}, {'wxyz': 'wxyz'}, {'image_height': '100'}, {'more': 1}])
def test_broken_camera_is_refused(change):
    with pytest.raises(MessageError):
        check_message(page_client.encode(page_client.CAMERA | change))


@pytest.mark.parametrize('data', [
    b'', b'\xff', b'\x91' * 4000, b'\x81\xa4type', '{"type": "ViewerCameraMessage"}',
    page_client.encode([1]), page_client.encode({'type': 'GuiUpdateMessage', 'uuid': 'x' * 65,
                                                 'updates': {'value': True}}),
    page_client.encode({'x' * 4000: 1, 'type': '\x1b[2J'})])
def test_broken_message_is_refused_in_one_short_line(data):
    with pytest.raises(MessageError) as refusal:
        check_message(data)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 120


def test_repeated_key_passes_as_it_was_checked():
    # One decoder takes the first, another one the last: what passes has each once.
    twice = (b'\x83\xa4type\xb0GuiUpdateMessage\xa4uuid\xa1x\xa7updates'
             b'\x82\xa5value\x01\xa5value\xc3')
    assert msgspec.msgpack.decode(check_message(twice))['updates'] == {'value': True}
    assert check_message(twice).count(b'value') == 1
