"""Keyboard control in a terminal, over DDS: motors follow held keys; the terminal is restored."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from types import SimpleNamespace

import pytest
from rclpy.qos import QoSProfile

from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.common.consent import StandstillDetector
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.nodes import teleop
from vdl_ros.ros import qos


class Person:
    """A user at the terminal of teleop, and a subscriber of its topics."""

    def __init__(self, peer, node_here, monkeypatch, tmp_path):
        self._peer, self._node_here, self._monkeypatch = peer, node_here, monkeypatch
        # All of them; a driver keeps only the last one.
        self.received = peer.listen(MotorCommand, 'arm/motors', QoSProfile(depth=1000))
        self.stops, self.releases = map(
            peer.listen, ('arm/emergency_stop', 'arm/emergency_stop_release'))
        self.driver = qos.pub(peer.node, 'arm/emergency_stop_state')
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 100, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.screen = b''
        self._log = (tmp_path / 'stderr').open('w+')
        self.process = self.running = None

    def start(self):
        """Start teleop as a process."""
        self.process = subprocess.Popen(
            ['ros2', 'run', 'vdl_ros', 'teleop'], stdin=self.slave, stdout=self.slave,
            stderr=self._log, start_new_session=True)
        self._until_connected()

    def start_here(self):
        """Start teleop in this process."""
        with self._monkeypatch.context() as patch:
            for name in ('stdin', 'stdout'):
                patch.setattr(f'sys.{name}', SimpleNamespace(fileno=lambda: self.slave))
            self.running = self._node_here(teleop.TeleopNode)
        self._until_connected()

    def _until_connected(self):
        self.wait_for(lambda: b'a z  gripper open' in self.screen
                      and self._peer.node.count_publishers('arm/motors'), 'the help')
        self.wait_for(lambda: self.shown().startswith(b'off   h help'), 'the connection')

    def shown(self):
        """Return the status line."""
        return self.screen.rpartition(b'\r\x1b[K')[2]

    @property
    def log(self):
        self._log.seek(0)
        return self._log.read()

    def wait_for(self, condition, what, say=None, every=0.1):
        """Receive messages and terminal output until ``condition``."""
        def read():
            while select.select([self.master], [], [], 0)[0]:
                self.screen += os.read(self.master, 4096)
            return condition()
        return self._peer.until(read, what, say=say, every=every)

    def type(self, data):
        os.write(self.master, data)

    def until_off(self):
        self.wait_for(lambda: self.received and self.motors() == {}, 'off')

    def motors(self):
        """Return what was commanded last."""
        return {name: getattr(self.received[-1], name) for name in JOINTS
                if getattr(self.received[-1], name)} if self.received else {}

    def turn(self, key, commands=1):
        """Hit a key that turns the base as if it was held, for so many commands."""
        count = len(self.received)
        self.wait_for(lambda: sum(each.base for each in self.received[count:]) >= commands, 'on',
                      say=lambda: self.type(key), every=0.03 if commands > 1 else 60.0)

    def until_restored(self):
        """Wait until the terminal is as it was before."""
        # What was written last may still be on its way through the terminal.
        self.wait_for(lambda: b'\x1b[?2004l' in self.screen, 'the last bytes')
        self.wait_for(lambda: termios.tcgetattr(self.slave) == self.before, 'the terminal')
        assert self.screen.count(b'\x1b[?2004h') == self.screen.count(b'\x1b[?2004l') == 1

    def ended(self):
        self.wait_for(lambda: self.process.poll() is not None, 'the end')
        self.until_restored()
        return self.process.returncode

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.running is not None:
            self.running.interrupt()
            self.running.join()
        self._log.close()
        for descriptor in (self.master, self.slave):
            os.close(descriptor)


@pytest.fixture
def person(peer, node_here, monkeypatch, tmp_path):
    person = Person(peer, node_here, monkeypatch, tmp_path)
    yield person
    person.close()


# How often, and how soon off: test/arm/teleop/test_teleop.py, in virtual time.

def test_held_key_commands_and_release_stops(person):
    person.start()
    assert person.received == [], 'no commands while idle'
    person.turn(b'b', commands=5)
    person.until_off()
    senders = {each.sender for each in person.received}
    assert [re.sub('#[0-9a-f]{8}$', '', each) for each in senders] == ['/teleop'], 'one'
    count = len(person.received)
    person.type(b'q')
    person.wait_for(lambda: person.received[-1].lamp == 1, 'the lamp')
    assert [each.base for each in person.received[count:]] == [0], 'off is sent once'
    person.type(b'a')
    person.wait_for(lambda: b'gripper +1, lamp' in person.screen, 'the status')
    person.type(b'w ')
    person.wait_for(lambda: person.motors() == {} and person.received[-1].lamp == -1, 'all off')
    person.wait_for(lambda: person.shown().startswith(b'off   h help'), 'the status')
    person.turn(b'b')
    person.type(b'\x03')
    assert person.ended() == 0
    person.until_off()
    assert person.log == ''


def test_terminal_with_key_releases_that_is_closed_stops_motors_and_is_restored(person):
    press = b'\x1b[98;1:1u'
    person.start()
    assert b'one key at a time' in person.shown()
    person.type(b'\x1b[?0u')
    person.wait_for(lambda: b'\x1b[>11u' in person.screen, 'the protocol')
    person.type(b'\x1b[?11u')
    person.turn(press)
    person.wait_for(lambda: b'one key at a time' not in person.shown(), 'the mode')
    person.type(b'\x1b[98;1:3u')
    person.until_off()
    person.type(b'\x1b[?11u')
    person.turn(press)
    person.process.send_signal(signal.SIGHUP)
    assert person.ended() == 0
    person.until_off()
    assert person.screen.count(b'\x1b[<u') == 1


def test_the_emergency_stop(person):
    person.start_here()
    # Also with nothing held: a program may move the arm.
    person.type(b' ')
    person.until_off()
    assert person.received[-1].lamp == 0
    # Again: a key that was typed while the machine stood still is dropped.
    person.wait_for(lambda: b'nothing to release: no driver has' in person.screen, 'a line',
                    every=2.0, say=lambda: person.type(b'r'))
    person.turn(b'b')
    person.type(b'e')
    person.wait_for(lambda: person.stops and person.motors() == {}, 'the stop')
    assert person.stops[0].sender == '/teleop'
    assert person.stops[0].header.stamp.sec > 0
    count = len(person.received)
    assert not person.shown().startswith(b'EMERGENCY STOP'), 'the driver has not confirmed it'
    engaged = EmergencyStopState(engaged=True, sender='/teleop')
    engaged.header.stamp.sec = 7
    person.driver.publish(engaged)
    person.wait_for(lambda: person.shown() == b'EMERGENCY STOP by /teleop: r releases it', 'it')
    person.type(b'bb')
    person.wait_for(lambda: person.releases, 'the release', every=2.0,
                    say=lambda: person.type(b'r'))
    assert person.releases[0].stop.sec == 7
    assert person.shown().startswith(b'EMERGENCY STOP'), 'the driver has not released it'
    person.driver.publish(EmergencyStopState(neutral_required=True))
    person.wait_for(lambda: len(person.received) > count, 'a neutral command')
    assert not any(each.base for each in person.received[count:]), 'keys did nothing'
    # A key that was held meanwhile has to be let go.
    person.wait_for(lambda: person.motors() == {'base': 1}, 'on', every=2.0,
                    say=lambda: person.type(b'b'))
    person.driver.publish(EmergencyStopState(engaged=True, sender='/\x1b[2J'))
    person.until_off()
    person.wait_for(lambda: rb"STOP by '/\x1b[2J': r" in person.shown(), 'a sender that is quoted')
    person.type(b'\x1b')
    person.wait_for(lambda: not person.running.is_running, 'the end')
    person.until_restored()


def test_all_off_follows_a_release_and_is_repeated_until_all_nodes_have_found_teleop(
        person, monkeypatch):
    monkeypatch.setattr(teleop, 'FOUND_S', 1000.0)
    person.start_here()
    person.turn(b'qb')
    count = len(person.received)
    person.type(b' ')
    person.wait_for(lambda: not any(each.base for each in person.received[-5:]),
                    'the repetitions')
    offs = [each.lamp for each in person.received[count:] if not each.base]
    assert offs[:3] == [1, 0, 0], 'a release with the lamp, then all off'
    person.wait_for(lambda: all(each.base for each in person.received[-12:]),
                    'a key that moves ends them', say=lambda: person.type(b'b'), every=0.03)


def test_keys_that_waited_in_a_pause_move_and_release_nothing(person, monkeypatch):
    person.start_here()
    person.driver.publish(EmergencyStopState())
    person.wait_for(lambda: person.running.node._stop_state is not None, 'the state')
    monkeypatch.setattr(StandstillDetector, 'is_input_old', True)
    person.type(b'rbq')
    person.wait_for(lambda: person.received and person.received[-1].lamp == 1, 'the lamp')
    assert person.motors() == {}
    monkeypatch.undo()
    person.turn(b'b')
    person.type(b'e')
    person.wait_for(lambda: person.stops, 'the stop')
    assert not person.releases


def test_exception_stops_motors_and_restores_the_terminal(person, monkeypatch):
    person.start_here()
    show = Motors.__str__

    def broken(motors):
        """Fail where the status line is made."""
        if motors.wrist:
            raise RuntimeError('a mistake in the program')
        return show(motors)

    monkeypatch.setattr(Motors, '__str__', broken)
    person.type(b's')
    person.running.join()
    with pytest.raises(RuntimeError, match='a mistake in the program'):
        person.running.end()
    person.until_restored()
    person.until_off()


def test_missing_terminal_is_refused_in_one_line(run_here, monkeypatch):
    with open(os.devnull) as nothing:
        monkeypatch.setattr('sys.stdin', nothing)
        assert run_here(teleop.main) == (
            2, 'teleop: standard input is not a terminal: teleop reads keys\n')
