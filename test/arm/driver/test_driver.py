"""Safety logic of the driver, with a simulated clock and a fake USB device."""

import dataclasses
import itertools
import tempfile
import time
from pathlib import Path

import fake_owi535 as fake
import pytest

from vdl_ros.arm.driver.driver import ArmDriver, SafetyConfig, UsbConfig
from vdl_ros.arm.driver.guardian import GuardianError
from vdl_ros.arm.driver.usb import DeviceMissingError, UsbArm, UsbPort, decode
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.common.settings import select

PERIOD = 0.02


class Guard:
    """Stands for the process of guardian.py."""

    def __init__(self):
        self.alive = self.broken = self.lit = False
        self.calls = []

    def start(self, *, wait=False):
        if self.broken:
            raise GuardianError('the guardian does not start')
        if not self.alive:
            self.calls.append(('start', wait))
        self.alive = self.alive or wait
        if not self.alive:
            raise GuardianError('it starts')

    def set_lamp(self, lit):
        self.lit = lit

    def heartbeat(self, duration):
        self.duration = duration

    def end(self, *, stopped):
        self.calls.append(('end', stopped))
        self.alive = False


class Arm:
    """A driver on a bench, whose clock the test moves."""

    def __init__(self, bench, **settings):
        self.bench, self.now = bench, 100.0
        self.guard, self.sent, self.notices, self.interrupted = Guard(), [], [], []
        self.signs = UsbConfig().signs
        self.backend = fake.FakeBackend(bench.folder)
        self.driver = ArmDriver(
            select(SafetyConfig, settings), self.signs,
            UsbPort(0, self.backend).open, self.guard,
            sent=lambda motors: self.sent.append((self.now, motors)),
            notice=lambda level, text: self.notices.append((level, text)),
            interrupted=self.interrupted.append, clock=lambda: self.now)

    def run(self, seconds, command=None, every=0.1):
        """Tick for a while, giving ``command`` every so often."""
        due = self.now
        for _ in range(round(seconds / PERIOD)):
            if command is not None and self.now >= due - 1e-9:
                self.driver.command(command)
                due += every
            self.now += PERIOD
            self.driver.tick()

    def let_go(self):
        """Switch all off, without a name: nobody else of this name moves a motor meanwhile."""
        self.run(0.3, Motors())

    @property
    def motors(self):
        """Return the last command that the device accepted."""
        taken = [each.data for each in self.bench.transfers if not each.fault]
        return decode(bytes.fromhex(taken[-1]), self.signs)

    def warned(self, words):
        return [text for level, text in self.notices if words in text and level != 'info']


@pytest.fixture
def bench(tmp_path):
    """Return a function that makes a device."""
    return lambda: fake.Bench(Path(tempfile.mkdtemp(dir=tmp_path)))


@pytest.fixture
def make(bench):
    def make(active=True, **settings):
        arm = Arm(bench(), **settings)
        arm.driver.open()
        if active:
            arm.driver.activate()
        return arm
    return make


def test_open_stops_motors_left_running_by_an_earlier_driver(make):
    arm = make(active=False)
    assert arm.bench.data == ['000000']
    assert (arm.guard.calls, arm.guard.duration) == ([('start', True)], 0.0)
    assert (arm.driver.state, arm.driver.sent) == ('inactive', Motors())


def test_open_fails_without_a_guardian_or_a_device(bench):
    arm = Arm(bench())
    arm.guard.broken = True
    with pytest.raises(GuardianError):
        arm.driver.open()
    assert (arm.driver.state, arm.driver.sent) == ('closed', None)
    assert arm.backend.calls[-1] == 'close'
    arm = Arm(bench())
    arm.bench.fail('unplugged')
    with pytest.raises(DeviceMissingError):
        arm.driver.open()
    assert arm.driver.state == 'closed'
    assert 'no such USB device' in arm.driver.fault
    assert arm.guard.calls == []
    arm.bench.fail('')
    arm.driver.open()
    assert (arm.driver.state, arm.driver.fault) == ('inactive', '')


