"""Keyboard control in a terminal, over DDS: motors follow held keys; the terminal is restored."""

import fcntl
import itertools
import math
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile

from vdl_ros.msg import EmergencyStop, EmergencyStopState, MotorCommand
from vdl_ros.ros import qos

DELAY_S, REPEAT_S = 0.4, 1 / 30
# Teleop may release a held key whose repeat is later than this, s.
LATE_S = 0.06

# Hits a key as a held one comes: once, and after a while again and again. A process of its own, as
# the test may be held. It prints the times of the first and last hit, and the maximum delay.
KEYBOARD = f'''
import os, sys, time
key, seconds = sys.argv[1].encode(), float(sys.argv[2])
begin = last = time.monotonic()
os.write(1, key)
late, pause = 0.0, {DELAY_S}
while last + pause < begin + seconds:
    time.sleep(pause)
    due, last = last + pause, time.monotonic()
    os.write(1, key)
    late, pause = max(late, time.monotonic() - due), {REPEAT_S}
print(begin, last, late, file=sys.stderr)
'''


class Person:
    """A user at the terminal of teleop, and a subscriber of its topics."""

    def __init__(self, context, tmp_path):
        self.node = Node('listener', context=context)
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self.node)
        # With the time at which it was sent, on the clock of time.monotonic.
        self.received: list[tuple[float, MotorCommand]] = []
        self._offset = time.monotonic() - time.time()
        self.stops: list[EmergencyStop] = []
        # All of them; a driver keeps only the last one.
        self.node.create_subscription(
            MotorCommand, 'arm/motors', self._receive, QoSProfile(depth=1000))
        self.node.create_subscription(
            EmergencyStop, 'arm/emergency_stop', self.stops.append,
            qos.TOPICS['arm/emergency_stop'])
        self.driver = self.node.create_publisher(
            EmergencyStopState, 'arm/emergency_stop_state', qos.TOPICS['arm/emergency_stop_state'])
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 100, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.screen = b''
        self._log = (tmp_path / 'stderr').open('w+')
        self.process = None

    def start(self, *parameters):
        words = [word for each in parameters for word in ('-p', each)]
        self.process = subprocess.Popen(
            ['ros2', 'run', 'vdl_ros', 'teleop', '--ros-args', *words], stdin=self.slave,
            stdout=self.slave, stderr=self._log, start_new_session=True)
        self.wait_for(lambda: b'a z  gripper open' in self.screen
                      and self.node.count_publishers('arm/motors'), 'the help')
        self.wait_for(lambda: self.shown().startswith(b'off   h help'), 'the connection')

    def _receive(self, message):
        stamp = message.header.stamp
        self.received.append((stamp.sec + stamp.nanosec * 1e-9 + self._offset, message))

    def shown(self):
        """Return the status line."""
        return self.screen.rpartition(b'\r\x1b[K')[2]

    @property
    def log(self):
        self._log.seek(0)
        return self._log.read()

    def spin(self, seconds):
        """Receive messages and terminal output for a while."""
        end = time.monotonic() + seconds
        while True:
            while select.select([self.master], [], [], 0)[0]:
                self.screen += os.read(self.master, 4096)
            self._executor.spin_once(timeout_sec=max(0.0, min(0.01, end - time.monotonic())))
            if time.monotonic() >= end:
                return

    def wait_for(self, condition, what, timeout=120.0):
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            assert time.monotonic() < deadline, f'{what}\n{self.screen}\n{self.log}'
            self.spin(0.01)
        return value

    def type(self, data):
        os.write(self.master, data)

    def hold(self, key, seconds):
        """Hold a key, again if a repeat was late; return the times of its first and last byte."""
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            keyboard = subprocess.Popen(
                [sys.executable, '-I', '-S', '-c', KEYBOARD, key, str(seconds)],
                stdout=self.master, stderr=subprocess.PIPE)
            self.wait_for(lambda keyboard=keyboard: keyboard.poll() is not None, 'the key')
            begin, end, late = map(float, keyboard.communicate()[1].split())
            if late < LATE_S:
                return begin, end
            # Motors go off before the next attempt.
            self.spin(1.0)
        raise AssertionError('no key was held')

    def motors(self, until=math.inf):
        """Return what was commanded last, until then."""
        last = next(message for at, message in reversed(self.received) if at <= until)
        return {name: getattr(last, name)
                for name in ('base', 'shoulder', 'elbow', 'wrist', 'gripper')
                if getattr(last, name)}

    def between(self, begin, end):
        return [(at, message) for at, message in self.received if begin <= at <= end]

    def tap(self, key):
        """Tap a key that turns the base."""
        count = len(self.received)
        self.type(key)
        self.wait_for(lambda: any(each.base for _, each in self.received[count:]), 'on')

    def ended(self):
        self.wait_for(lambda: self.process.poll() is not None, 'the end')
        # What it wrote last may still be on its way through the terminal.
        self.wait_for(lambda: b'\x1b[?2004l' in self.screen, 'the last bytes')
        assert termios.tcgetattr(self.slave) == self.before
        assert self.screen.count(b'\x1b[?2004h') == self.screen.count(b'\x1b[?2004l') == 1
        return self.process.returncode

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self._log.close()
        for descriptor in (self.master, self.slave):
            os.close(descriptor)
        self._executor.remove_node(self.node)
        self.node.destroy_node()


