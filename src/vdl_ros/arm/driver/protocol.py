"""
The OWI-535's USB protocol: commands of three bytes, two bits for each motor, one for the lamp.

The device never answers and follows its last command until the next one. A command always holds
all motors; :func:`with_motor` changes one and leaves the others' bits alone.

    byte 0   bits 0-1 gripper, 2-3 wrist, 4-5 elbow, 6-7 shoulder
    byte 1   bits 0-1 base
    byte 2   bit 0    lamp

A pair of bits is 00 for off, 01 and 10 for the two directions. 11 is invalid and never sent. The
wiring of the kit decides which direction is forward, see :class:`Signs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import Motors
from vdl_ros.common.quoting import quoted

__all__ = ['PACKET_SIZE', 'Signs', 'decode', 'encode', 'with_motor']

PACKET_SIZE = 3

# Where a motor's pair of bits is: byte, shift.
_PLACES = {'gripper': (0, 0), 'wrist': (0, 2), 'elbow': (0, 4), 'shoulder': (0, 6), 'base': (1, 0)}
_USED = (0xFF, 0x03, 0x01)


@dataclass(frozen=True)
class Signs:
    """
    How an arm is wired: 1 if the bits 01 turn the motor forward, -1 if 10 does.

    The defaults are those of an arm wired as its manual says: 01 closes the gripper, lifts wrist,
    elbow and shoulder, and turns the base clockwise as seen from above. Forward increases the
    angle of ``urdf/owi535.urdf.xacro``: open, down, counter-clockwise.

    Raises:
        ValueError: a sign that is neither 1 nor -1; the message names it.
    """

    base: int = -1
    shoulder: int = -1
    elbow: int = -1
    wrist: int = -1
    gripper: int = -1

    def __post_init__(self) -> None:
        """Check the signs."""
        for name in JOINTS:
            value = getattr(self, name)
            if type(value) is not int or value not in (-1, 1):
                raise ValueError(f'sign of {name}: {quoted(value, 40)} is not allowed: -1 or 1')


def with_motor(packet: bytes, motor: str, direction: int, signs: Signs) -> bytes:
    """
    Return ``packet`` (3 bytes) with one motor changed; no other bit differs.

    Raises:
        ValueError: an unknown motor or a direction other than -1, 0, 1.
    """
    if motor not in _PLACES:
        raise ValueError(f'motor {quoted(motor, 40)}: no such motor: {", ".join(JOINTS)}')
    if type(direction) is not int or direction not in (-1, 0, 1):
        raise ValueError(f'motor {motor}: {quoted(direction, 40)} is not allowed: -1, 0 or 1')
    byte, shift = _PLACES[motor]
    bits = {0: 0b00, 1: 0b01, -1: 0b10}[direction * getattr(signs, motor)]
    changed = bytearray(packet)
    changed[byte] = changed[byte] & ~(0b11 << shift) | bits << shift
    return bytes(changed)


def encode(motors: Motors, signs: Signs) -> bytes:
    """Return the command's 3 bytes."""
    packet = bytes((0, 0, int(motors.lamp)))
    for name in JOINTS:
        packet = with_motor(packet, name, getattr(motors, name), signs)
    return packet


def decode(packet: bytes, signs: Signs) -> Motors:
    """
    Return the command that 3 bytes encode.

    Raises:
        ValueError: not 3 bytes, bits 11 for a motor, or unused bits that are set.
    """
    if len(packet) != PACKET_SIZE:
        raise ValueError(f'a command has {PACKET_SIZE} bytes, not {len(packet)}')
    if any(value & ~used for value, used in zip(packet, _USED, strict=True)):
        raise ValueError(f'command {packet.hex(" ")}: unused bits are set')
    values: dict[str, int] = {}
    for name, (byte, shift) in _PLACES.items():
        bits = packet[byte] >> shift & 0b11
        if bits == 0b11:
            raise ValueError(f'command {packet.hex(" ")}: both directions of {name} at once')
        values[name] = {0b00: 0, 0b01: 1, 0b10: -1}[bits] * getattr(signs, name)
    return Motors(**values, lamp=bool(packet[2]))