def test_only_an_open_driver_is_activated_and_one_that_is_opened_again_keeps_no_second_claim(
        make, bench):
    arm = Arm(bench())
    with pytest.raises(RuntimeError, match='before open'):
        arm.driver.activate()
    arm.driver.open()
    assert arm.driver.state == 'inactive'
    arm = make()
    arm.driver.command(Motors(base=1))
    arm.driver.open()
    assert (arm.motors, arm.driver.state) == (Motors(), 'inactive')
    assert arm.guard.calls == [('start', True), ('end', True), ('start', True)]
    arm.driver.close()
    assert arm.backend.calls.count('claim 0') == arm.backend.calls.count('release 0') == 2


def test_commands_are_sent_at_once_reported_and_refreshed(make):
    arm = make()
    arm.driver.command(Motors(base=1, lamp=True))
    assert arm.bench.data[-1] == '000201'
    assert arm.sent[-1] == (arm.now, Motors(base=1, lamp=True))
    assert arm.driver.sent == Motors(base=1, lamp=True)
    arm = make()
    # Starting one motor leaves the others.
    for command in (Motors(wrist=1), Motors(wrist=1, elbow=1), Motors(elbow=1)):
        arm.driver.command(command)
    assert arm.bench.data[1:] == ['080000', '280000', '200000']
    arm = make()
    arm.run(2.0, Motors(base=1), every=0.02)
    assert set(arm.bench.data[1:]) == {'000200'}
    assert 2.0 / 0.2 - 1 <= len(arm.bench.data[1:]) <= 2.0 / 0.2 + 1
    assert arm.driver.transfers == len(arm.bench.data) == len(arm.sent)


def test_watchdog_stops_within_a_tick_and_logs_once(make):
    arm = make()
    arm.run(1.0, Motors(base=1, lamp=True))
    last = arm.now - 0.1
    arm.run(2.0)
    stopped = next(at for at, motors in arm.sent if motors == Motors(lamp=True))
    assert 0.5 - 1e-6 <= stopped - last <= 0.5 + 2 * PERIOD
    assert arm.motors == Motors(lamp=True)
    assert len(arm.warned('no command for 0.5 s')) == 1
    arm.driver.command(Motors(base=1))
    assert arm.motors == Motors(base=1)
    # The time that a command may have waited counts.
    arm.driver.command(Motors(base=1), age=0.46)
    arm.run(0.06)
    assert arm.motors == Motors(lamp=False)
    arm = make()
    arm.driver.command(Motors(lamp=True))
    arm.run(2.0)
    assert (arm.motors, arm.notices) == (Motors(lamp=True), []), 'the lamp does not time out'
    assert arm.guard.lit


def test_the_time_of_a_suspended_machine_counts(bench, monkeypatch):
    passed = [100.0]
    monkeypatch.setattr(
        time, 'clock_gettime', lambda clock: passed[0] * (clock == time.CLOCK_BOOTTIME))
    backend, sent = fake.FakeBackend(bench().folder), []
    driver = ArmDriver(
        SafetyConfig(), UsbConfig().signs, UsbPort(0, backend).open, Guard(),
        sent=sent.append, notice=lambda level, text: None)
    driver.open()
    driver.activate()
    driver.command(Motors(base=1))
    passed[0] += 3600.0
    driver.tick()
    assert (sent[-1], driver.locked_out) == (Motors(), {'base': 1})


def test_inactive_driver_ignores_commands_and_deactivating_stops(make):
    arm = make(active=False)
    arm.driver.command(Motors(base=1))
    arm.run(1.0)
    assert arm.interrupted == []
    arm.driver.activate()
    # What programs were asked before ends.
    assert arm.interrupted == ['the driver was activated']
    arm.run(1.0)
    assert set(arm.bench.data) == {'000000'}
    arm.driver.command(Motors(base=1, lamp=True))
    assert arm.driver.deactivate() is True
    assert arm.bench.data[-1] == '000001'
    assert arm.driver.state == 'inactive'
    assert arm.interrupted[1:] == ['the driver was deactivated']


