"""The node arm_driver with a fake arm: after every failure the motors stop."""

import itertools
import os
import pty
import signal
import termios
import threading
import time
from types import SimpleNamespace

import fake_owi535 as fake
import psutil
import pytest
import rclpy
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Header

from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.nodes import arm_driver, stop
from vdl_ros.ros import qos
from vdl_ros.ros.arm import arm_topics
from vdl_ros.ros.arm.arm_topics import release_request, stop_request

PERIOD = 0.05
BACKEND = 'usb_backend:=fake_owi535:make'
READY = 'the arm follows arm/motors'
CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE
DEACTIVATE, CLEANUP = Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP
SHUTDOWN = Transition.TRANSITION_INACTIVE_SHUTDOWN


class Person:
    """Commands the arm and receives its topics."""

    def __init__(self, peer, bench, launch, node_here):
        self.peer, self.bench, self._launch, self._node_here = peer, bench, launch, node_here
        self.node = peer.node
        self.motors = qos.pub(self.node, 'arm/motors')
        self._stop, self._release = (qos.pub(self.node, each) for each in (
            'arm/emergency_stop', 'arm/emergency_stop_release'))
        self.stop_states, self.sent, self._health = map(
            peer.listen, ('arm/emergency_stop_state', 'arm/motors_sent', '/diagnostics'))
        self._change = self.node.create_client(ChangeState, 'arm_driver/change_state')
        self.published_at = 0.0
        self.driver = None

    def start(self, *parameters, under=(), ready=READY):
        """Start the driver as a process, ``under`` another command, and wait for it."""
        words = [word for each in (BACKEND, *parameters) for word in ('-p', each)]
        self.driver = self._launch(
            *under, 'ros2', 'run', 'vdl_ros', 'arm_driver', '--ros-args', *words)
        self._until_connected(ready)

    def start_here(self, *parameters, ready=READY):
        """Start the driver in this process, and wait for it."""
        self.driver = self._node_here(arm_driver.ArmDriverNode, BACKEND, *parameters)
        self._until_connected(ready)
        return self.driver

    def _until_connected(self, ready):
        self.until(lambda: ready in self.driver.output and self._change.service_is_ready()
                   and self.motors.get_subscription_count() and self.stop_states
                   and self.node.count_publishers('arm/motors_sent'), 'the driver')

    @property
    def process(self):
        own = psutil.Process(self.driver.process.pid)
        return next(iter(self.driver.nodes('arm_driver')), own)

    def until(self, condition, what, say=None):
        return self.peer.until(condition, what, say=say)

    def publish(self, sender='/person', **values):
        self.published_at = time.monotonic()
        self.motors.publish(MotorCommand(sender=sender, **values))

    def hold(self, condition, what, senders=('/person',), **values):
        """Command so all the time, until ``condition``."""
        turns = itertools.cycle(senders)
        self.peer.until(condition, what, every=PERIOD / len(senders),
                        say=lambda: self.publish(next(turns), **values))

    def move(self):
        """Let the base turn, for some transfers."""
        # A driver that was just activated moves nothing for who has not let go.
        self.go_on(base=0)
        count = len(self.bench.data)
        self.hold(lambda: self.bench.data[count:].count('000200') > 1, 'moving', base=1)

    def go_on(self, base=1):
        """Command the same a few times more, for longer than the driver's watchdog waits."""
        end = time.monotonic() + 0.7
        self.hold(lambda: time.monotonic() > end, 'time', base=base)

    def stopped(self, begin, senders=('/person',), past=None):
        """Command all the time until a stop after ``begin``, not by ``past``; return it."""
        def found():
            return next((each for each in self.bench.transfers if each.time > begin
                         and each.data == '000000' and each.pid != past), None)
        self.hold(found, 'the stop', senders, base=1)
        return found()

    def stopped_after(self, act, by_driver):
        """Check that motors go off after ``act`` though commands continue, and stay off."""
        pid, at = self.process.pid, time.monotonic()
        act()
        stop = self.stopped(at)
        self.go_on()
        after = [each for each in self.bench.transfers if each.time >= stop.time]
        assert {each.data for each in after} == {'000000'}
        assert (stop.pid == pid) == by_driver

    def stop(self):
        self._stop.publish(stop_request('/person', 'a test'))

    def release(self):
        """Release the state that was received last."""
        self._release.publish(release_request('/person', 'a test', self.stop_states[-1]))

    def change(self, transition):
        return self.peer.call(ChangeState, 'arm_driver/change_state', ChangeState.Request(
            transition=Transition(id=transition))).success

    @property
    def state(self):
        return self.peer.call(
            GetState, 'arm_driver/get_state', GetState.Request()).current_state.label

    def diagnosed(self, words, say=None, **values):
        """Wait for a diagnosis with ``words`` that comes from now on; return its values."""
        self._health.clear()

        def found():
            for each in itertools.chain.from_iterable(each.status for each in self._health):
                entries = {pair.key: pair.value for pair in each.values}
                if words in each.message and values.items() <= entries.items():
                    return {**entries, 'level': each.level}
            return None
        return self.until(found, f'diagnosis {words!r}', say)


