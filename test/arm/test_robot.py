"""The arm without ROS: twin and byte-level fake by the same calls, and every way to stop."""

import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import fake_owi535 as fake
import numpy as np
import pytest
from processes import until

from vdl_ros.arm import robot
from vdl_ros.arm.driver.driver import SafetyConfig, UsbConfig
from vdl_ros.arm.driver.guardian import Guard
from vdl_ros.arm.driver.usb import DeviceMissingError, Signs, decode
from vdl_ros.arm.joints import JOINTS, MotorError
from vdl_ros.arm.robot import OWI535, RobotError, SimulatedOWI535

PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'arm.md'
OFF = {**{f'{name}.motor': 0.0 for name in JOINTS}, 'lamp': 0.0}
# A busy machine may take its time between two lines of a test.
PATIENT = SafetyConfig(command_timeout=5.0)
BACKEND = UsbConfig(usb_backend='fake_owi535:make')
# Ends as its argument says, with a motor on.
SCRIPT = '''
import sys
sys.modules['rclpy'] = None
from vdl_ros.arm.driver.driver import UsbConfig
from vdl_ros.arm.robot import OWI535
arm = OWI535(UsbConfig(usb_backend='fake_owi535:make'))
arm.connect()
arm.send_action({'base.motor': 1, 'lamp': 1})
print('moving', flush=True)
if sys.argv[1] == 'wait':
    while True:
        arm.send_action({'base.motor': 1, 'lamp': 1})
        arm.wait(0.05)
raise RuntimeError('a mistake')
'''


@pytest.fixture
def usb(bench, monkeypatch):
    """Return a function that makes the arm on the bench; test_guardian.py tests the guardian."""
    monkeypatch.setattr(robot, 'Guardian', lambda *arguments: Guard())
    return lambda **arguments: OWI535(BACKEND, **{'safety': PATIENT, **arguments})


def sent(bench):
    """Return the last command that the device accepted."""
    taken = [each.data for each in bench.transfers if not each.fault]
    return decode(bytes.fromhex(taken[-1]), Signs())


def threads(arm):
    return [each for each in threading.enumerate() if each.name == arm.name]


@pytest.fixture(params=['twin', 'usb'])
def arm(request):
    if request.param == 'twin':
        return SimulatedOWI535(real_time=False)
    return request.getfixturevalue('usb')()


def test_both_arms_have_the_same_calls(arm):
    for call in (arm.get_observation, lambda: arm.send_action({})):
        with pytest.raises(RobotError, match='not connected'):
            call()
    arm.connect()
    with pytest.raises(RobotError, match='already connected'):
        arm.connect()
    observation = arm.get_observation()
    assert observation.keys() == arm.observation_features.keys()
    assert observation.items() >= OFF.items()
    action = {**OFF, 'shoulder.motor': -1.0, 'lamp': 1.0}
    assert action.keys() == arm.action_features.keys()
    assert arm.send_action(action) == action
    assert arm.get_observation().items() >= action.items()
    # The lamp stays.
    assert arm.send_action({'wrist.motor': np.float32(1.0)}) == {
        **OFF, 'wrist.motor': 1.0, 'lamp': 1.0}
    arm.send_action({'lamp': 0})
    for wrong, reason in (
            ({'base': 1}, "'base': not in an action: base.motor, shoulder.motor"),
            ({'base.motor': 0.5}, 'motor base: 0.5 is not allowed: -1, 0 or 1'),
            ({'base.motor': math.nan}, 'motor base: nan is not allowed'),
            ({'lamp': 2}, 'lamp: 2 is not allowed: 0 or 1')):
        arm.send_action({'elbow.motor': 1})
        with pytest.raises(MotorError, match=reason):
            arm.send_action(wrong)
        assert arm.get_observation().items() >= OFF.items(), wrong
    for _ in range(2):
        arm.disconnect()
        assert not arm.is_connected
    arm.connect()
    assert arm.is_connected
    arm.disconnect()


def test_an_exception_ends_with_motors_off(usb, bench):
    def fail():
        with usb() as arm:
            arm.send_action({'base.motor': 1})
            raise KeyError('a mistake')

    with pytest.raises(KeyError):
        fail()
    assert '000200' in bench.data
    assert not sent(bench).moving


def test_the_twin_moves_as_long_as_actions_come():
    with SimulatedOWI535(safety=SafetyConfig(wrist_max_run_time=0.3), real_time=False) as arm:
        for _ in range(10):
            arm.send_action({'base.motor': 1})
            arm.wait(0.1)
        moved = arm.get_observation()['base.pos']
        assert moved == pytest.approx(math.radians(20.0), rel=0.15)
        arm.wait(SafetyConfig().command_timeout + 0.1)
        assert arm.get_observation().items() >= OFF.items()
        stopped = arm.get_observation()['base.pos']
        arm.wait(1.0)
        assert arm.get_observation()['base.pos'] == pytest.approx(stopped, abs=1e-3)
        assert arm.simulation.time == pytest.approx(2.6, abs=0.01)
        # Run times are limited.
        arm.send_action({'wrist.motor': 1})
        arm.wait(0.4)
        assert arm.send_action({'wrist.motor': 1}) == OFF
        assert arm.send_action({'wrist.motor': -1})['wrist.motor'] == -1.0