def test_close_stops_motors_releases_device_and_ends_guardian(make):
    arm = make()
    arm.driver.command(Motors(base=1, lamp=True))
    assert arm.driver.close() is True
    assert arm.bench.data[-1] == '000001'
    assert arm.guard.calls[-1] == ('end', True)
    assert arm.backend.calls[-1] == 'close'
    assert (arm.driver.state, arm.driver.sent) == ('closed', None)
    assert arm.interrupted == ['the driver was closed']
    count = len(arm.bench.data)
    assert arm.driver.close() is True
    arm.run(1.0, Motors(base=1))
    assert len(arm.bench.data) == count


def test_a_stop_that_fails_at_the_end_is_left_to_the_guardian(make):
    for fault in ('timeout', 'partial', 'unplugged', 'io'):
        arm = make()
        arm.driver.command(Motors(base=1))
        arm.bench.fail(fault)
        assert arm.driver.close() is False, fault
        assert arm.guard.calls[-1] == ('end', False), fault
    arm = make()
    arm.bench.fail('unplugged')
    arm.run(0.3)
    assert arm.driver.close() is False, 'it was disconnected before'
    assert arm.guard.calls[-1] == ('end', False)


def test_heartbeats_start_before_motors_and_last_while_they_may_be_on(make):
    arm = make()
    order = []
    real = arm.backend.ctrl_transfer
    arm.backend.ctrl_transfer = lambda *args: order.append(bytes(args[5]).hex()) or real(*args)
    arm.guard.heartbeat = order.append
    arm.driver.command(Motors(base=1))
    assert order == [0.4, '000200']
    order.clear()
    for _ in range(5):
        arm.run(PERIOD, Motors(base=1))
        assert order.pop() == 0.4
    # If this process stands still, motors are off soon after its own watchdog would have acted.
    for _ in range(25):
        arm.run(PERIOD)
        left = arm.driver._commanded_at + 0.5 - arm.now
        if left > 1e-6:
            assert order[-1] == pytest.approx(min(0.4, left + 0.05))
    assert order[-1] == 0.0
    arm.driver.command(Motors(base=1))
    arm.driver.command(Motors())
    arm.run(PERIOD)
    assert order[-1] == 0.0
    # Nor does a motor run on beyond its run time meanwhile.
    arm.run(14.2, Motors(base=1))
    assert order[-1] == pytest.approx(15.0 - arm.driver._run_time._net['base', 1] + 0.05)
    arm.run(PERIOD, Motors(base=-1))
    assert order[-1] == 0.4
    arm.bench.fail('unplugged')
    arm.run(0.5, Motors(base=-1))
    assert order[-1] == 0.4, 'its state while disconnected is unknown'
    arm.run(1.0)
    assert order[-1] == 0.05, 'then it should be off'
    arm.bench.fail('')
    arm.run(0.5)
    assert order[-1] == 0.0


def test_notices_come_after_the_motors_are_off(make):
    arm = make(base_max_run_time=1.0)
    logged = []
    arm.driver._notice = lambda level, text: logged.append((arm.motors, text))
    arm.run(1.2, Motors(base=1))
    arm.run(0.1, Motors(elbow=1))
    arm.run(1.0)
    arm.run(0.1, Motors(elbow=1))
    arm.bench.fail('timeout')
    real = arm.backend.ctrl_transfer

    def once(*args):
        try:
            return real(*args)
        finally:
            arm.bench.fail('')

    arm.backend.ctrl_transfer = once
    arm.driver.command(Motors(wrist=1))
    assert [text.split()[0] for _, text in logged] == ['base', 'no', 'motors']
    assert [motors for motors, _ in logged] == [Motors()] * 3