@pytest.fixture
def person(tmp_path):
    context = rclpy.Context()
    rclpy.init(context=context)
    person = Person(context, tmp_path)
    yield person
    person.close()
    rclpy.shutdown(context=context)


def test_held_key_commands_and_release_stops(person, took):
    person.start()
    assert person.received == [], 'no commands while idle'
    for key, motors in ((b'b', {'base': 1}), (b'd', {'elbow': -1})):
        begin, end = person.hold(key, 1.2)
        person.wait_for(
            lambda end=end: person.motors() == {} and person.received[-1][0] > end, 'off')
        off = person.received[-1][0]
        times = [begin, *(at for at, _ in person.between(begin, end)), end]
        gaps = [took(*pair) for pair in itertools.pairwise(times)]
        print(f'{len(times) - 2} commands in {end - begin:.2f} s, longest gap {max(gaps):.3f} s')
        assert len(times) - 2 >= 10 * (end - begin)
        assert max(gaps) < 0.25, 'half of what a driver bears'
        assert person.motors(end) == motors
        assert {each.sender for _, each in person.received} == {'/teleop'}
        print(f'off {off - end:.3f} s after the last repeat')
        assert took(end, off) < 0.3
        count = len(person.received)
        person.spin(0.3)
        assert len(person.received) == count, 'off is sent once'
    person.type(b'q')
    person.wait_for(lambda: person.received[-1][1].lamp == 1, 'the lamp')
    _, end = person.hold(b'a', 0.5)
    assert person.motors(end) == {'gripper': 1}
    person.wait_for(lambda: b'gripper +1, lamp' in person.screen, 'the status')
    person.type(b'w ')
    person.wait_for(lambda: person.motors() == {} and person.received[-1][1].lamp == -1, 'all off')
    person.wait_for(lambda: person.shown().startswith(b'off   h help'), 'the status')
    person.tap(b'b')
    person.type(b'\x03')
    assert person.ended() == 0
    person.wait_for(lambda: person.motors() == {}, 'off at the end')
    assert person.log == ''


def test_terminal_with_key_releases(person, took):
    person.start()
    assert b'\x1b[?u' in person.screen
    assert b'\x1b[>11u' not in person.screen
    person.type(b'\x1b[?0u')
    person.wait_for(lambda: b'\x1b[>11u\x1b[?u' in person.screen, 'the question')
    assert b'one key at a time' in person.shown()
    person.type(b'\x1b[?11u')
    person.wait_for(lambda: b'one key at a time' not in person.shown(), 'the mode')
    begin = time.monotonic()
    person.type(b'\x1b[98;1:1u\x1b[97;1:1u')
    for _ in range(2):
        person.spin(0.5)
        person.type(b'\x1b[?11u')
    assert person.motors() == {'base': 1, 'gripper': 1}
    end = time.monotonic()
    assert len(person.between(begin, end)) >= 10 * took(begin, end)
    # Terminal and keyboard show that they are there.
    assert person.screen.count(b'\x1b[?u') >= 4
    for _ in range(20):
        person.type(b'\x1b[?11u\x1b[97;1:2u')
        person.spin(0.1)
        assert person.motors() == {'base': 1, 'gripper': 1}
    person.type(b'\x1b[97;1:3u')
    person.wait_for(lambda: person.motors() == {'base': 1}, 'one off')
    at = time.monotonic()
    person.type(b'\x1b[98;1:3u')
    person.wait_for(lambda: person.motors() == {}, 'both off')
    assert took(at, person.received[-1][0]) < 0.2
    person.type(b'\x1b[27;1:1u')
    assert person.ended() == 0
    assert person.screen.count(b'\x1b[<u') == 1


