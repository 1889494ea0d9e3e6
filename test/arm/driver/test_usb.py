"""USB access, byte for byte, against a fake backend of pyusb."""

from pathlib import Path

import fake_owi535 as fake
import pytest

from vdl_ros.arm.driver import usb
from vdl_ros.arm.driver.udev_rule import udev_rule

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv(fake.VARIABLE, str(tmp_path))
    return fake.Bench(tmp_path)


@pytest.fixture
def backend(bench):
    return usb.load_backend('fake_owi535:make')


def refusal(call, kind=usb.ArmUsbError):
    """Return the one line of the error that ``call`` raises, which is of exactly this kind."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert '\n' not in str(caught.value)
    return str(caught.value)


def test_a_command_is_one_vendor_request_of_three_bytes(bench, backend):
    arm = usb.UsbArm(0, backend, 0.1)
    arm.send(b'\x11\x02\x01')
    arm.close()
    assert [(each.setup, each.data, each.timeout) for each in bench.transfers] == [
        ([0x40, 6, 0x100, 0], '110201', 100)]
    assert backend.calls == ['enumerate', 'open', 'set_configuration 1', 'claim 0', 'release 0',
                             'close']


def test_second_driver_is_refused_but_shared_access_commands_beside_the_first(bench, backend):
    holder = usb.UsbArm(0, backend, 0.1)
    assert 'second driver' in refusal(
        lambda: usb.UsbArm(0, fake.make(), 0.1), usb.DeviceBusyError)
    other = usb.load_backend('fake_owi535:make')
    guest = usb.UsbArm(0, other, 0.1, share=True)
    guest.send(b'\x00\x00\x01')
    guest.close()
    assert other.calls == ['enumerate', 'open', 'close']
    holder.send(b'\x11\x02\x01')
    holder.close()
    assert bench.data == ['000001', '110201']
    usb.UsbArm(0, fake.make(), 0.1).close()


def test_each_usb_failure_has_its_error(bench, backend):
    for fault, kind, words in (
            ('timeout', usb.TransferTimeoutError, 'command not accepted within 100 ms'),
            ('partial', usb.PartialWriteError, 'it accepted 2 of 3 bytes'),
            ('unplugged', usb.DisconnectedError, 'disconnected'),
            ('denied', usb.PermissionDeniedError, '99-owi535.rules'),
            ('busy', usb.DeviceBusyError, 'another process uses it'),
            ('io', usb.ArmUsbError, 'command failed: Input/output error')):
        bench.fail('')
        arm = usb.UsbArm(0, backend, 0.1)
        bench.fail(fault)
        assert words in refusal(lambda arm=arm: arm.send(bytes(3)), kind)
        arm.close()


def test_missing_or_forbidden_device_error_names_the_udev_rule_or_the_other_product(
        bench, backend):
    for fault, kind in (('unplugged', usb.DeviceMissingError),
                        ('denied', usb.PermissionDeniedError)):
        bench.fail(fault)
        line = refusal(lambda: usb.UsbArm(0, backend, 0.1), kind)
        rule = next(word for word in line.split() if word.endswith('99-owi535.rules'))
        assert Path(rule).is_file()
        assert 'sudo udevadm control --reload' in line
        assert bench.transfers == []
    bench.fail('')
    bench.become(1)
    assert '1267:0001 is: usb_product:=1' in refusal(
        lambda: usb.UsbArm(0, backend, 0.1), usb.DeviceMissingError)
    usb.UsbArm(1, backend, 0.1).close()


def test_old_handle_stays_invalid_after_reconnection(bench, backend):
    arm = usb.UsbArm(0, backend, 0.1)
    bench.fail('unplugged')
    bench.fail('')
    with pytest.raises(usb.DisconnectedError):
        arm.send(bytes(3))
    arm.close()
    usb.UsbArm(0, backend, 0.1).send(bytes(3))


def test_the_rule_covers_both_products_and_only_them():
    rule = (ROOT / 'config' / 'udev' / '99-owi535.rules').read_text()
    lines = [line for line in rule.splitlines() if line and not line.startswith('#')]
    assert len(lines) == 2
    for line, product in zip(lines, ('0000', '0001'), strict=True):
        assert 'ATTR{idVendor}=="1267"' in line
        assert f'ATTR{{idProduct}}=="{product}"' in line
    assert udev_rule().read_text() == rule


def test_invalid_backend_is_named_and_libusb_needs_no_system_package():
    for name in ('nowhere:make', 'fake_owi535:nothing', 'fake_owi535', 'os:sep'):
        line = refusal(lambda name=name: usb.load_backend(name), ValueError)
        assert repr(name) in line
        assert 'module:function' in line
    with pytest.raises(usb.DeviceMissingError):
        usb.UsbArm(0xFFFF, usb.load_backend(), 0.1)
