"""An OWI-535 at the level of pyusb's backend: records every transfer and fails on request.

Its state is in a folder named by FAKE_OWI535, so that tests, driver and guardian see one
device: ``transfers.jsonl``, one line for each control transfer; ``fault``, a word; ``holder``, a
file that is locked while an interface is claimed, so the kernel frees it when a process dies.
FAKE_OWI535 may name several folders, as PATH does: each is one arm, listed in this order.

``usb_backend:=fake_owi535:make`` gives it to a driver; :class:`Bench` is the tests' side, and
:func:`plugged_in` makes one where no disk can hold a driver that writes.
"""

import contextlib
import errno
import fcntl
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import usb.backend
import usb.core

VARIABLE = 'FAKE_OWI535'
FAULTS = ('', 'unplugged', 'timeout', 'partial', 'denied', 'busy', 'io')
# Motors on: an exception that no device raises.
CRASH = 'crash'
# Transfers wait for the bus until it is mended or they time out; with the number of the first.
STALL = 'stall'
# Between two looks at a stalled bus, s.
_LOOK_S = 0.002


def _error(number: int) -> usb.core.USBError:
    kind = usb.core.USBTimeoutError if number == errno.ETIMEDOUT else usb.core.USBError
    return kind(os.strerror(number), -1, number)