@pytest.fixture
def person(peer, bench, launch, node_here):
    return Person(peer, bench, launch, node_here)


# Within which time: test_driver.py in virtual time, and make faults.

def test_a_driver_that_hears_nothing_is_suspended_or_interrupted_stops_the_motors(person, bench):
    # Simulated time that stands still does not hold the watchdog.
    person.start('use_sim_time:=true')
    driver = person.process
    person.move()
    last = person.published_at
    person.until(lambda: bench.data[-1] == '000000', 'the stop')
    stop = next(each for each in bench.transfers if each.time > last and each.data == '000000')
    # Not earlier, unless by the guardian, because the machine kept the driver waiting.
    assert stop.pid != driver.pid or stop.time - last > 0.49
    # The guardian may have been sooner.
    person.until(lambda: 'no command for 0.5 s: motors off' in person.driver.output, 'the line')
    person.publish()
    person.move()
    person.stopped_after(driver.suspend, by_driver=False)
    count = len(bench.data)
    driver.resume()
    person.until(lambda: 'it may be old, as this node has stood still' in person.driver.output,
                 'what waited is refused')
    # Each second one stands for one that its sender had sent before it stood still.
    turns = itertools.cycle(((0, 0), (4, 1)))

    def publish():
        back, base = next(turns)
        person.publish(base=base, header=Header(stamp=Time(sec=1000 - back)))
    person.peer.until(lambda: 'it may be old, it came 4.' in person.driver.output,
                      'a late one is refused', every=PERIOD, say=publish)
    assert set(bench.data[count:]) <= {'000000'}
    person.publish()
    person.move()
    person.stopped_after(lambda: driver.send_signal(signal.SIGINT), by_driver=True)
    assert person.driver.wait() == 0
    assert bench.data[-1] == '000000'


def test_paused_terminal_does_not_prevent_the_stop(person, bench):
    master, slave = pty.openpty()
    person.start(ready='', under=('sh', '-c', f'exec "$@" 2>{os.ttyname(slave)}', 'sh'))
    person.until(lambda: person.state == 'active', 'active')
    person.move()
    begin = time.monotonic()
    # As by Ctrl-S, but at once.
    termios.tcflow(slave, termios.TCOOFF)
    # Writing a line now blocks. Two senders cause a warning while motors are on.
    rounds = itertools.count()
    person.hold(lambda: next(rounds) == 4, 'two rounds', ('/one', '/two'), base=1)
    # The guardian stops past a driver that waits.
    person.stopped(begin, ('/one', '/two'), past=person.process.pid)
    assert bench.data[-1] == '000000'
    termios.tcflow(slave, termios.TCOON)
    person.publish()
    person.move()
    os.close(master)
    os.close(slave)


def test_exception_in_the_node_stops_the_motors(person, bench):
    driver = person.start_here()
    person.move()
    bench.fail(fake.CRASH)
    person.stopped(time.monotonic())
    person.go_on()
    person.until(lambda: not driver.is_running, 'the end')
    with pytest.raises(RuntimeError, match='a mistake in the program'):
        driver.end()
    assert bench.data[-1] == '000000'


def test_a_stop_that_the_arm_does_not_take_is_said_in_the_terminal(
        person, bench, node_here, monkeypatch):
    monkeypatch.setattr(stop, '_PATIENCE_S', 3.0)
    person.start_here()
    person.move()
    bench.fail('timeout')
    terminal = node_here(stop.StopNode)
    person.until(lambda: not terminal.is_running, 'the answer')
    bench.fail('')  # else the guardian would go on
    assert terminal.end() == 1
    assert person.stop_states[-1].engaged
    assert 'whether the motors are off is not known' in terminal.output


