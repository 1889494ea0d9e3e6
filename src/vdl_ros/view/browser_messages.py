"""
The messages that a browser may send: camera, input of a value, held button, dragged target.

viser accepts every message of its protocol: it would upload files, open a public tunnel, and set
any attribute of an element, its callbacks too. Of its messages the view needs those below, with
these fields only.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from vdl_ros.common.quoting import quoted

__all__ = ['MAX_BYTES', 'MessageError', 'check_message']

#: Length of the longest message that is read, bytes; those of the page have less than 500.
MAX_BYTES = 4096

_Id = Annotated[str, msgspec.Meta(max_length=64)]
_Vector = tuple[float, float, float]


class MessageError(ValueError):
    """A message that is refused; the message is one line."""


class _Camera(msgspec.Struct, tag_field='type', tag='ViewerCameraMessage',
              forbid_unknown_fields=True):
    wxyz: tuple[float, float, float, float]
    position: _Vector
    fov: float
    near: float
    far: float
    image_height: float
    image_width: float
    look_at: _Vector
    up_direction: _Vector


class _Updates(msgspec.Struct, forbid_unknown_fields=True):
    value: bool | float


class _Update(msgspec.Struct, tag_field='type', tag='GuiUpdateMessage',
              forbid_unknown_fields=True):
    uuid: _Id
    updates: _Updates


class _Hold(msgspec.Struct, tag_field='type', tag='GuiButtonHoldMessage',
            forbid_unknown_fields=True):
    uuid: _Id
    frequency: float


class _Drag(msgspec.Struct, tag_field='type', tag='TransformControlsUpdateMessage',
            forbid_unknown_fields=True):
    name: _Id
    wxyz: tuple[float, float, float, float]
    position: _Vector
    owner: _Id


class _DragStart(msgspec.Struct, tag_field='type', tag='TransformControlsDragStartMessage',
                 forbid_unknown_fields=True):
    name: _Id
    owner: _Id


class _DragEnd(msgspec.Struct, tag_field='type', tag='TransformControlsDragEndMessage',
               forbid_unknown_fields=True):
    name: _Id
    owner: _Id


_DECODER = msgspec.msgpack.Decoder(_Camera | _Update | _Hold | _Drag | _DragStart | _DragEnd)
_ENCODER = msgspec.msgpack.Encoder()


def check_message(message: str | bytes) -> bytes:
    """
    Return a message of a browser, encoded again from its known fields.

    Raises:
        MessageError: a text, an unknown kind or field, a wrong type, or a number that is not
            finite.
    """
    if isinstance(message, str):
        raise MessageError(f'{quoted(message, 40)} is not allowed: a binary message')
    try:
        decoded = _DECODER.decode(message)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(
            f'a message of a browser is not allowed: {quoted(str(error), 40)}') from None
    if not _finite(msgspec.to_builtins(decoded)):
        raise MessageError(f'{type(decoded).__name__[1:]}: a number that is not finite')
    return _ENCODER.encode(decoded)


def _finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
