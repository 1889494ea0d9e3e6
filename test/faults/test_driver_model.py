"""Row of the fault matrix: the arm's driver in virtual time, on a device that fails."""

import itertools
import math

import pytest

from vdl_ros.arm.driver.driver import ArmDriver, SafetyConfig
from vdl_ros.arm.driver.guardian import GuardianError
from vdl_ros.arm.driver.usb import ArmUsbError, DeviceMissingError, Signs, decode
from vdl_ros.arm.joints import JOINTS, Motors

OPERATIONS = 500
TICK_S = 0.02
# Of a transfer that the device takes, at most, and of one that it does not.
TRANSFER_S, STALL_S = 0.002, 0.1
# Between two attempts to stop motors of a device that is there.
AGAIN_S = 0.1
# If the driver stands still, the guardian stops so much later, at most.
LATE_S = 0.05
# What a joint runs beyond its end does not move it; see run_time.py.
BEYOND_S = 0.5
SENDERS = ('/teleop', '/viewer', '/arm_controller')
KINDS = {'command': 30, 'pulse': 6, 'hold': 6, 'wait': 30, 'silence': 2, 'stop': 2, 'release': 3,
         'refuse': 2, 'fail': 4, 'mend': 8, 'guard dies': 1, 'deactivate': 1, 'activate': 3,
         'close': 1, 'open': 6}


