"""KILL, STOP and TERM to the processes that move the real arm, on the fake USB: motors go off."""

import contextlib
import itertools
import os
import pty
import re
import select
import signal
import tempfile
import time
from pathlib import Path

import page_client
import psutil
import pytest
import reach_checkpoint
from arm_messages import joints_now, target_at
from websockets.exceptions import ConnectionClosed

from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import trajectory_message

STOPPED_WITHIN = 0.6  # from the signal to motors off, at the most, s
WATCHED_S = 0.8  # for so long after the signal it is watched that no motor starts again, s
# For so long all motors are commanded off before a trial, s.
NEUTRAL_S = 0.2
OFF = '000000'
VICTIMS = ('driver', 'guardian', 'both', 'viewer', 'controller', 'teleop', 'policy')
SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)
CASES = tuple(itertools.product(VICTIMS, SIGNALS))
TRIALS_PER_CASE = 3


class Person:
    launched = None

    def __init__(self, rig):
        self._motors = rig.peer.talk('arm/motors')

    def move(self, on):
        self._motors.publish(MotorCommand(sender='/test', base=int(on)))

    def heard(self):
        return self._motors.get_subscription_count()

    def end(self):
        if self.launched is not None:
            self.launched.end()


class Viewer(Person):
    """A view whose page holds a button."""

    def __init__(self, rig):
        self.launched = rig.start('viewer', 'view_port:=0')
        found = self.launched.wait_for(
            lambda: re.search(r'view: (http://\S+)', self.launched.output), 'the address')
        self._page = page_client.PageClient(found[1])
        self._page.send(page_client.CAMERA)
        self._page.read('base left')
        self._held = page_client.kinds(self._page.ids['base left'])['GuiButtonHoldMessage']

    def move(self, on):
        if on:
            with contextlib.suppress(ConnectionClosed):
                self._page.send(self._held)

    def end(self):
        self._page.close()
        super().end()


class Program(Person):
    """A node that moves the arm by itself, from joints that never move."""

    def __init__(self, rig, name, *parameters):
        self.launched = rig.start(name, *parameters)
        self._states = qos.pub(rig.peer.node, 'arm/joint_states')
        self._node = rig.peer.node
        self._asked_at = 0.0

    def measure(self):
        self._states.publish(joints_now(self._node))

    def is_due(self):
        if time.monotonic() <= self._asked_at + 1.0:
            return False
        self._asked_at = time.monotonic()
        return True


class Controller(Program):
    """A controller that follows a trajectory; the joint never gets there."""

    def __init__(self, rig):
        super().__init__(rig, 'arm_controller')
        self._status = rig.listen('arm/trajectory_status')
        self._goals = rig.peer.talk('arm/joint_trajectory')

    def move(self, on):
        self.measure()
        if on and self._status[-1].state != 'running' and self.is_due():
            self._go(1.0)
        elif not on and self._status[-1].state == 'running':
            self._go(0.0)

    def _go(self, angle):
        self._goals.publish(trajectory_message(['base'], [[angle]], [0.1]))


class Policy(Program):
    """A policy that turns the base whatever the target is."""

    def __init__(self, rig):
        self._folder = tempfile.TemporaryDirectory()
        path = reach_checkpoint.write(Path(self._folder.name) / 'checkpoint.pt', turning=True)
        super().__init__(rig, 'play', 'robot:=owi535', 'targets:=true', f'policy:={path}')
        self._status = rig.listen('arm/target_status')
        self._targets = rig.peer.talk('arm/target')

    def move(self, on):
        self.measure()
        if on and self._status[-1].state == 'idle' and self.is_due():
            self._go(0.2)
        elif not on and self._status[-1].state != 'idle':
            self._go(2.0)  # out of reach

    def _go(self, height):
        self._targets.publish(target_at((0.15, 0.1, height)))

    def end(self):
        super().end()
        self._folder.cleanup()


class Teleop(Person):
    def __init__(self, rig):
        self._master, self._slave = pty.openpty()
        terminal = os.ttyname(self._slave)
        self.launched = rig.start('teleop', under=('sh', '-c', (
            f'exec "$@" <{terminal} >{terminal}'), 'sh'))
        self._screen = b''

        def ready():
            self.move(False)
            return b'off   h help' in self._screen
        rig.peer.until(ready, 'the connection')

    def move(self, on):
        while select.select([self._master], [], [], 0)[0]:
            self._screen += os.read(self._master, 4096)
        if on:
            os.write(self._master, b'g')

    def end(self):
        super().end()
        for descriptor in (self._master, self._slave):
            os.close(descriptor)


SENDERS = {'viewer': Viewer, 'controller': Controller, 'teleop': Teleop, 'policy': Policy}


