"""Settings of the arm's driver: safety limits, USB device and wiring."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.arm.driver.protocol import Signs
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.common.settings import SettingError, setting

__all__ = ['SafetyConfig', 'UsbConfig']

_SIGN = '1 if the bits 01 turn it forward, -1 if 10 do; depends on the wiring.'
# Somewhat longer than the joint's travel takes at 20 deg/s.
_RUN_TIME = 'maximum time in one direction, less that in the other; then it only runs back.'


@dataclass(frozen=True)
class SafetyConfig:
    """Safety limits that stop motors, of the real and the simulated arm."""

    command_timeout: float = setting(
        0.5, 'All motors stop after this time without a command.',
        minimum=0.05, maximum=5.0, unit='s')
    refresh_period: float = setting(
        0.2, 'Period at which the last command is sent again, to detect a disconnected arm.',
        minimum=0.02, maximum=5.0, unit='s')
    reconnect_period: float = setting(
        0.25, 'Time between two attempts to find a disconnected arm again; each takes some ms.',
        minimum=0.05, maximum=10.0, unit='s')
    base_max_run_time: float = setting(
        15.0, f'Base: {_RUN_TIME}', minimum=0.05, maximum=60.0, unit='s')
    shoulder_max_run_time: float = setting(
        10.0, f'Shoulder: {_RUN_TIME}', minimum=0.05, maximum=60.0, unit='s')
    elbow_max_run_time: float = setting(
        18.0, f'Elbow: {_RUN_TIME}', minimum=0.05, maximum=60.0, unit='s')
    wrist_max_run_time: float = setting(
        7.0, f'Wrist: {_RUN_TIME}', minimum=0.05, maximum=60.0, unit='s')
    gripper_max_run_time: float = setting(
        2.5, f'Gripper: {_RUN_TIME}', minimum=0.05, maximum=60.0, unit='s')

    return_weight: float = setting(
        1.5, 'How often a second in the other direction counts against the run times: a joint '
        'that lifts the arm is slower than one that lowers it.', minimum=1.0, maximum=3.0)

    def max_run_time(self, motor: str) -> float:
        """Return how much longer a motor may run in one direction than in the other, s."""
        return float(getattr(self, f'{motor}_max_run_time'))


@dataclass(frozen=True)
class UsbConfig:
    """The USB device of the real arm and its wiring."""

    autostart: bool = setting(
        True, 'Configure and activate automatically as soon as the arm is connected.')
    usb_product: int = setting(
        0, 'USB product id of the arm: 0, or 1 for newer ones.', minimum=0, maximum=65535)
    usb_timeout: float = setting(
        0.1, 'Timeout of one USB transfer, which blocks the node.', minimum=0.005, maximum=1.0,
        unit='s')
    usb_backend: str = setting(
        '', 'module:function that returns a pyusb backend, for tests and other transports; '
        'by default libusb.')
    base_sign: int = setting(-1, f'Base: {_SIGN}', minimum=-1, maximum=1)
    shoulder_sign: int = setting(-1, f'Shoulder: {_SIGN}', minimum=-1, maximum=1)
    elbow_sign: int = setting(-1, f'Elbow: {_SIGN}', minimum=-1, maximum=1)
    wrist_sign: int = setting(-1, f'Wrist: {_SIGN}', minimum=-1, maximum=1)
    gripper_sign: int = setting(-1, f'Gripper: {_SIGN}', minimum=-1, maximum=1)

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