class World:
    """A driver, the device that it commands, and the guardian, with one clock."""

    def __init__(self, rng):
        self.rng, self.now, self.ticked = rng, 100.0, 100.0
        self.config = SafetyConfig(
            command_timeout=rng.uniform(0.05, 1.0), refresh_period=rng.uniform(0.02, 0.5),
            return_weight=rng.uniform(1.0, 3.0),
            **{f'{name}_max_run_time': rng.uniform(1.0, 3.0) for name in JOINTS})
        # The guardian.
        self.alive = False
        # The device: whether it fails, until when this excuses motors that are on, its motors.
        self.failing, self.excused_until, self.motors = False, -math.inf, Motors()
        self.net = {(name, way): 0.0 for name in JOINTS for way in (1, -1)}
        # Motors that passed their limit although they seemed to run the other way.
        self.unclear = set()
        # What was commanded last, and when.
        self.commanded, self.commanded_at, self.neutral = Motors(), -math.inf, True
        # The longest that motors stayed on after the last command, beyond the time-out, s.
        self.late = 0.0
        self.driver = ArmDriver(
            self.config, Signs(), self.connect, self, sent=lambda motors: None,
            notice=lambda level, text: None, clock=lambda: self.now)

    def start(self, *, wait=False):
        if not self.alive and self.rng.random() < 0.2:
            # Until the next attempt the device is closed, with its motors off or not.
            self.excuse()
            raise GuardianError('the guardian does not start')
        self.alive = True

    def set_lamp(self, lit):
        pass

    def heartbeat(self, duration):
        if self.motors.moving:
            assert 0.0 < duration <= max(
                0.0, self.commanded_at + self.config.command_timeout - self.now) + LATE_S

    def end(self, *, stopped):
        assert not stopped or not self.motors.moving
        # The guardian stops the motors before it ends.
        self.motors, self.alive = self.motors.stopped(), False

    def connect(self):
        if self.failing and self.rng.random() < 0.5:
            self.excuse(AGAIN_S)
            raise DeviceMissingError('no such USB device')
        return self

    def close(self):
        pass

    def send(self, packet):
        """Take a command, or fail; a command that fails may have been taken."""
        assert len(packet) == 3
        assert all(byte >> shift & 3 != 3 for byte, shift in itertools.product(
            packet[:2], (0, 2, 4, 6)))
        if not self.failing:
            self.pass_time(self.rng.uniform(0.0, TRANSFER_S))
            self.motors = decode(packet, Signs())
            return
        # Not if a motor turns the other way: which way it ran then cannot be known.
        takes = self.rng.random() < 0.3 and not any(
            getattr(self.motors, name) * getattr(decode(packet, Signs()), name) < 0
            for name in JOINTS)
        if takes:
            self.motors = decode(packet, Signs())
        self.pass_time(self.rng.choice([0.0, STALL_S]))
        self.excuse()
        raise ArmUsbError('timeout' if takes else 'input/output error')

    def excuse(self, period=AGAIN_S):
        """Allow motors to be on until the driver has tried again."""
        self.excused_until = max(self.excused_until, self.now + period + 2 * TICK_S)

    @property
    def is_excused(self):
        return self.failing or self.now <= self.excused_until

    def pass_time(self, seconds):
        self.now += seconds
        for (name, way), net in self.net.items():
            run = way * getattr(self.motors, name) * seconds
            run *= self.config.return_weight if run < 0.0 else 1.0
            most = max(net, self.config.max_run_time(name) + BEYOND_S)
            self.net[name, way] = min(max(0.0, net + run), most)

    def wait(self, seconds):
        until = self.now + seconds
        while self.ticked + TICK_S <= until:
            self.pass_time(max(0.0, self.ticked + TICK_S - self.now))
            self.ticked += TICK_S
            self.driver.tick()
            self.check()
        self.pass_time(max(0.0, until - self.now))

    def command(self, motors):
        self.commanded, self.commanded_at = motors, self.now
        if not motors.moving and not self.driver.emergency:
            self.neutral = True
        self.driver.command(motors, str(self.rng.choice(SENDERS)))
        self.check()

    def random_motors(self):
        return Motors(*(int(each) for each in self.rng.choice([-1, 0, 0, 1], len(JOINTS))),
                      lamp=bool(self.rng.random() < 0.2))

    def operate(self, kind):
        rng, driver = self.rng, self.driver
        if kind == 'command':
            self.command(self.random_motors())
        elif kind in ('pulse', 'hold'):
            # One motor in one direction, with breaks or without.
            motors = Motors(**{str(rng.choice(JOINTS)): int(rng.choice([-1, 1]))})
            for _ in range(int(rng.integers(1, 12))):
                self.command(motors)
                self.wait(rng.uniform(0.0, self.config.command_timeout))
                if kind == 'pulse':
                    self.command(Motors())
        elif kind == 'wait':
            self.wait(rng.uniform(0.0, 3 * TICK_S))
        elif kind == 'silence':
            self.wait(self.config.command_timeout + rng.uniform(0.0, 1.0))
        elif kind in ('stop', 'release'):
            self.neutral &= driver.emergency == (kind == 'stop')
            driver.emergency_stop(kind == 'stop')
        elif kind == 'refuse':
            self.commanded = Motors()
            driver.refuse('invalid')
        elif kind in ('fail', 'mend'):
            if self.failing:
                self.excuse()
            self.failing = kind == 'fail'
        elif kind == 'guard dies':
            self.alive = False
        elif kind == 'close':
            driver.close()
        elif kind == 'open':
            try:
                driver.open()
            except (ArmUsbError, GuardianError):
                driver.close()
        elif kind == 'deactivate' and driver.state != 'closed':
            driver.deactivate()
        elif kind == 'activate' and driver.state != 'closed':
            driver.activate()
            # The joints may stand anywhere.
            self.net = dict.fromkeys(self.net, 0.0)
        self.check()

    def check(self):
        """Check the motors themselves, whatever the driver believes of them."""
        if not self.motors.moving or self.is_excused or self.driver.state == 'closed':
            return
        since = self.now - self.commanded_at
        self.late = max(self.late, since - self.config.command_timeout)
        assert since <= self.config.command_timeout + TICK_S + TRANSFER_S, (
            f'on for {since} s after the last command')
        assert self.driver.active, 'on while inactive'
        assert not self.driver.emergency, 'on during an emergency stop'
        assert self.neutral, 'on after an emergency stop, before a neutral command'
        for name in JOINTS:
            way = getattr(self.motors, name)
            assert way in (0, getattr(self.commanded, name)), f'{name} was not commanded'
            limit = self.config.max_run_time(name)
            if not way or self.net[name, way] <= limit:
                self.unclear.discard((name, way))
                continue
            if self.driver.locked_out.get(name) == -way:
                # Which way it ran while the device failed was unclear; it may run back.
                self.unclear.add((name, way))
            assert (name, way) in self.unclear or (
                self.net[name, way] <= limit + TICK_S + 2 * TRANSFER_S), (
                f'{name} ran {self.net[name, way]} s of {limit}')


@pytest.mark.fault_row(
    'driver model in virtual time: commands, pulses, stops, USB errors',
    'motors off within time-out and one tick; net on-time within its limit',
    smoke=6, reduced=500, full=2000)
def test_no_motor_is_on_without_a_recent_command_or_beyond_its_limit(trials):
    def run(index, rng):
        world = World(rng)
        kinds, weights = list(KINDS), list(KINDS.values())
        chances = [weight / sum(weights) for weight in weights]
        for kind in rng.choice(kinds, OPERATIONS, p=chances):
            world.operate(str(kind))
        return {'off after the time-out (ms)': 1000 * world.late}

    trials.run(run)
