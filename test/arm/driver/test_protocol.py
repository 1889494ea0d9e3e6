"""Motor commands, their bytes, and USB access byte for byte against a fake backend of pyusb."""

import dataclasses
import itertools
import math
from pathlib import Path

import fake_owi535 as fake
import numpy as np
import pytest

from vdl_ros.arm.driver import usb
from vdl_ros.arm.driver.driver import UsbConfig
from vdl_ros.arm.driver.usb import Signs, decode, encode
from vdl_ros.arm.joints import JOINTS, MotorError, Motors

PLAIN = Signs(**dict.fromkeys(JOINTS, 1))

# As the protocol's author published it: 01 is the first direction, 10 the second.
TABLE = {
    ('gripper', 1): '010000', ('gripper', -1): '020000',
    ('wrist', 1): '040000', ('wrist', -1): '080000',
    ('elbow', 1): '100000', ('elbow', -1): '200000',
    ('shoulder', 1): '400000', ('shoulder', -1): '800000',
    ('base', 1): '000100', ('base', -1): '000200',
}


def test_each_motor_has_its_bits_and_commands_combine_and_decode_back():
    for (motor, direction), bits in TABLE.items():
        assert encode(Motors(**{motor: direction}), PLAIN).hex() == bits
        flipped = dataclasses.replace(PLAIN, **{motor: -1})
        assert encode(Motors(**{motor: -direction}), flipped).hex() == bits
    # By default forward is that of the URDF.
    assert UsbConfig().signs == Signs()
    assert encode(Motors(1, 1, 1, 1, 1), Signs()).hex() == 'aa0200'
    signs = Signs(-1, -1, 1, -1, 1)
    for *directions, lamp in itertools.product(*[(-1, 0, 1)] * 5, (False, True)):
        motors = Motors(*directions, lamp=lamp)
        parts = [encode(Motors(**{name: getattr(motors, name)}), signs) for name in JOINTS]
        packet = bytes(map(sum, zip(*parts, bytes((0, 0, lamp)), strict=True)))
        assert encode(motors, signs) == packet
        assert decode(packet, signs) == motors


def test_values_are_in_joint_order_and_text_lists_motors_that_are_on():
    motors = Motors(base=1, wrist=-1, lamp=True)
    assert motors.values == (1, 0, 0, -1, 0)
    assert Motors.of(np.array([1, 0, 0, -1, 0], np.int8), lamp=True) == motors
    assert Motors.of([1.0, 0.0, 0.0, -1.0, -0.0], lamp=True) == motors
    assert all(type(value) is int for value in Motors.of(np.ones(5)).values)
    assert motors.stopped() == Motors(lamp=True)
    assert [each.moving for each in (motors, motors.stopped())] == [True, False]
    assert (str(Motors()), str(motors)) == ('off', 'base +1, wrist -1, lamp')


def test_invalid_values_are_refused_by_name():
    for motor, value in zip(itertools.cycle(JOINTS), (
            2, -2, -128, True, 1.0, math.nan, math.inf, None, '1', 'x' * 100), strict=False):
        with pytest.raises(
                MotorError, match=f'^motor {motor}: .* is not allowed: -1, 0 or 1$') as caught:
            Motors(**{motor: value})
        assert len(str(caught.value)) < 100
    for value in (0.5, math.nan, math.inf, 3, True, None):
        with pytest.raises(MotorError, match='motor elbow'):
            Motors.of([0, 0, value, 0, 0])
    for values in ([], [0] * 4, [0] * 6):
        with pytest.raises(MotorError, match=f'{len(values)} values, but there are 5'):
            Motors.of(values)
    with pytest.raises(MotorError, match='^lamp: 1 is not allowed: true or false'):
        Motors(lamp=1)
    for packet, why in (
            ('0000', '3 bytes'), ('00000000', '3 bytes'),
            ('030000', 'both directions of gripper'), ('0c0000', 'of wrist'),
            ('300000', 'of elbow'), ('c00000', 'of shoulder'), ('000300', 'of base'),
            ('000400', 'unused bits are set'), ('000002', 'unused bits are set')):
        with pytest.raises(ValueError, match=why):
            decode(bytes.fromhex(packet), PLAIN)


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
    arm = usb.UsbArm(0, backend)
    arm.send(b'\x11\x02\x01')
    arm.close()
    assert [(each.setup, each.data, each.timeout) for each in bench.transfers] == [
        ([0x40, 6, 0x100, 0], '110201', 100)]
    assert backend.calls == ['enumerate', 'open', 'set_configuration 1', 'claim 0', 'release 0',
                             'close']