class FakeBackend(usb.backend.IBackend):
    """Arms with one configuration and one interface; a handle dies when its arm is unplugged."""

    def __init__(self, *folders: Path):
        self.benches = [Bench(folder) for folder in folders]
        self._claimed: dict[Bench, int] = {}
        self.calls: list[str] = []

    def enumerate_devices(self):
        self.calls.append('enumerate')
        return [(bench, bench.plugged) for bench in self.benches if bench.fault != 'unplugged']

    def get_device_descriptor(self, dev):
        bench, plugged = dev
        return SimpleNamespace(
            bLength=18, bDescriptorType=1, bcdUSB=0x110, bDeviceClass=0, bDeviceSubClass=0,
            bDeviceProtocol=0, bMaxPacketSize0=8, idVendor=0x1267, idProduct=bench.product,
            bcdDevice=0, iManufacturer=0, iProduct=0, iSerialNumber=0, bNumConfigurations=1,
            address=1 + int(plugged), bus=1, port_number=bench.port, port_numbers=(bench.port,),
            speed=1)

    def get_configuration_descriptor(self, dev, config):
        if config:
            raise IndexError(config)
        return SimpleNamespace(
            bLength=9, bDescriptorType=2, wTotalLength=18, bNumInterfaces=1,
            bConfigurationValue=1, iConfiguration=0, bmAttributes=0x80, bMaxPower=50,
            extra_descriptors=[])

    def open_device(self, dev):
        self.calls.append('open')
        if dev[0].fault == 'denied':
            raise _error(errno.EACCES)
        return dev

    def close_device(self, dev_handle):
        self.calls.append('close')

    def set_configuration(self, dev_handle, config_value):
        self.calls.append(f'set_configuration {config_value}')
        self._check(dev_handle)

    def claim_interface(self, dev_handle, intf):
        self.calls.append(f'claim {intf}')
        self._check(dev_handle)
        bench = dev_handle[0]
        descriptor = os.open(bench.folder / 'holder', os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise _error(errno.EBUSY) from None
        self._claimed[bench] = descriptor

    def release_interface(self, dev_handle, intf):
        self.calls.append(f'release {intf}')
        if dev_handle[0] in self._claimed:
            os.close(self._claimed.pop(dev_handle[0]))

    def ctrl_transfer(self, dev_handle, request_type, request, value, index, data, timeout):
        """Write down what came and what became of it, then do that."""
        bench, plugged = dev_handle
        fault = bench.fault
        if plugged != bench.plugged:
            fault = 'unplugged'
        elif fault.startswith(STALL):
            fault = self._wait(bench, timeout / 1000)
        bench.record(
            setup=[request_type, request, value, index], data=bytes(data).hex(),
            timeout=timeout, fault=fault)
        if fault == 'partial':
            return 2
        if fault == CRASH:
            if any(data):
                raise RuntimeError('a mistake in the program')
            return len(data)
        if fault:
            raise _error({'timeout': errno.ETIMEDOUT, 'unplugged': errno.ENODEV,
                          'denied': errno.EACCES, 'busy': errno.EBUSY, 'io': errno.EIO}[fault])
        return len(data)

    @staticmethod
    def _wait(bench: 'Bench', timeout: float) -> str:
        """Wait while the bus stalls; return what becomes of the transfer."""
        end = time.monotonic() + timeout
        while (fault := bench.fault).startswith(STALL):
            if len(bench.transfers) < int(fault.removeprefix(STALL)):
                return ''
            bench.note_stall()
            if time.monotonic() >= end:
                return 'timeout'
            time.sleep(_LOOK_S)
        return fault

    @staticmethod
    def _check(handle) -> None:
        bench, plugged = handle
        if bench.fault == 'unplugged' or plugged != bench.plugged:
            raise _error(errno.ENODEV)
        if bench.fault == 'busy':
            raise _error(errno.EBUSY)


def make() -> FakeBackend:
    """Return the backend of the devices that the environment names."""
    return FakeBackend(*map(Path, os.environ[VARIABLE].split(os.pathsep)))


@dataclass(frozen=True)
class Transfer:
    """One control transfer; ``time`` is CLOCK_MONOTONIC, which all processes share."""

    time: float
    pid: int
    setup: list[int]
    data: str
    timeout: int
    fault: str


class Bench:
    """The device as a test sees it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._log = folder / 'transfers.jsonl'

    @property
    def env(self) -> dict[str, str]:
        """Return what a process needs to find this device."""
        path = os.pathsep.join(
            [str(Path(__file__).parent), *filter(None, [os.environ.get('PYTHONPATH')])])
        return {VARIABLE: str(self.folder), 'PYTHONPATH': path}

    def record(self, **values) -> None:
        line = json.dumps({'time': time.monotonic(), 'pid': os.getpid(), **values}) + '\n'
        # One write: several processes append.
        with self._log.open('ab', buffering=0) as log:
            log.write(line.encode())

    @property
    def transfers(self) -> list[Transfer]:
        try:
            # What follows the last end of a line is half written.
            lines = self._log.read_text().split('\n')[:-1]
        except FileNotFoundError:
            return []
        return [Transfer(**json.loads(line)) for line in lines]

    @property
    def data(self) -> list[str]:
        """Return the bytes of every transfer, in hexadecimal."""
        return [each.data for each in self.transfers]

    def _word(self, name: str, default: str) -> str:
        try:
            return (self.folder / name).read_text()
        except FileNotFoundError:
            return default

    def _put(self, name: str, word: str) -> None:
        # Replaced as a whole: a reader never sees half a word.
        draft = self.folder / f'{name}.draft'
        draft.write_text(word)
        draft.replace(self.folder / name)

    @property
    def fault(self) -> str:
        return self._word('fault', '')

    def fail(self, fault: str) -> None:
        """Let every call fail so from now on; '' mends it."""
        assert fault in (*FAULTS, CRASH)
        (self.folder / 'stalled').unlink(missing_ok=True)
        if fault == 'unplugged':
            self._put('plugged', str(int(self.plugged) + 1))
        self._put('fault', fault)

    def plug_into(self, port: int) -> None:
        """Disconnect it, and connect it to this port."""
        self.fail('unplugged')
        self._put('port', str(port))
        self.fail('')

    @property
    def port(self) -> int:
        return int(self._word('port', '1'))

    def stall(self, first: int) -> None:
        """Let transfers wait, from the one with this number on, until :meth:`fail`."""
        self._put('fault', f'{STALL}{first}')

    @property
    def stalled(self) -> bool:
        """Return whether a transfer has met the stall."""
        return (self.folder / 'stalled').exists()

    def note_stall(self) -> None:
        (self.folder / 'stalled').touch()

    @property
    def plugged(self) -> str:
        """Return how often it was plugged in: handles of before are dead."""
        return self._word('plugged', '0')

    @property
    def product(self) -> int:
        return int(self._word('product', '0'))

    def become(self, product: int) -> None:
        self._put('product', str(product))


@contextlib.contextmanager
def plugged_in():
    """Yield a device whose folder is in memory where that can be."""
    memory = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
    with tempfile.TemporaryDirectory(
            prefix='owi535-', dir=memory, ignore_cleanup_errors=True) as folder:
        yield Bench(Path(folder))