def test_a_stop_is_repeated_until_the_arm_has_taken_it_although_another_one_follows(monkeypatch):
    monkeypatch.setattr(stop, '_AGAIN_S', 0.0)
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    terminal = stop.StopNode()
    repeated = []
    monkeypatch.setattr(terminal, '_requests', SimpleNamespace(publish=repeated.append))

    def state(stamp, engaged, sender):
        return lambda: terminal._on_state(EmergencyStopState(
            header=Header(stamp=Time(sec=stamp)), engaged=engaged, sender=sender))

    messages = iter([
        # An earlier release, by the same name.
        lambda: None, state(1, False, '/stop'), state(2, True, '/person'), state(3, True, '/stop'),
        state(4, True, '/person'), lambda: terminal._on_sent(MotorCommand(base=1)),
        lambda: terminal._on_sent(MotorCommand())])
    executor = SimpleNamespace(spin_once=lambda timeout_sec: next(messages)())
    try:
        assert terminal.work(executor, threading.Event()) == 0
    finally:
        terminal.destroy_node()
        rclpy.shutdown()
    assert [each.sender for each in repeated] == ['/stop'] * 3


def test_lifecycle_states(person, bench):
    person.start_here('autostart:=false', ready='')
    assert person.state == 'unconfigured'
    assert person.change(ACTIVATE) is False, 'not from here'
    person.go_on()
    assert bench.data == []
    assert person.change(CONFIGURE) is True
    person.go_on()
    assert {*bench.data} == {'000000'}
    assert person.change(ACTIVATE) is True
    person.move()
    assert person.change(DEACTIVATE) is True
    assert person.change(DEACTIVATE) is False, 'there is nothing to do twice'
    count = len(bench.data) - 1
    person.go_on()
    assert {*bench.data[count:]} == {'000000'}
    assert person.change(99) is False
    assert person.change(CLEANUP) is True
    count = len(bench.data)
    person.go_on()
    assert len(bench.data) == count
    assert person.diagnosed('ok', state='closed')['guardian'] == 'none'
    assert person.change(CONFIGURE) is True
    assert person.change(SHUTDOWN) is True
    assert person.state == 'finalized'


def test_commands_become_bytes_and_invalid_ones_stop_the_motors(person, bench):
    driver = person.start_here()
    for values, data in (({'lamp': 1}, '000001'), ({'base': -1}, '000101'),
                         ({'gripper': 1, 'wrist': -1, 'elbow': 1, 'shoulder': -1}, '660001')):
        person.hold(lambda data=data: bench.data[-1] == data, data, **values)
    person.until(lambda: any((each.base, each.lamp, each.sender) == (-1, 1, '/arm_driver')
                             for each in person.sent), 'the echo')
    person.hold(lambda: bench.data[-1] == '000000', 'all off', lamp=-1)
    guardian = psutil.Process(int(person.diagnosed('ok', state='active')['guardian']))
    assert guardian.ppid() == os.getpid()
    for values, reason in (({'base': 2}, 'motor base: 2 is not allowed'),
                           ({'base': 1, 'lamp': 5}, 'lamp: 5 is not allowed')):
        person.move()
        person.hold(lambda reason=reason: reason in driver.output, reason, **values)
        assert bench.data[-1] == '000000', reason
    # Less than a message, and nothing at all: the middleware drops them.
    person.motors.publish(b'\x00\x01\x00\x00\x01\x02')
    person.motors.publish(b'')
    person.move()
    assert driver.end() == 0
    person.until(lambda: not guardian.is_running(), 'the end of the guardian')


def test_a_missing_arm_is_logged_once_until_it_is_there_and_one_that_was_lost_stands_still(
        person, bench):
    words = 'arm 1267:0000: no such USB device is connected'
    bench.fail('unplugged')
    driver = person.start_here(ready=words)
    assert person.diagnosed(words, state='closed')['level'] == DiagnosticStatus.WARN
    assert person.change(CONFIGURE) is False
    person.diagnosed(words)
    # Once by autostart, once by request.
    assert driver.output.count(words) == 2
    bench.fail('')
    person.until(lambda: READY in driver.output, 'found')
    person.move()
    bench.fail('unplugged')
    person.hold(lambda: 'motors may be on: arm 1267:0000 at 1-1: disconnected' in driver.output,
                'noticed', base=1)
    person.diagnosed('disconnected', state='fault', motors='unknown')
    person.go_on()  # what it commands when it comes back
    count = len(bench.data)
    bench.fail('')
    person.hold(lambda: 'connected again, motors off' in driver.output, 'back', base=1)
    person.go_on()
    assert set(bench.data[count:]) == {'000000'}, 'a command must be released first'
    # Alone: the next would hide it from a driver that has not looked yet.
    person.diagnosed('', say=lambda: person.publish(), **{'locked out': 'none'})
    person.move()