class Rig:
    """A driver on the fake device and who commands it; what lives is used again."""

    def __init__(self, launch, peer, bench):
        self.peer, self.bench, self._launch = peer, bench, launch
        self._driver = None
        self._senders = {}

    def listen(self, topic):
        """Return the list of what is received, once it has something."""
        received = self.peer.listen(topic)
        self.peer.until(lambda: received, topic)
        return received

    def start(self, name, *parameters, under=()):
        words = [word for each in parameters for word in ('-p', each)]
        return self._launch(*under, 'ros2', 'run', 'vdl_ros', name, '--ros-args', *words)

    def driver(self):
        if self._driver is None:
            self._driver = driver = self.start('arm_driver', 'usb_backend:=fake_owi535:make')
            driver.wait_for(lambda: 'the arm follows arm/motors' in driver.output, 'the driver')
        return node_of(self._driver, 'arm_driver')

    def driver_ended(self):
        self._driver.end()
        self._driver = None

    def guardian(self):
        def running():
            return [each for each in self._driver.family()
                    if 'vdl_ros.arm.driver.guardian' in each.cmdline()
                    and each.status() != psutil.STATUS_STOPPED]
        return self._driver.wait_for(running, 'the guardian')[-1]

    def sender(self, kind):
        """Return who commands; a node ends before one of another kind starts."""
        if kind not in self._senders:
            self.end_nodes()
            self._senders[kind] = kind(self)
        return self._senders[kind]

    def end_nodes(self):
        for kind in {*self._senders} - {Person}:
            self._senders.pop(kind).end()

    def end(self):
        self.end_nodes()
        if self._driver is not None:
            self.driver_ended()

    def until(self, condition, what, sender, on):
        """Let the sender command so until the condition; None: nothing."""
        self.peer.until(condition, what, every=0.04,
                        say=None if on is None else lambda: sender.move(on))

    def hold_on(self, seconds, sender, on):
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end, 'time', sender, on)

    def begin(self, victim):
        """Return sender, driver and guardian once the arm moves."""
        driver, guardian = self.driver(), self.guardian()
        # A command that is held while the arm comes back counts only after its release.
        person = self.sender(Person)
        self.peer.until(person.heard, 'the driver')
        self.hold_on(NEUTRAL_S, person, on=False)
        sender = self.sender(SENDERS.get(victim, Person))
        self.until(lambda: self.bench.data[-1] == OFF, 'off', sender, False)
        # A person whom the driver does not know yet has to let go first.
        turns = itertools.cycle([True] * 25 + [False] * 15)
        self.peer.until(
            lambda: OFF not in self.bench.data[-3:], 'the arm moves', every=0.04,
            say=lambda: sender.move(isinstance(sender, Program) or next(turns)))
        return sender, driver, guardian

    def off_after(self, begin):
        """Return when the motors went off for good, None while they are on."""
        off = None
        for each in self.bench.transfers:
            if each.data != OFF:
                off = None
            elif off is None and each.time > begin:
                off = each.time
        return off


@pytest.fixture
def rig(launch, peer, bench):
    rig = Rig(launch, peer, bench)
    yield rig
    rig.end()


def node_of(launched, name):
    """Return the process of a node; `ros2 run` may become it or be its parent."""
    return next(iter(launched.nodes(name)), psutil.Process(launched.process.pid))


@pytest.mark.fault_row(
    'KILL, STOP or TERM to driver, guardian, both, viewer, controller, teleop or '
    'policy',
    'motors off within 0.6 s; driver and guardian both killed or stopped: on, as docs/arm.md says',
    reduced=len(CASES), full=TRIALS_PER_CASE * len(CASES))
def test_a_signal_to_any_process_stops_the_motors(trials, rig, took):
    def send(index, _):
        victim, number = CASES[index // TRIALS_PER_CASE]
        name = f'{victim} {number.name[3:]}'
        sender, driver, guardian = rig.begin(victim)
        targets = {'driver': [driver], 'guardian': [guardian], 'both': [guardian, driver]}.get(
            victim) or [node_of(sender.launched, {
                'controller': 'arm_controller', 'policy': 'play'}.get(victim, victim))]
        at = time.monotonic()
        for each in targets:
            each.send_signal(number)
        if victim == 'both' and number != signal.SIGTERM:
            nothing_can_stop(rig, sender, driver, guardian, at, number)
            return {}
        # Commands go on, except that the driver has to stop by itself if it is the one left.
        rig.hold_on(WATCHED_S, sender, on=None if victim == 'guardian' else True)
        stopped = rig.off_after(at)
        assert stopped is not None, f'{name}: motors on after {WATCHED_S} s'
        time_s = took(at, stopped)
        assert time_s <= STOPPED_WITHIN, f'{name}: off after {time_s:.2f} s'
        settle(rig, victim, sender, targets, number)
        return {f'{victim} (s)': time_s}

    def send_or_clean(index, rng):
        try:
            return send(index, rng)
        except BaseException:
            rig.end()
            raise

    trials.run(send_or_clean)


def settle(rig, victim, sender, targets, number):
    """Continue what was stopped, and wait for what ends."""
    if victim == 'guardian':
        if number != signal.SIGTERM:  # which it ignores; otherwise the driver replaces it
            psutil.wait_procs(targets, timeout=20.0)
    elif number == signal.SIGSTOP:
        for each in targets:
            each.send_signal(signal.SIGCONT)
    else:
        psutil.wait_procs(targets, timeout=20.0)
        if victim in ('driver', 'both'):
            rig.driver_ended()
        if sender.launched is not None:
            rig.end_nodes()


def nothing_can_stop(rig, sender, driver, guardian, at, number):
    """Check what docs/arm.md says: motors stay on until a process that can stop them runs."""
    rig.hold_on(WATCHED_S, sender, on=True)
    assert rig.off_after(at) is None
    assert rig.bench.transfers[-1].time <= at + STOPPED_WITHIN
    back = time.monotonic()
    if number == signal.SIGSTOP:
        for each in (driver, guardian):
            each.send_signal(signal.SIGCONT)
    else:
        psutil.wait_procs([driver, guardian], timeout=20.0)
        rig.driver_ended()
        rig.driver()
    rig.until(lambda: rig.off_after(back), 'off once they run again', sender, False)