def test_motor_over_its_run_time_is_locked_out_in_that_direction(make):
    for motor, way in zip(JOINTS, itertools.cycle((1, -1)), strict=False):
        arm = make(**{f'{motor}_max_run_time': 1.0})
        on, other = Motors(**{motor: way}), 'base' if motor != 'base' else 'elbow'
        begin = arm.now
        arm.run(3.0, dataclasses.replace(on, **{other: 1}))
        off = next(at for at, motors in arm.sent if at > begin and not getattr(motors, motor))
        assert 1.0 - 1e-6 <= off - begin <= 1.0 + 3 * PERIOD, motor
        assert arm.motors == Motors(**{other: 1}), 'the other motor goes on'
        assert len(arm.warned(f'{motor} ran 1 s more in one direction')) == 1
        assert arm.driver.locked_out == {motor: way}
        # Silence is no command: a sender that comes back with the same one is still held.
        arm.run(1.0)
        arm.run(0.5, on)
        assert not arm.motors.moving, motor
        # Nor do off commands end it.
        arm.driver.command(Motors())
        arm.run(0.3, on)
        assert (arm.motors, arm.driver.locked_out) == (Motors(), {motor: way})
        arm.run(0.5, Motors(**{motor: -way}))
        assert arm.motors == Motors(**{motor: -way})
        arm.run(0.3, on)
        assert arm.motors == on, motor


def test_time_counts_that_a_motor_may_have_run_while_the_device_failed(make):
    for case in ('activated', 'maybe taken', 'reversed'):
        arm = make()
        if case == 'reversed':
            arm.run(0.3, Motors(gripper=1))
        elif case == 'activated':
            arm.driver.command(Motors(gripper=1))
        arm.bench.fail('timeout')
        if case == 'activated':
            arm.driver.activate()
        else:
            # The device may take it and not say so.
            arm.driver.command(Motors(gripper=-1 if case == 'reversed' else 1))
        arm.run(4.0)
        arm.bench.fail('')
        arm.run(0.5)
        assert arm.driver.locked_out == {'gripper': 1}, case
        arm.run(0.5, Motors(gripper=1))
        assert not arm.motors.moving, case
        arm.let_go()
        arm.run(0.6, Motors(gripper=-1))
        assert (arm.motors, arm.driver.locked_out) == (Motors(gripper=-1), {}), case


def test_back_and_forth_within_the_travel_is_never_locked_out(make):
    arm = make()
    for _ in range(8):
        arm.run(1.4, Motors(gripper=1))
        arm.run(1.4, Motors(gripper=-1))
    assert (arm.driver.locked_out, arm.notices) == ({}, [])
    # A joint that lifts more slowly than it lowers can go on.
    for weight in (1.0, 1.5):
        arm = make(return_weight=weight)
        for _ in range(26):
            arm.run(1.2, Motors(shoulder=-1))
            arm.run(0.8, Motors(shoulder=1))
        assert bool(arm.warned('shoulder ran 10 s more')) == (weight == 1.0)


def test_a_pause_counts_as_a_way_back_no_longer_than_the_guardian_lets_it_last(make):
    # The guardian switches off after 0.4 s, or 0.55 s after the last command.
    for before, back in ((0.0, 0.4), (0.4, 0.15)):
        arm = make(shoulder_max_run_time=3.0)
        arm.run(2.8, Motors(shoulder=1))
        arm.run(0.2, Motors(shoulder=-1), every=0.02)
        arm.run(before)
        arm.now += 4.0
        arm.driver.command(Motors())
        begin = arm.now
        arm.run(3.0, Motors(shoulder=1))
        off = next(at for at, motors in arm.sent if at > begin and not motors.moving)
        assert off - begin == pytest.approx(
            3.0 - 2.8 + 1.5 * (0.2 + before + back), abs=3 * PERIOD)


def test_a_command_is_sent_again_after_a_pause_in_which_the_guardian_may_have_stopped(make):
    # Else a motor that stands would count as running back.
    arm = make(refresh_period=5.0, command_timeout=2.0)
    for pause, transfers in ((0.3, 0), (0.45, 1)):
        arm.run(0.5, Motors(base=-1))
        count = len(arm.bench.data)
        arm.now += pause
        arm.run(0.2)
        assert arm.bench.data[count:] == [arm.bench.data[-1]] * transfers, pause
        assert arm.motors == Motors(base=-1)


def test_a_command_of_before_a_standstill_moves_nothing_after_it(make):
    arm = make(command_timeout=5.0)
    arm.run(0.5, Motors(base=1))
    arm.now += 0.9
    arm.run(0.1)
    assert arm.motors == Motors(base=1)
    count = len(arm.bench.data)
    arm.now += 1.5
    arm.run(0.1)
    assert set(arm.bench.data[count:]) == {'000000'}
    # By another clock, where that of the arm is simulated.
    arm.run(0.5, Motors(base=1))
    arm.driver.expire(1.5)
    arm.run(0.1)
    assert arm.motors == Motors()


