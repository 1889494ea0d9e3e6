"""The arm's joints, and commands to their motors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vdl_ros.common.quoting import quoted

#: Order of every array with one number per joint.
JOINTS = ('base', 'shoulder', 'elbow', 'wrist', 'gripper')


class MotorError(ValueError):
    """An invalid motor command; the message names the motor and its value."""


@dataclass(frozen=True)
class Motors:
    """Direction of each motor, 1 forward, -1 backward or 0 off, and whether the lamp is lit.

    Forward increases the joint's angle (see urdf/owi535.urdf.xacro). MotorError names a value that
    is not allowed.
    """

    base: int = 0
    shoulder: int = 0
    elbow: int = 0
    wrist: int = 0
    gripper: int = 0
    lamp: bool = False

    def __post_init__(self) -> None:
        for name in JOINTS:
            value = getattr(self, name)
            # True == 1 and nan is a float: neither is a direction.
            if type(value) is not int or value not in (-1, 0, 1):
                raise MotorError(f'motor {name}: {quoted(value, 40)} is not allowed: -1, 0 or 1')
        if type(self.lamp) is not bool:
            raise MotorError(f'lamp: {quoted(self.lamp, 40)} is not allowed: true or false')

    @classmethod
    def of(cls, values: Sequence[int], lamp: bool = False) -> 'Motors':
        """Return the command of five values in the order of ``joints.JOINTS``; or MotorError."""
        if len(values) != len(JOINTS):
            raise MotorError(
                f'motors: {len(values)} values, but there are {len(JOINTS)}: {", ".join(JOINTS)}')
        named: dict[str, Any] = dict(zip(JOINTS, map(_whole, values), strict=True))
        return cls(**named, lamp=lamp)

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in JOINTS)

    @property
    def moving(self) -> bool:
        return any(self.values)

    def stopped(self) -> 'Motors':
        """Return the same command with all motors off; the lamp stays as it is."""
        return Motors(lamp=self.lamp)

    def __str__(self) -> str:
        """Return the motors that are on, and the lamp: 'base +1, lamp', or 'off'."""
        parts = [f'{name} {value:+d}' for name, value in zip(JOINTS, self.values, strict=True)
                 if value]
        return ', '.join(parts + ['lamp'] * self.lamp) or 'off'


def _whole(value: Any) -> Any:
    """Return a NumPy number or a float without fraction as int; other values unchanged."""
    try:
        return int(value) if not isinstance(value, bool) and int(value) == value else value
    except (TypeError, ValueError, OverflowError):
        return value