def test_dead_link_to_a_terminal_with_key_releases_stops_motors(person, took):
    person.start()
    person.type(b'\x1b[?0u')
    person.wait_for(lambda: b'\x1b[>11u\x1b[?u' in person.screen, 'the question')
    person.type(b'\x1b[?11u\x1b[98;1:1u')
    begin = time.monotonic()
    person.wait_for(lambda: any(each.base == 1 for _, each in person.received), 'on')
    # No release, no repeat, no answer.
    person.wait_for(lambda: person.motors() == {}, 'off')
    assert took(begin, person.received[-1][0]) < 2.0


def test_the_emergency_stop(person):
    person.start()
    # Also with nothing held: a program may move the arm.
    person.type(b' ')
    person.wait_for(lambda: person.received and person.motors() == {}, 'all motors off')
    assert person.received[-1][1].lamp == 0
    person.type(b'r')
    person.wait_for(lambda: b'nothing to release: no driver has' in person.screen, 'a line')
    person.hold(b'b', 0.5)
    person.type(b'e')
    person.wait_for(lambda: person.stops and person.motors() == {}, 'the stop')
    assert (person.stops[0].engage, person.stops[0].sender) == (True, '/teleop')
    assert person.stops[0].header.stamp.sec > 0
    count = len(person.received)
    person.hold(b'b', 0.6)
    assert len(person.received) == count
    assert not person.shown().startswith(b'EMERGENCY STOP'), 'the driver has not confirmed it'
    engaged = EmergencyStopState(engaged=True, sender='/teleop')
    engaged.header.stamp.sec = 7
    person.driver.publish(engaged)
    person.wait_for(lambda: person.shown() == b'EMERGENCY STOP by /teleop: r releases it', 'it')
    person.hold(b'b', 0.6)
    assert len(person.received) == count
    person.type(b'r')
    person.wait_for(lambda: len(person.stops) == 2, 'the release')
    assert (person.stops[1].engage, person.stops[1].releases.sec) == (False, 7)
    assert person.shown().startswith(b'EMERGENCY STOP'), 'the driver has not released it'
    person.driver.publish(EmergencyStopState(neutral_required=True))
    person.wait_for(lambda: len(person.received) > count, 'a neutral command')
    assert person.motors() == {}
    # A key that was held meanwhile has to be let go.
    person.spin(1.0)
    person.tap(b'b')
    person.driver.publish(EmergencyStopState(engaged=True, sender='/viewer'))
    person.wait_for(lambda: person.shown().startswith(b'EMERGENCY STOP by /viewer'), 'another')
    person.wait_for(lambda: person.motors() == {}, 'off')
    person.type(b'\x1b')
    assert person.ended() == 0


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_motors_and_restores_the_terminal(person, number):
    person.start()
    person.type(b'\x1b[?0u')
    person.wait_for(lambda: b'\x1b[>11u' in person.screen, 'the protocol')
    person.type(b'\x1b[?11u\x1b[98;1:1u')
    person.wait_for(lambda: any(each.base == 1 for _, each in person.received), 'on')
    person.process.send_signal(number)
    assert person.ended() == 0
    person.wait_for(lambda: person.motors() == {}, 'off')
    assert person.screen.count(b'\x1b[<u') == 1


def test_exception_stops_motors_and_restores_the_terminal(person, tmp_path, monkeypatch):
    # The status line is where this one is made.
    (tmp_path / 'sitecustomize.py').write_text(
        'import vdl_ros.arm.model.motor_command as m\n'
        'old = m.Motors.__str__\n'
        'def broken(self):\n'
        '    if self.wrist: raise RuntimeError("a mistake in the program")\n'
        '    return old(self)\n'
        'm.Motors.__str__ = broken\n')
    monkeypatch.setenv('PYTHONPATH', f'{tmp_path}{os.pathsep}{os.environ.get("PYTHONPATH", "")}')
    person.start()
    person.type(b's')
    assert person.ended() != 0
    person.wait_for(lambda: person.received and person.motors() == {}, 'off')
    assert 'a mistake in the program' in person.log


def test_missing_terminal_is_refused_in_one_line(launch):
    teleop = launch('ros2', 'run', 'vdl_ros', 'teleop')
    assert teleop.wait() == 2
    assert teleop.output == 'teleop: standard input is not a terminal: teleop reads keys\n'
