"""The OWI-535's USB protocol: commands of three bytes, two bits for each motor, one for the lamp.

The device never answers and follows its last command until the next one. A command always holds
all motors.

    byte 0   bits 0-1 gripper, 2-3 wrist, 4-5 elbow, 6-7 shoulder
    byte 1   bits 0-1 base
    byte 2   bit 0    lamp

A pair of bits is 00 for off, 01 and 10 for the two directions. 11 is invalid and never sent. The
wiring of the kit decides which direction is forward, see :class:`Signs`.
"""

import contextlib
import errno
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import usb.core
import usb.util

from vdl_ros.arm.joints import Motors
from vdl_ros.common.files import find_resource
from vdl_ros.common.quoting import cause, quoted, shown

PACKET_SIZE = 3
# Time-out of a transfer, which blocks the driver.
_TIMEOUT_MS = 100

# Where a motor's pair of bits is: byte, shift.
_PLACES = {'gripper': (0, 0), 'wrist': (0, 2), 'elbow': (0, 4), 'shoulder': (0, 6), 'base': (1, 0)}
_USED = (0xFF, 0x03, 0x01)


@dataclass(frozen=True)
class Signs:
    """How an arm is wired: 1 if the bits 01 turn the motor forward, -1 if 10 does.

    The defaults are those of an arm wired as its manual says: 01 closes the gripper, lifts wrist,
    elbow and shoulder, and turns the base clockwise as seen from above. Forward increases the
    angle of ``urdf/owi535.urdf.xacro``: open, down, counter-clockwise.
    """

    base: int = -1
    shoulder: int = -1
    elbow: int = -1
    wrist: int = -1
    gripper: int = -1


def encode(motors: Motors, signs: Signs) -> bytes:
    packet = bytearray((0, 0, motors.lamp))
    for name, (byte, shift) in _PLACES.items():
        bits = {0: 0b00, 1: 0b01, -1: 0b10}[getattr(motors, name) * getattr(signs, name)]
        packet[byte] |= bits << shift
    return bytes(packet)


def decode(packet: bytes, signs: Signs) -> Motors:
    """Return the command that 3 bytes encode; ValueError: they are none."""
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


def how_to_install() -> str:
    """Return the commands that install the udev rule of the arm, in one line."""
    rule = 'config/udev/99-owi535.rules'
    with contextlib.suppress(FileNotFoundError):  # an error message must not fail itself
        rule = str(find_resource(rule))
    return (f'sudo cp {rule} /etc/udev/rules.d/ && sudo udevadm control --reload && '
            'sudo udevadm trigger, and add the user to the group plugdev')


VENDOR = 0x1267

# A vendor request to the device; the same for every command.
_REQUEST_TYPE, _REQUEST, _VALUE, _INDEX = 0x40, 6, 0x100, 0


class ArmUsbError(OSError):
    """The arm cannot be reached; base class of the errors below."""


class DeviceMissingError(ArmUsbError):
    """The device is not connected."""


class OtherPortError(DeviceMissingError):
    """No device is connected to its port, but one is to another port."""


class DeviceBusyError(ArmUsbError):
    """Another process uses the device."""


class DisconnectedError(ArmUsbError):
    """The device was disconnected while in use."""


def load_backend(name: str = '') -> Any:
    """Return a pyusb backend, by default libusb.

    ``name`` is 'module:function' that returns a ``usb.backend.IBackend``, for tests and other
    transports. ValueError: it cannot be imported or called, or there is no libusb.
    """
    if not name:
        try:
            from libusb_package import get_libusb1_backend as get_backend
        except ImportError:
            # A ROS distribution has pyusb and the system's libusb from its own packages.
            from usb.backend.libusb1 import get_backend
        backend = get_backend()
        if backend is None:
            raise ValueError('no libusb: install the Python package libusb-package, or libusb-1.0')
        return backend
    module, _, function = name.partition(':')
    try:
        return getattr(importlib.import_module(module), function)()
    except Exception as error:
        raise ValueError(
            f'usb_backend: {quoted(name)} is not allowed: module:function of a pyusb backend '
            f'({cause(error)})') from error


def arms(product: int, backend: Any) -> dict[str, Any]:
    """Return the arms that are connected by their ports, such as ``1-2.3``, as the kernel does."""
    found = {}
    for device in usb.core.find(
            find_all=True, idVendor=VENDOR, idProduct=product, backend=backend):
        ports = device.port_numbers
        # Where ports are unknown, an arm that is plugged in again counts as another one.
        name = f'-{".".join(map(str, ports))}' if ports else f':{device.address}'
        found[f'{device.bus}{name}'] = device
    return found


