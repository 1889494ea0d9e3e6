"""
The OWI-535 as a USB device: find, open, write three bytes, close.

Uses pyusb, with the libusb of the Python package libusb-package where that is installed, so that
no system package is needed. Every failure is an :class:`ArmUsbError` of one line.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
from collections.abc import Iterator
from typing import Any

import usb.core
import usb.util

from vdl_ros.arm.driver.protocol import PACKET_SIZE
from vdl_ros.arm.driver.udev_rule import how_to_install

__all__ = [
    'VENDOR', 'ArmUsbError', 'DeviceBusyError', 'DeviceMissingError', 'DisconnectedError',
    'PartialWriteError', 'PermissionDeniedError', 'TransferTimeoutError', 'UsbArm',
    'load_backend',
]

VENDOR = 0x1267

# A vendor request to the device; the same for every command.
_REQUEST_TYPE, _REQUEST, _VALUE, _INDEX = 0x40, 6, 0x100, 0


class ArmUsbError(OSError):
    """The arm cannot be reached; base class of the errors below."""


class DeviceMissingError(ArmUsbError):
    """The device is not connected."""


class PermissionDeniedError(ArmUsbError):
    """The user may not open the device."""


class DeviceBusyError(ArmUsbError):
    """Another process uses the device."""


class DisconnectedError(ArmUsbError):
    """The device was disconnected while in use."""


class TransferTimeoutError(ArmUsbError):
    """The device did not accept the command in time."""


class PartialWriteError(ArmUsbError):
    """The device accepted only a part of the command."""


def load_backend(name: str = '') -> Any:
    """
    Return a pyusb backend.

    Args:
        name: 'module:function' that returns a ``usb.backend.IBackend``, for tests and other
            transports; by default libusb.

    Raises:
        ValueError: ``name`` cannot be imported or called, or there is no libusb.
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
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f'usb_backend: {name!r} is not allowed: module:function of a pyusb backend '
            f'({error})') from error


class UsbArm:
    """An open USB arm; used by one thread."""

    def __init__(self, product: int, backend: Any, timeout: float, *, share: bool = False) -> None:
        """
        Find the arm and claim it.

        Args:
            product: USB product id, beside the vendor id :data:`VENDOR`. Of several arms the
                first that libusb lists is used.
            backend: of pyusb, see :func:`load_backend`.
            timeout: of one command, s.
            share: do not claim it; another process keeps its claim.

        Raises:
            ArmUsbError: it is missing, not permitted, busy, or fails at once.
        """
        self._name = f'{VENDOR:04x}:{product:04x}'
        self._timeout_ms = max(1, round(timeout * 1000))
        with self._errors('open'):
            device = usb.core.find(idVendor=VENDOR, idProduct=product, backend=backend)
        if device is None:
            raise DeviceMissingError(self._missing(product, backend))
        self._device = device
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
        """
        Write one command.

        Args:
            packet: of ``protocol.encode``, 3 bytes.

        Raises:
            ArmUsbError: not accepted as a whole; the state of the motors is unknown.
        """
        with self._errors('command'):
            count = self._device.ctrl_transfer(
                _REQUEST_TYPE, _REQUEST, _VALUE, _INDEX, packet, self._timeout_ms)
        if count != PACKET_SIZE:
            raise PartialWriteError(
                f'arm {self._name}: it accepted {count} of {PACKET_SIZE} bytes of a command')

    def close(self) -> None:
        """Release the device in any state; the motors continue as they are."""
        with contextlib.suppress(usb.core.USBError, NotImplementedError):
            usb.util.dispose_resources(self._device)

    def _missing(self, product: int, backend: Any) -> str:
        hint = ''
        with contextlib.suppress(usb.core.USBError):
            for other in {0, 1} - {product}:
                if usb.core.find(idVendor=VENDOR, idProduct=other, backend=backend) is not None:
                    hint = f'; {VENDOR:04x}:{other:04x} is: usb_product:={other}'
        return (f'arm {self._name}: no such USB device is connected{hint}; '
                f'before the first use: {how_to_install()}')

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn pyusb's errors into this module's."""
        try:
            yield
        except usb.core.USBTimeoutError as error:
            raise TransferTimeoutError(self._timed_out(what)) from error
        except NotImplementedError as error:
            raise ArmUsbError(f'arm {self._name}: {what}: not supported here: {error}') from error
        except usb.core.USBError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise PermissionDeniedError(
                    f'arm {self._name}: no permission to {what} it: {how_to_install()}') from error
            if error.errno == errno.EBUSY:
                raise DeviceBusyError(
                    f'arm {self._name}: another process uses it; is a second driver '
                    'running?') from error
            if error.errno in (errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN):
                raise DisconnectedError(f'arm {self._name}: disconnected') from error
            if error.errno == errno.ETIMEDOUT:
                raise TransferTimeoutError(self._timed_out(what)) from error
            raise ArmUsbError(
                f'arm {self._name}: {what} failed: {error.strerror or error}') from error

    def _timed_out(self, what: str) -> str:
        return f'arm {self._name}: {what} not accepted within {self._timeout_ms} ms'
