"""Settings of the arm's driver: safety limits, USB device and wiring."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.arm.driver.protocol import Signs
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.common.settings import SettingError, setting

__all__ = ['SafetyConfig', 'UsbConfig']

_SIGN = '1 if the bits 01 turn the joint forward, -1 if 10 do, as it is wired.'
# Somewhat longer than the joint's travel takes at 20 deg/s.
_RUN_TIME = 'Longest time in one direction less that in the other; then the motor only runs back.'


@dataclass(frozen=True)
class SafetyConfig:
    """Safety limits that stop motors, of the real and the simulated arm."""

    command_timeout: float = setting(
        0.5, 'All motors stop after this time without a command.', minimum=0.05, maximum=5.0,
        unit='s')
    refresh_period: float = setting(
        0.2, 'Period of repeating the last command, to detect a disconnected arm.', minimum=0.02,
        maximum=5.0, unit='s')
    reconnect_period: float = setting(
        0.25, 'Time between attempts to find a disconnected arm.', minimum=0.05, maximum=10.0,
        unit='s')
    base_max_run_time: float = setting(15.0, _RUN_TIME, minimum=0.05, maximum=60.0, unit='s')
    shoulder_max_run_time: float = setting(10.0, _RUN_TIME, minimum=0.05, maximum=60.0, unit='s')
    elbow_max_run_time: float = setting(18.0, _RUN_TIME, minimum=0.05, maximum=60.0, unit='s')
    wrist_max_run_time: float = setting(7.0, _RUN_TIME, minimum=0.05, maximum=60.0, unit='s')
    gripper_max_run_time: float = setting(2.5, _RUN_TIME, minimum=0.05, maximum=60.0, unit='s')

    return_weight: float = setting(
        1.5, 'Weight of a second in the other direction; a joint that lifts the arm is slower.',
        minimum=1.0, maximum=3.0)

    def max_run_time(self, motor: str) -> float:
        """Return how much longer a motor may run in one direction than in the other, s."""
        return float(getattr(self, f'{motor}_max_run_time'))


@dataclass(frozen=True)
class UsbConfig:
    """The USB device of the real arm and its wiring."""

    autostart: bool = setting(True, 'Configure and activate as soon as the arm is connected.')
    usb_product: int = setting(
        0, 'USB product id: 0, or 1 for newer arms.', minimum=0, maximum=65535)
    usb_timeout: float = setting(
        0.1, 'Time-out of a USB transfer, which blocks the node.', minimum=0.005, maximum=1.0,
        unit='s')
    usb_backend: str = setting('', 'module:function that returns a pyusb backend; empty: libusb.')
    base_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    shoulder_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    elbow_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    wrist_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    gripper_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)

    @property
    def signs(self) -> Signs:
        """
        Return the signs by motor.

        Raises:
            SettingError: a sign is 0.
        """
        values = {name: getattr(self, f'{name}_sign') for name in JOINTS}
        for name, value in values.items():
            if value == 0:
                raise SettingError(f'{name}_sign: 0 is not allowed: -1 or 1')
        return Signs(**values)