def test_emergency_stop_outranks_commands(person, bench):
    driver = person.start_here()
    person.move()
    person.stop()
    person.hold(lambda: 'emergency stop: motors off' in driver.output, 'the stop', base=1)
    count = len(bench.data)
    person.hold(lambda: len(bench.data) >= count + 3, 'refreshed', base=1, elbow=-1)
    assert person.diagnosed('emergency stop')['emergency_stop'] == 'True'
    detector = driver.node._topics._standstill
    driver.node._topics._standstill = SimpleNamespace(
        update=lambda: True, recent=True, input_age=0.0)
    person.hold(lambda: person.release() or "release by '/person' is ignored: it may be old"
                in driver.output, 'a release that may have waited', base=1)
    driver.node._topics._standstill = detector
    person.hold(lambda: person.release() or 'emergency stop released' in driver.output,
                'the release', base=1)
    person.go_on()
    assert set(bench.data[count:]) == {'000000'}, 'first a command with all motors off'
    # Alone: the next would hide it from a driver that has not looked yet.
    person.diagnosed('ok', say=lambda: person.publish())
    person.move()


@pytest.mark.parametrize('flood', ['motors', 'emergency_stop_release'])
def test_a_flood_in_which_a_stop_could_be_lost_stops_the_arm(person, flood, monkeypatch):
    monkeypatch.setattr(arm_topics, '_FLOOD_S', 1000.0)
    person.start_here()
    person.move()
    say = person.publish if flood == 'motors' else lambda: person.release()
    person.until(lambda: person.stop_states[-1].engaged, 'the stop', say=say)
    assert f'messages/s, the last one on arm/{flood}: ' in person.stop_states[-1].reason


def test_a_clock_that_is_set_back_stops_the_arm(person, monkeypatch):
    # DDS waits by it, so that a stop could come as much later.
    person.start_here()
    person.move()
    now = time.time
    monkeypatch.setattr(time, 'time', lambda: now() - 7200.0)
    person.until(lambda: person.stop_states[-1].engaged, 'the stop')
    assert 'the clock was set back by 7200 s' in person.stop_states[-1].reason


def test_a_program_that_a_person_switches_off_hears_it_of_the_driver(person, bench):
    person.start_here()
    # A driver that has just started moves nothing for who has not let go.
    turns = itertools.cycle((0, 1))

    def command():
        person.publish('/arm_controller', base=next(turns))

    person.until(lambda: bench.data[-1] == '000200', 'moving', say=command)
    count = len(person.stop_states)
    before = person.stop_states[-1]
    person.until(lambda: len(person.stop_states) > count, 'the news', say=person.publish)
    assert person.stop_states[-1].commanded != before.commanded
    assert person.stop_states[-1].header == before.header, 'no stop'
    # Who lets go of what they have moved ends nothing.
    person.move()
    count = len(person.stop_states)
    person.go_on(base=0)
    assert len(person.stop_states) == count
    # Nor does the command that the driver needs after a stop.
    person.until(lambda: bench.data[-1] == '000200', 'moving', say=command)
    person.stop()
    person.until(lambda: person.stop_states[-1].engaged, 'the stop')
    person.until(lambda: person.stop_states[-1].neutral_required, 'the release',
                 say=person.release)
    person.until(lambda: not person.stop_states[-1].neutral_required, 'the command',
                 say=person.publish)
    assert person.stop_states[-1].reason == 'a test'


def test_invalid_parameters_are_refused(refused, bench):
    for parameter, line in (
            ('usb_backend:=nowhere:make', "usb_backend: 'nowhere:make' is not allowed"),
            ('elbow_sign:=0', 'elbow_sign: 0 is not allowed: -1 or 1'),
            ('comand_timeout:=1.0',
             'comand_timeout: no such parameter of arm_driver; did you mean')):
        assert line in refused(arm_driver.main, parameter)
    assert bench.data == []