def test_second_driver_is_refused_but_shared_access_commands_beside_the_first(bench, backend):
    holder = usb.UsbArm(0, backend)
    assert 'second driver' in refusal(lambda: usb.UsbArm(0, fake.make()), usb.DeviceBusyError)
    other = usb.load_backend('fake_owi535:make')
    guest = usb.UsbArm(0, other, share=True)
    guest.send(b'\x00\x00\x01')
    guest.close()
    assert other.calls == ['enumerate', 'open', 'close']
    holder.send(b'\x11\x02\x01')
    holder.close()
    assert bench.data == ['000001', '110201']
    usb.UsbArm(0, fake.make()).close()


def test_each_usb_failure_has_its_error(bench, backend):
    for fault, kind, words in (
            ('timeout', usb.ArmUsbError, 'command not accepted within 100 ms'),
            ('partial', usb.ArmUsbError, 'it accepted 2 of 3 bytes'),
            ('unplugged', usb.DisconnectedError, 'disconnected'),
            ('denied', usb.ArmUsbError, 'no permission to command it'),
            ('busy', usb.DeviceBusyError, 'another process uses it'),
            ('io', usb.ArmUsbError, 'command failed: Input/output error')):
        bench.fail('')
        arm = usb.UsbArm(0, backend)
        bench.fail(fault)
        assert words in refusal(lambda arm=arm: arm.send(bytes(3)), kind)
        arm.close()


def test_missing_or_forbidden_device_error_names_the_udev_rule_or_the_other_product(
        bench, backend):
    for fault, kind in (('unplugged', usb.DeviceMissingError), ('denied', usb.ArmUsbError)):
        bench.fail(fault)
        assert usb.how_to_install() in refusal(lambda: usb.UsbArm(0, backend), kind)
        assert bench.transfers == []
    bench.fail('')
    bench.become(1)
    assert '1267:0001 is: usb_product:=1' in refusal(
        lambda: usb.UsbArm(0, backend), usb.DeviceMissingError)
    usb.UsbArm(1, backend).close()


def test_of_several_arms_one_is_chosen_by_its_port(bench, tmp_path):
    other = fake.Bench(tmp_path)
    other.plug_into(2)
    both = fake.FakeBackend(bench.folder, tmp_path)
    assert refusal(lambda: usb.UsbArm(0, both)) == (
        'arm 1267:0000: 2 are connected: choose one by usb_port:=1-1 or usb_port:=1-2')
    assert 'arm 1267:0000 at 1-3: no such USB device is connected; at 1-1, 1-2 is one' in refusal(
        lambda: usb.UsbArm(0, both, '1-3'), usb.OtherPortError)
    chosen = usb.UsbPort(0, both, '1-2')
    chosen.open().send(bytes(3))
    assert (bench.data, other.data) == ([], ['000000'])
    chosen.release()
    assert chosen.name == '1-2'


def test_old_handle_stays_invalid_after_reconnection(bench, backend):
    arm = usb.UsbArm(0, backend)
    bench.fail('unplugged')
    bench.fail('')
    with pytest.raises(usb.DisconnectedError):
        arm.send(bytes(3))
    arm.close()
    usb.UsbArm(0, backend).send(bytes(3))


def test_the_rule_covers_both_products_and_only_them():
    rule = Path(next(word for word in usb.how_to_install().split() if 'rules' in word))
    lines = [line for line in rule.read_text().splitlines() if line and not line.startswith('#')]
    assert len(lines) == 2
    for line, product in zip(lines, ('0000', '0001'), strict=True):
        assert 'ATTR{idVendor}=="1267"' in line
        assert f'ATTR{{idProduct}}=="{product}"' in line


def test_invalid_backend_is_named_and_libusb_needs_no_system_package():
    for name in ('nowhere:make', 'fake_owi535:nothing', 'fake_owi535', 'os:sep',
                 'fake_owi535:make'):
        line = refusal(lambda name=name: usb.load_backend(name), ValueError)
        assert repr(name) in line
        assert 'module:function' in line
    with pytest.raises(usb.DeviceMissingError):
        usb.UsbArm(0xFFFF, usb.load_backend())