class UsbArm:
    """An open USB arm; used by one thread.

    ArmUsbError: it is missing, not permitted, busy, not the only one, or fails at once.

    Args:
        port: where it is connected, as of :func:`arms`; empty: wherever the only arm is.
        share: do not claim it; another process keeps its claim.
    """

    def __init__(self, product: int, backend: Any, port: str = '', *, share: bool = False) -> None:
        kind = f'{VENDOR:04x}:{product:04x}'
        self._name = f'{kind} at {shown(port)}' if port else kind
        with self._errors('open'):
            found = arms(product, backend)
        if not port and len(found) > 1:
            raise ArmUsbError(f'arm {self._name}: {len(found)} are connected: choose one by '
                              + ' or '.join(f'usb_port:={each}' for each in found))
        self.port = port or next(iter(found), '')
        if self.port not in found:
            raise self._missing(product, backend, list(found))
        self._name = f'{kind} at {self.port}'
        self._device = device = found[self.port]
        if share:
            return
        try:
            with self._errors('open'):
                device.set_configuration()
                if device[0].bNumInterfaces:
                    # Commands need no interface; the claim keeps a second driver away.
                    usb.util.claim_interface(device, 0)
        except ArmUsbError:
            self.close()
            raise

    def send(self, packet: bytes) -> None:
        """Write a command of 3 bytes; after an ArmUsbError the state of the motors is unknown."""
        with self._errors('command'):
            count = self._device.ctrl_transfer(
                _REQUEST_TYPE, _REQUEST, _VALUE, _INDEX, packet, _TIMEOUT_MS)
        if count != PACKET_SIZE:
            raise ArmUsbError(
                f'arm {self._name}: it accepted {count} of {PACKET_SIZE} bytes of a command')

    def close(self) -> None:
        """Release the device in any state; the motors continue as they are."""
        with contextlib.suppress(usb.core.USBError, NotImplementedError):
            usb.util.dispose_resources(self._device)

    def _missing(self, product: int, backend: Any, others: list[str]) -> DeviceMissingError:
        text = f'arm {self._name}: no such USB device is connected'
        if others:
            return OtherPortError(f'{text}; at {", ".join(others)} is one: move its plug, or '
                                  f'start again with usb_port:={others[0]}')
        with contextlib.suppress(usb.core.USBError):
            for other in {0, 1} - {product}:
                if arms(other, backend):
                    text += f'; {VENDOR:04x}:{other:04x} is: usb_product:={other}'
        return DeviceMissingError(f'{text}; before the first use: {how_to_install()}')

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except NotImplementedError as error:
            raise ArmUsbError(f'arm {self._name}: {what}: not supported here: {error}') from error
        except usb.core.USBError as error:
            kind, text = ArmUsbError, f'{what} failed: {error.strerror or error}'
            if isinstance(error, usb.core.USBTimeoutError) or error.errno == errno.ETIMEDOUT:
                text = f'{what} not accepted within {_TIMEOUT_MS} ms'
            elif error.errno in (errno.EACCES, errno.EPERM):
                text = f'no permission to {what} it: {how_to_install()}'
            elif error.errno == errno.EBUSY:
                kind = DeviceBusyError
                text = 'another process uses it; is a second driver running?'
            elif error.errno in (errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN):
                kind, text = DisconnectedError, 'disconnected'
            raise kind(f'arm {self._name}: {text}') from error


class UsbPort:
    """The USB port of one arm; the arm that was opened first is the only one opened later.

    A motor may be on in an arm that is disconnected. If it is connected again to another port, it
    is stopped there and not opened: it may be another arm. An arm that a driver holds is not
    stopped.

    Args:
        port: its name, as of :func:`arms`; empty: that of the only arm.
        held: whether the arm has been opened already, by another process.
    """

    def __init__(self, product: int, backend: Any, port: str = '', *, held: bool = False) -> None:
        self._arm = product, backend
        self._chosen = self.name = port
        self._held = held
        # Ports and addresses of arms that were stopped; an arm that is plugged in has a new one.
        self._stopped: set[tuple[str, int]] = set()

    def open(self, *, share: bool = False) -> UsbArm:
        """Open the arm; or ArmUsbError: OtherPortError once those at other ports are stopped."""
        try:
            arm = UsbArm(*self._arm, self.name, share=share)
        except OtherPortError:
            if self._held:
                self._stop_others()
            raise
        self.name, self._held = arm.port, True
        return arm

    def release(self) -> None:
        """Let the next one that is opened be another arm, unless a port was chosen."""
        self.name, self._held = self._chosen, False

    def _stop_others(self) -> None:
        failed: ArmUsbError | None = None
        with contextlib.suppress(usb.core.USBError, NotImplementedError):
            for port, device in arms(*self._arm).items():
                if (port, device.address) in self._stopped:
                    continue
                try:
                    with contextlib.closing(UsbArm(*self._arm, port)) as arm:
                        arm.send(bytes(PACKET_SIZE))
                        self._stopped.add((port, device.address))
                except (DeviceBusyError, DeviceMissingError, DisconnectedError):
                    pass  # a driver holds it, or it is gone
                except ArmUsbError as error:
                    failed = error
        if failed is not None:
            raise failed
