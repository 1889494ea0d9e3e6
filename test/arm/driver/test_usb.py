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


def is_one_line(error):
    assert '\n' not in str(error.value)
    return str(error.value)


def test_a_command_is_one_vendor_request_of_three_bytes(bench, backend):
    arm = usb.UsbArm(0, backend, 0.1)
    arm.send(b'\x11\x02\x01')
    arm.close()
    assert [(each.setup, each.data, each.timeout) for each in bench.transfers] == [
        ([0x40, 6, 0x100, 0], '110201', 100)]
    assert backend.calls == ['enumerate', 'open', 'set_configuration 1', 'claim 0', 'release 0',
                             'close']


def test_shared_access_commands_beside_the_claiming_process(bench, backend):
    holder = usb.UsbArm(0, backend, 0.1)
    with pytest.raises(usb.DeviceBusyError):
        usb.UsbArm(0, usb.load_backend('fake_owi535:make'), 0.1)
    other = usb.load_backend('fake_owi535:make')
    guest = usb.UsbArm(0, other, 0.1, share=True)
    guest.send(b'\x00\x00\x01')
    guest.close()
    assert other.calls == ['enumerate', 'open', 'close']
    holder.send(b'\x11\x02\x01')
    holder.close()
    assert bench.data == ['000001', '110201']


@pytest.mark.parametrize(('fault', 'kind', 'words'), [
    ('timeout', usb.TransferTimeoutError, 'command not accepted within 100 ms'),
    ('partial', usb.PartialWriteError, 'it accepted 2 of 3 bytes'),
    ('unplugged', usb.DisconnectedError, 'disconnected'),
    ('denied', usb.PermissionDeniedError, '99-owi535.rules'),
    ('busy', usb.DeviceBusyError, 'another process uses it'),
    ('io', usb.ArmUsbError, 'command failed: Input/output error')])
def test_each_usb_failure_has_its_error(bench, backend, fault, kind, words):
    arm = usb.UsbArm(0, backend, 0.1)
    bench.fail(fault)
    with pytest.raises(usb.ArmUsbError) as caught:
        arm.send(bytes(3))
    assert type(caught.value) is kind
    assert words in is_one_line(caught)
    arm.close()


@pytest.mark.parametrize(('fault', 'kind'), [
    ('unplugged', usb.DeviceMissingError), ('denied', usb.PermissionDeniedError)])
def test_missing_or_forbidden_device_error_names_the_udev_rule(bench, backend, fault, kind):
    bench.fail(fault)
    with pytest.raises(kind) as caught:
        usb.UsbArm(0, backend, 0.1)
    line = is_one_line(caught)
    rule = next(word for word in line.split() if word.endswith('99-owi535.rules'))
    assert Path(rule).is_file()
    assert 'sudo udevadm control --reload' in line
    assert bench.transfers == []


def test_missing_device_error_names_the_other_product(bench, backend):
    bench.become(1)
    with pytest.raises(usb.DeviceMissingError, match='1267:0001 is: usb_product:=1'):
        usb.UsbArm(0, backend, 0.1)
    usb.UsbArm(1, backend, 0.1).close()


def test_second_driver_is_refused_until_the_first_closes(bench, backend):
    first = usb.UsbArm(0, backend, 0.1)
    with pytest.raises(usb.DeviceBusyError, match='second driver'):
        usb.UsbArm(0, fake.make(), 0.1)
    first.close()
    usb.UsbArm(0, fake.make(), 0.1).close()


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


@pytest.mark.parametrize('name', ['nowhere:make', 'fake_owi535:nothing', 'fake_owi535', 'os:sep'])
def test_invalid_backend_is_named(name):
    with pytest.raises(ValueError, match='module:function') as caught:
        usb.load_backend(name)
    assert repr(name) in is_one_line(caught)


def test_libusb_needs_no_system_package():
    with pytest.raises(usb.DeviceMissingError):
        usb.UsbArm(0xFFFF, usb.load_backend(), 0.1)