def test_emergency_stop_outranks_a_flood_of_commands_and_stays(make):
    arm = make()
    arm.run(0.5, Motors(base=1, lamp=True))
    arm.driver.emergency_stop(True)
    assert arm.bench.data[-1] == '000001'
    count = len(arm.bench.data)
    arm.run(2.0, Motors(base=1, elbow=-1, lamp=True), every=0.001)
    arm.driver.emergency_stop(True)
    assert set(arm.bench.data[count:]) == {'000001'}
    assert len(arm.warned('emergency stop')) == 1
    arm.driver.emergency_stop(False)
    arm.run(3.0, Motors(base=1))
    assert arm.driver.neutral_required
    assert not arm.motors.moving, 'nothing starts before a neutral command'
    arm.let_go()
    assert not arm.driver.neutral_required
    arm.driver.command(Motors(base=1))
    assert arm.motors.moving
    arm.driver.emergency_stop(False)
    assert arm.motors.moving, 'a release that releases nothing changes nothing'
    arm = make(active=False)
    arm.driver.emergency_stop(True)
    arm.driver.activate()
    arm.run(0.5, Motors(base=1))
    assert set(arm.bench.data) == {'000000'}, 'a stop before the activation stays engaged'


def test_neutral_command_of_one_sender_does_not_start_what_another_one_holds(make):
    arm = make()
    arm.driver.emergency_stop(True)
    arm.driver.command(Motors(base=1), '/script')
    arm.driver.emergency_stop(False)
    arm.driver.command(Motors(), '/viewer')
    for _ in range(20):
        arm.now += 0.1
        arm.driver.command(Motors(base=1), '/script')
        assert not arm.motors.moving
    arm.driver.command(Motors(elbow=1), '/viewer')
    assert arm.motors == Motors(elbow=1)
    arm.driver.command(Motors(base=1), '/script')
    assert not arm.motors.moving
    # A pause is a release as well.
    arm.run(0.6)
    arm.driver.command(Motors(base=1), '/script')
    assert arm.motors == Motors(base=1)
    # Nor if it repeats its command more slowly than the stop is released.
    arm.driver.emergency_stop(True)
    arm.driver.emergency_stop(False)
    arm.run(0.4)
    arm.driver.command(Motors(), '/viewer')
    for sender, moves in (('/script', False), ('/viewer', True)):
        arm.driver.command(Motors(base=1), sender)
        assert arm.motors.moving == moves, sender


def test_who_has_commanded_since_before_a_start_and_is_found_later_has_to_let_go(make):
    arm, on = make(active=False), Motors(base=1)
    arm.driver.activate(held=True)

    def held(sender):
        arm.driver.command(on, sender)
        return not arm.motors.moving

    # A program has a consent: it is held as long as after a reconnection.
    assert held('/a/arm_controller')
    arm.run(1.0)
    assert not held('/arm_controller')
    arm.driver.command(Motors(), '/viewer')
    assert not held('/viewer')
    arm.run(5.0)
    assert held('/teleop')
    assert held('/script')
    arm.run(PERIOD)
    assert arm.warned('lets go') == ['/teleop: motors off until it lets go: it may have commanded '
                                     'them since before this start']
    for _ in range(20):
        arm.run(0.4)
        assert held('/teleop')
    arm.driver.command(Motors(), '/teleop')
    assert not held('/teleop')
    # A pause is a release as well; who comes later was not there.
    for sender in ('/script', '/joystick'):
        assert not held(sender)