def test_the_twin_follows_the_wall_clock():
    with SimulatedOWI535() as arm:
        begin = arm.simulation.time
        until(lambda: arm.send_action({'base.motor': 1}) and arm.simulation.time > begin + 0.3,
              'time passes')
        until(lambda: not arm.get_observation()['base.motor'], 'no action: motors off')
    ended = arm.simulation.time
    until(lambda: not threads(arm), 'its thread ends')
    assert arm.simulation.time == ended


def test_the_usb_arm_stops_without_actions_and_has_the_measured_positions(usb, bench):
    with usb(safety=SafetyConfig()) as arm:
        arm.send_action({'gripper.motor': -1})
        assert '010000' in bench.data
        until(lambda: not sent(bench).moving, 'motors off')
        observation = arm.get_observation()
        assert observation.items() >= OFF.items()
        assert all(math.isnan(observation[f'{name}.pos']) for name in JOINTS)
    with usb(positions=lambda: [0.1, 0.2, 0.3, math.nan, math.nan]) as arm:
        observation = arm.get_observation()
        assert [observation[f'{name}.pos'] for name in JOINTS[:3]] == [0.1, 0.2, 0.3]
        assert math.isnan(observation['wrist.pos'])


def test_a_missing_or_failing_arm_is_an_error_until_it_is_found_again(usb, bench):
    bench.fail('unplugged')
    missing = usb()
    with pytest.raises(DeviceMissingError, match='no such USB device'):
        missing.connect()
    assert not missing.is_connected
    bench.fail('')
    with usb() as arm:
        bench.fail('io')
        with pytest.raises(RobotError, match='motors off: arm 1267:0000 at 1-1: command failed'):
            arm.send_action({'base.motor': 1})
        with pytest.raises(RobotError, match='motors off'):
            arm.get_observation()
        bench.fail('')

        def works():
            try:
                return arm.send_action({})
            except RobotError:
                return None

        assert until(works, 'the arm is found again') == OFF
        assert not sent(bench).moving


def test_a_mistake_in_the_thread_is_reported(usb, bench):
    with usb() as arm:
        arm.send_action({'base.motor': 1})
        # The next transfer with motors on, a refresh, raises what no device raises.
        bench.fail(fake.CRASH)

        def reason():
            try:
                arm.get_observation()
            except RobotError as error:
                return str(error)
            return ''

        assert 'a mistake in the program' in until(reason, 'an error')
        assert bench.data[-1] == '000000'
        with pytest.raises(RobotError):
            arm.send_action({'base.motor': 1})


def test_a_signal_handler_that_disconnects_within_an_action_leaves_motors_off(
        usb, bench, monkeypatch):
    real, arm = fake.FakeBackend.ctrl_transfer, usb()
    arm.connect()

    def interrupted(*arguments):
        # As a handler does: in the thread that sends motion, before the device has it.
        if any(arguments[6]):
            ticker, = threads(arm)
            until(lambda: sys._current_frames()[ticker.ident].f_code.co_name == '_run',
                  'it waits for the action')
            arm.disconnect()
        return real(*arguments)

    monkeypatch.setattr(fake.FakeBackend, 'ctrl_transfer', interrupted)
    with pytest.raises(RobotError, match='not connected'):
        arm.send_action({'base.motor': 1})
    assert '000200' in bench.data
    assert not sent(bench).moving
    until(lambda: not threads(arm), 'its thread ends')


@pytest.mark.process
@pytest.mark.parametrize('end', ['wait', 'raise'])
def test_motors_are_off_after_the_end_of_the_process(bench, end):
    process = subprocess.Popen([sys.executable, '-c', SCRIPT, end], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == 'moving\n', process.communicate()
    assert '000201' in bench.data
    if end == 'wait':
        os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == (-signal.SIGKILL if end == 'wait' else 1), errors
    # Of the dead one by its guardian, which keeps the lamp.
    until(lambda: not sent(bench).moving and (
        end == 'raise' or bench.transfers[-1].pid != process.pid), 'motors off')
    assert sent(bench).lamp


def test_the_example_of_the_documentation_works(capsys):
    lines = PAGE.read_text().split('\n')
    begin = next(row for row, line in enumerate(lines)
                 if line.startswith('    from vdl_ros.arm.robot import'))
    end = next(row for row in range(begin, len(lines))
               if lines[row] and not lines[row].startswith('    '))
    exec(textwrap.dedent('\n'.join(lines[begin:end])), {})
    reached = re.fullmatch(r'the base is at (\d\.\d\d) rad\n', capsys.readouterr().out)[1]
    # On a busy machine it runs on until its command times out.
    assert 0.3 <= float(reached) < 0.6