def test_invalid_command_stops_and_logs_one_line(make):
    arm = make()
    arm.driver.command(Motors(base=1, lamp=True))
    for _ in range(100):
        arm.driver.refuse('motor base: 2 is not allowed: -1, 0 or 1')
    assert arm.motors == Motors(lamp=True)
    assert arm.warned('motor base: 2') == [
        'command refused, motors off: motor base: 2 is not allowed: -1, 0 or 1']
    assert arm.driver.refused == 100
    # Not even when every one is another, or two take turns.
    for number in range(100):
        arm.driver.refuse(f'motor base: {number} is not allowed')
        arm.driver.refuse('motor base: 2 is not allowed: -1, 0 or 1')
    assert len(arm.warned('command refused')) == 5
    arm.run(5.1)
    arm.driver.refuse('motor base: 2 is not allowed: -1, 0 or 1')
    assert len(arm.warned('motor base: 2 is not allowed: -1')) == 2
    arm.driver.command(Motors(base=1))
    assert arm.motors == Motors(base=1)


def test_disconnection_while_moving_is_a_fault_until_reconnected_with_motors_off(make):
    arm = make()
    command = Motors(base=1, lamp=True)
    arm.run(0.5, command)
    arm.bench.fail('unplugged')
    arm.run(1.0, command)
    assert (arm.driver.state, arm.driver.sent) == ('fault', None)
    assert arm.interrupted == ['the arm was disconnected']
    assert arm.warned('disconnected') == ['motors may be on: arm 1267:0000 at 1-1: disconnected']
    count = len(arm.bench.data)
    arm.bench.fail('')
    arm.run(1.0, command)
    assert arm.driver.state == 'active'
    assert set(arm.bench.data[count:]) == {'000001'}, 'the command must be released first'
    # By its sender: another one neither is held nor releases it.
    arm.driver.command(Motors(), '/viewer')
    arm.run(0.2, command)
    assert not arm.motors.moving
    arm.driver.command(Motors(elbow=1), '/viewer')
    assert arm.motors == Motors(elbow=1)
    arm.let_go()
    arm.run(0.2, command)
    assert arm.motors == command
    assert arm.interrupted[1:] == ['the arm is connected again']
    # Also if its sender is silent for longer than the watchdog's time meanwhile.
    arm.bench.fail('unplugged')
    arm.run(1.0)
    arm.bench.fail('')
    arm.run(0.3)
    assert arm.driver.state == 'active'
    arm.run(1.0, command)
    assert arm.motors == Motors(lamp=True)
    arm.let_go()
    arm.run(0.1, command)
    assert arm.motors == command


def test_no_other_arm_takes_the_place_of_one_that_failed_or_was_plugged_in_elsewhere(make, bench):
    arm, other = make(), bench()
    other.plug_into(2)
    # Listed first, and held by another driver.
    arm.backend.benches.insert(0, other)
    holder = UsbArm(0, fake.FakeBackend(other.folder))
    arm.run(0.3, Motors(base=1))
    arm.bench.fail('timeout')
    arm.run(0.1, Motors(base=1))
    arm.bench.fail('')
    arm.run(0.5)
    arm.run(0.3, Motors())
    arm.run(0.3, Motors(base=1))
    assert arm.motors == Motors(base=1)
    # It is stopped where it is, and not followed.
    arm.bench.plug_into(3)
    arm.run(1.0, Motors(base=1))
    arm.run(1.0, Motors())
    arm.run(1.0, Motors(base=1))
    assert arm.motors == Motors()
    taken = [each.data for each in arm.bench.transfers if not each.fault]
    assert taken[-2:] == ['000200', '000000'], 'one stop'
    assert len(arm.warned('at 1-2, 1-3 is one: move its plug')) == 1
    assert arm.driver.state == 'fault'
    assert other.data == []
    holder.close()
    arm.run(1.0)
    assert other.data == ['000000'], 'it may be the one that moves'
    arm.bench.plug_into(1)
    arm.run(0.5, Motors())
    arm.run(0.3, Motors(base=1))
    assert (arm.motors, other.data) == (Motors(base=1), ['000000'])


def test_failed_transfer_is_followed_by_a_stop(make):
    for fault in ('timeout', 'partial', 'io', 'busy', 'denied'):
        arm = make()
        arm.run(0.3, Motors(base=1))
        arm.bench.fail(fault)
        count = len(arm.bench.data)
        arm.driver.command(Motors(elbow=1))
        assert (arm.driver.state, arm.driver.sent) == ('fault', None), fault
        arm.bench.fail('')
        arm.run(0.06, Motors(elbow=1))
        assert arm.driver.state == 'active', fault
        assert arm.bench.data[count:] == ['200000', '000000', '000000'], fault
    # Of a failure that is over the stop is taken.
    arm = make()
    real, failures = arm.backend.ctrl_transfer, iter([2])
    arm.backend.ctrl_transfer = lambda *args: next(failures, real(*args))
    arm.driver.command(Motors(elbow=1))
    assert arm.driver.state == 'fault'
    assert arm.motors == arm.driver.sent == Motors()
    assert Motors(elbow=1) not in [motors for _, motors in arm.sent], 'not what was really sent'


def test_attempts_to_reconnect_are_spaced_and_say_each_problem_once(make):
    arm = make(active=False)
    arm.bench.fail('unplugged')
    arm.run(0.3)  # noticed without commands
    assert arm.driver.state == 'fault'
    before, notices = arm.backend.calls.count('enumerate'), len(arm.notices)
    arm.run(5.0)
    # Each attempt looks for both products.
    assert 80 <= arm.backend.calls.count('enumerate') - before <= 102
    assert len(arm.notices) == notices
    for fault in ('denied', 'busy', 'denied'):
        arm.bench.fail(fault)
        arm.run(1.0)
    assert len(arm.warned('no permission')) == 1
    assert 'no permission' in arm.driver.fault
    arm.bench.fail('')
    arm.run(0.5)
    assert (arm.driver.state, arm.driver.locked_out) == ('inactive', {})


@pytest.mark.parametrize('fault', ['timeout', 'unplugged'])
def test_motors_that_may_be_on_are_stopped_soon_after_a_fault(make, fault):
    arm = make()
    arm.run(0.3, Motors(base=1))
    arm.bench.fail(fault)
    arm.run(0.3)
    arm.bench.fail('')
    arm.run(0.12)
    assert (arm.motors, arm.driver.state) == (Motors(), 'active')


def test_dead_guardian_is_replaced_with_motors_off(make):
    arm = make()
    arm.run(0.3, Motors(base=1))
    arm.guard.alive, begin = False, len(arm.bench.data)
    # Nothing waits for the other one, which may take long; motors are off until it is there.
    arm.run(1.0, Motors(base=1))
    assert set(arm.guard.calls[1:]) == {('start', False)}
    assert len(arm.bench.data[begin:]) > 3
    assert set(arm.bench.data[begin:]) == {'000000'}
    assert len(arm.warned('the guardian died or hangs')) == 1
    assert arm.driver.state == 'fault'
    arm.guard.alive = True
    arm.run(0.3, Motors(base=1))
    assert (arm.driver.state, arm.motors) == ('active', Motors())
    # Also while the device fails: this process may be killed then.
    arm.guard.alive, count = False, len(arm.guard.calls)
    arm.bench.fail('timeout')
    arm.run(0.06, Motors())
    assert len(arm.guard.calls) > count
    assert arm.driver.state == 'fault'


def test_a_sender_whose_commands_are_refused_has_not_let_go(make):
    arm, on = make(), Motors(base=1)
    arm.driver.command(on, '/joystick')
    arm.driver.emergency_stop(True)
    arm.driver.command(on, '/joystick')
    arm.driver.emergency_stop(False)
    # The node stood still, and refuses what may be old for a second.
    for _ in range(10):
        arm.run(0.1)
        arm.driver.keep_off(on, '/joystick')
    arm.driver.command(Motors(), '/viewer')
    arm.driver.command(on, '/joystick')
    assert not arm.motors.moving
    # Let go, and pressed again.
    arm.driver.command(Motors(), '/joystick')
    arm.driver.command(on, '/joystick')
    assert arm.motors == on


def test_who_lets_go_does_so_for_nobody_else_of_the_same_name(make):
    arm, on = make(), Motors(base=1)
    arm.driver.emergency_stop(True)
    arm.driver.command(on)
    arm.driver.emergency_stop(False)
    # One person holds a key, another one without a name switches all off, twice.
    for _ in range(2):
        arm.driver.command(Motors())
        arm.run(1.0, on)
        assert not arm.motors.moving
    arm.let_go()
    arm.driver.command(on)
    assert arm.motors == on
