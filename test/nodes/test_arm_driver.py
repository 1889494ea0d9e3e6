"""The driver as a process over DDS with a fake arm: after every failure the motors stop."""

import itertools
import os
import pty
import resource
import signal
import time
from pathlib import Path

import fake_owi535 as fake
import psutil
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from vdl_ros.msg import EmergencyStop, EmergencyStopState, MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import stop_request

# Required limit, s.
STOPPED_WITHIN = 0.6
PERIOD = 0.05
CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE
DEACTIVATE, CLEANUP = Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP
SHUTDOWN = Transition.TRANSITION_INACTIVE_SHUTDOWN


@pytest.fixture
def bench(monkeypatch):
    with fake.plugged_in() as bench:
        for name, value in bench.env.items():
            monkeypatch.setenv(name, value)
        yield bench


class Person:
    """Commands the arm and receives its topics."""

    def __init__(self, context, bench, launch):
        self.bench, self._launch = bench, launch
        self.node = Node('person', context=context)
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self.node)
        self.motors = self.node.create_publisher(
            MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])
        self._stop = self.node.create_publisher(
            EmergencyStop, 'arm/emergency_stop', qos.TOPICS['arm/emergency_stop'])
        self.stop_states: list[EmergencyStopState] = []
        topic = 'arm/emergency_stop_state'
        self.node.create_subscription(
            EmergencyStopState, topic, self.stop_states.append, qos.TOPICS[topic])
        self.sent: list[MotorCommand] = []
        self.node.create_subscription(
            MotorCommand, 'arm/motors_sent', self.sent.append, qos.TOPICS['arm/motors_sent'])
        self.health: list[DiagnosticStatus] = []
        self.node.create_subscription(
            DiagnosticArray, '/diagnostics', lambda message: self.health.extend(message.status),
            qos.TOPICS['/diagnostics'])
        self._change = self.node.create_client(ChangeState, 'arm_driver/change_state')
        self._state = self.node.create_client(GetState, 'arm_driver/get_state')
        self.published_at = 0.0
        self.driver = None

    def start(self, *parameters, ready='the arm follows arm/motors', under=()):
        """Start the driver, ``under`` another command, and wait until it is connected."""
        words = [word for each in ('usb_backend:=fake_owi535:make', *parameters)
                 for word in ('-p', each)]
        self.driver = self._launch(
            *under, 'ros2', 'run', 'vdl_ros', 'arm_driver', '--ros-args', *words)
        self.wait_for(lambda: ready in self.driver.output and self._change.service_is_ready()
                      and self.motors.get_subscription_count() and self.stop_states
                      and self.node.count_publishers('arm/motors_sent'), 'the driver')
        return self.driver

    @property
    def process(self):
        own = psutil.Process(self.driver.process.pid)
        return next(iter(self.driver.nodes('arm_driver')), own)

    def wait_for(self, condition, what, timeout=120.0):
        def spun():
            self._executor.spin_once(timeout_sec=0.0)
            return condition()
        return self.driver.wait_for(spun, what, timeout)

    def publish(self, sender='/person', **values):
        self.published_at = time.monotonic()
        self.motors.publish(MotorCommand(sender=sender, **values))

    def hold(self, condition, what, senders=('/person',), timeout=120.0, **values):
        """Command so all the time, until ``condition``."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f'{what}\n{self.driver.output}'
            for sender in senders:
                self.publish(sender, **values)
                until = time.monotonic() + PERIOD / len(senders)
                while (left := until - time.monotonic()) > 0:
                    self._executor.spin_once(timeout_sec=left)

    def moving(self):
        return self.bench.data[-1] != '000000'

    def move(self):
        """Let the base turn, for some transfers."""
        count = len(self.bench.data)
        self.hold(lambda: self.bench.data[count:].count('000200') > 1, 'moving', base=1)

    def go_on(self, seconds=0.7):
        """Command the same for a while longer."""
        end = time.monotonic() + seconds
        self.hold(lambda: time.monotonic() > end, 'time', base=1)

    def stopped(self, begin, senders=('/person',), past=None):
        """Command all the time until a stop after ``begin``, not by ``past``; return it."""
        def found():
            return next((each for each in self.bench.transfers if each.time > begin
                         and each.data == '000000' and each.pid != past), None)
        self.hold(found, 'the stop', senders, base=1)
        return found()

    def stop(self, reason='a test'):
        self._stop.publish(stop_request('/person', reason))

    def release(self):
        """Release the state that was received last."""
        self._stop.publish(stop_request('/person', 'a test', self.stop_states[-1]))

    def change(self, transition):
        future = self._change.call_async(
            ChangeState.Request(transition=Transition(id=transition)))
        return self.wait_for(lambda: future.done() and future.result(), 'an answer').success

    @property
    def state(self):
        future = self._state.call_async(GetState.Request())
        return self.wait_for(
            lambda: future.done() and future.result(), 'an answer').current_state.label

    def diagnosed(self, words, **values):
        """Wait for a diagnosis with ``words`` that comes from now on; return its values."""
        self.health.clear()

        def found():
            for each in self.health:
                entries = {pair.key: pair.value for pair in each.values}
                if words in each.message and values.items() <= entries.items():
                    return {**entries, 'level': each.level}
            return None
        return self.wait_for(found, f'diagnosis {words!r}')

    def close(self):
        self._executor.remove_node(self.node)
        self.node.destroy_node()


@pytest.fixture
def context():
    context = rclpy.Context()
    rclpy.init(context=context)
    yield context
    rclpy.shutdown(context=context)


@pytest.fixture
def person(bench, launch, context):
    person = Person(context, bench, launch)
    yield person
    person.close()


def test_late_subscriber_receives_motors_sent(person, bench, context):
    person.start()
    person.hold(lambda: bench.data[-1] == '000001', 'lamp', lamp=1)
    late, received = Node('late', context=context), []
    late.create_subscription(
        MotorCommand, 'arm/motors_sent', received.append, qos.TOPICS['arm/motors_sent'])
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(late)

    def lit():
        executor.spin_once(timeout_sec=0.05)
        return received and received[-1].lamp == 1

    person.driver.wait_for(lit, 'the lamp')
    executor.remove_node(late)
    late.destroy_node()


@pytest.mark.alone  # a machine that stands still is an error
def test_commands_become_bytes_and_are_echoed(person, bench):
    person.start()
    for values, data in (
            ({'base': 1}, '000200'), ({'base': -1}, '000100'), ({'lamp': 1}, '000001'),
            ({'gripper': 1, 'wrist': -1, 'elbow': 1, 'shoulder': -1}, '660001'),
            ({'gripper': -1}, '010001'), ({'lamp': -1}, '000000')):
        person.hold(lambda data=data: bench.data[-1] == data, data, **values)
    expected = {(1, 0, -1, '/arm_driver'), (0, -1, 1, '/arm_driver')}
    person.wait_for(lambda: expected <= {
        (each.base, each.gripper, each.lamp, each.sender) for each in person.sent}, 'echoes')
    entries = person.diagnosed('ok', state='active', errors='0')
    guardian = int(entries['guardian'])
    assert guardian in [each.pid for each in person.driver.family()]
    assert int(entries['commands sent']) > 5
    person.driver.interrupt()
    assert person.driver.wait() == 0, person.driver.output
    assert {each.setup[0] for each in bench.transfers} == {0x40}
    assert not Path(f'/proc/{guardian}').exists()


@pytest.mark.parametrize('kind', ['quiet', 'busy'])
def test_missing_commands_stop_the_motors_in_time(person, bench, took, kind):
    # Simulated time that stands still does not hold the watchdog.
    person.start('use_sim_time:=true')
    for _ in range(3):
        person.move()
        last = person.published_at
        while kind == 'busy' and person.moving():
            for _ in range(200):
                person.release()
        person.wait_for(lambda: not person.moving(), 'the stop')
        stop = next(each for each in bench.transfers
                    if each.time > last and each.data == '000000')
        print(f'stopped {(stop.time - last) * 1000:.0f} ms after the last command')
        assert stop.time - last > 0.49
        assert took(last, stop.time) <= STOPPED_WITHIN
        assert stop.pid == person.process.pid
    assert 'no command for 0.5 s: motors off' in person.driver.output


@pytest.mark.parametrize('number', [
    signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
def test_ending_or_suspending_the_driver_stops_the_motors(person, bench, took, number):
    person.start()
    person.move()
    driver = person.process
    # Not 0: a dump collector on a pipe would take those too and delay the end of the process.
    resource.prlimit(driver.pid, resource.RLIMIT_CORE, (1, 1))
    at = time.monotonic()
    driver.send_signal(number)
    # Commands continue meanwhile.
    stop = person.stopped(at)
    person.go_on()
    print(f'{number.name}: stopped {(stop.time - at) * 1000:.0f} ms after the signal')
    assert took(at, stop.time) <= STOPPED_WITHIN
    after = [each for each in bench.transfers if each.time >= stop.time]
    assert {each.data for each in after} == {'000000'}
    graceful = number in (signal.SIGTERM, signal.SIGINT)
    assert (stop.pid == driver.pid) == graceful
    if number == signal.SIGSTOP:
        driver.send_signal(signal.SIGCONT)
        person.move()
        person.driver.interrupt()
    status = person.driver.wait()
    assert (status == 0) == (graceful or number == signal.SIGSTOP)
    assert bench.data[-1] == '000000'


def test_paused_terminal_does_not_delay_the_stop(person, bench, took):
    master, slave = pty.openpty()
    person.start(ready='', under=('sh', '-c', f'exec "$@" 2>{os.ttyname(slave)}', 'sh'))
    person.wait_for(lambda: person.state == 'active', 'active')
    person.move()
    begin = time.monotonic()
    os.write(master, b'\x13')
    # Ctrl-S: writing a line now blocks. Two senders cause a warning while motors are on.
    rounds = itertools.count()
    person.hold(lambda: next(rounds) == 2, 'two rounds', ('/one', '/two'), base=1)
    noticed = person.published_at
    # The guardian stops past a driver that waits.
    stop = person.stopped(begin, ('/one', '/two'), past=person.process.pid)
    print(f'stopped {(stop.time - noticed) * 1000:.0f} ms after the driver had a line to log')
    assert took(noticed, stop.time) <= STOPPED_WITHIN
    assert bench.data[-1] == '000000'
    os.write(master, b'\x11')
    person.publish()
    person.move()
    os.close(master)
    os.close(slave)


def test_exception_in_the_node_stops_the_motors(person, bench, took):
    person.start()
    person.move()
    bench.fail(fake.CRASH)
    at = time.monotonic()
    stop = person.stopped(at)
    person.go_on()
    assert person.driver.wait() != 0
    assert 'a mistake in the program' in person.driver.output
    assert took(at, stop.time) <= STOPPED_WITHIN
    assert bench.data[-1] == '000000'


def test_killed_launch_ends_the_driver(person, bench, took):
    person.start('launch_id:=one', under=('sh', '-c', '"$@"; true', 'sh'))
    person.move()
    parent = person.process.parent()
    assert parent.pid != os.getpid()
    at = time.monotonic()
    parent.kill()
    stop = person.stopped(at)
    person.go_on()
    assert took(at, stop.time) <= STOPPED_WITHIN
    person.wait_for(lambda: not person.driver.nodes('arm_driver'), 'the end')
    assert bench.data[-1] == '000000'


def test_lifecycle_states(person, bench, took):
    person.start('autostart:=false', ready='')
    assert person.state == 'unconfigured'
    assert person.change(ACTIVATE) is False, 'not from here'
    person.go_on(0.2)
    assert bench.data == []
    assert person.change(CONFIGURE) is True
    assert (person.state, bench.data[0]) == ('inactive', '000000')
    person.go_on(0.3)
    assert set(bench.data) == {'000000'}
    assert person.change(ACTIVATE) is True
    person.move()
    at = time.monotonic()
    assert person.change(DEACTIVATE) is True
    assert person.change(DEACTIVATE) is False, 'there is nothing to do twice'
    person.go_on(0.3)
    after = [each for each in bench.transfers if each.time > at]
    first = next(each for each in after if each.data == '000000')
    assert took(at, first.time) <= STOPPED_WITHIN
    assert {each.data for each in after if each.time > first.time} <= {'000000'}
    assert person.change(99) is False
    assert person.change(CLEANUP) is True
    count = len(bench.data)
    person.go_on(0.3)
    assert len(bench.data) == count
    assert person.diagnosed('ok', state='closed')['guardian'] == 'none'
    assert person.change(CONFIGURE) is True
    assert person.change(SHUTDOWN) is True
    assert person.state == 'finalized'
    person.driver.interrupt()
    assert person.driver.wait() == 0
    assert 'Traceback' not in person.driver.output


@pytest.mark.alone  # a machine that stands still is an error
def test_disconnection_while_moving(person, bench):
    person.start()
    person.move()
    bench.fail('unplugged')
    person.hold(lambda: 'motors off: arm 1267:0000: disconnected' in person.driver.output,
                'noticed', base=1)
    entries = person.diagnosed('disconnected', state='fault', motors='unknown')
    assert entries['level'] == DiagnosticStatus.WARN
    assert person.state == 'active'
    person.go_on(0.3)  # what it commands when it comes back
    count = len(bench.data)
    bench.fail('')
    person.hold(lambda: 'connected again, motors off' in person.driver.output, 'back', base=1)
    person.go_on(0.3)
    assert set(bench.data[count:]) == {'000000'}, 'a command must be released first'
    # One word: the next would hide it from a driver that has not looked yet.
    person.publish()
    person.diagnosed('', **{'locked out': 'none'})
    person.move()
    assert person.diagnosed('', state='active')['errors'] == '1'


@pytest.mark.parametrize(('fault', 'words'), [
    ('unplugged', 'arm 1267:0000: no such USB device is connected'),
    ('denied', 'arm 1267:0000: no permission to')])
def test_unavailable_arm_is_logged_once_until_available(person, bench, fault, words):
    bench.fail(fault)
    driver = person.start(ready=words)
    entries = person.diagnosed(words, state='closed')
    assert entries['level'] == DiagnosticStatus.WARN
    assert '99-owi535.rules' in driver.output
    assert person.change(CONFIGURE) is False
    person.diagnosed(words)
    # Once by autostart, once by request.
    assert driver.output.count(words) == 2
    assert person.state == 'unconfigured'
    bench.fail('')
    person.wait_for(lambda: 'the arm follows arm/motors' in driver.output, 'found')
    person.move()


def test_emergency_stop_outranks_commands_and_two_senders_are_warned_of(person, bench):
    driver = person.start()
    person.hold(lambda: 'arm/motors: 2 publishers at once: /one, /two' in driver.output,
                'the warning', senders=('/one', '/two'), base=1)
    person.stop()
    person.hold(lambda: 'emergency stop: motors off' in driver.output, 'the stop', base=1)
    count = len(bench.data)
    person.hold(lambda: len(bench.data) >= count + 3, 'refreshed', senders=('/one', '/two'),
                base=1, elbow=-1)
    assert set(bench.data[count:]) == {'000000'}
    assert person.diagnosed('emergency stop')['emergency_stop'] == 'True'
    person.hold(lambda: person.release() or 'emergency stop released' in driver.output,
                'the release', base=1)
    person.go_on(0.3)
    assert set(bench.data[count:]) == {'000000'}, 'first a command with all motors off'
    # One word: the next would hide it from a driver that has not looked yet.
    person.publish()
    person.diagnosed('ok')
    person.move()


def test_invalid_messages_stop_the_motors_and_the_node_survives(person, bench):
    driver = person.start()
    for values, reason in (
            ({'base': 2}, 'motor base: 2 is not allowed'),
            ({'gripper': -128}, 'motor gripper: -128 is not allowed'),
            ({'base': 1, 'lamp': 5}, 'lamp: 5 is not allowed')):
        person.move()
        person.publish(**values)
        person.wait_for(lambda reason=reason: reason in driver.output, reason)
        assert bench.data[-1] == '000000'

    def refused():
        return max((int(pair.value) for each in person.health for pair in each.values
                    if pair.key == 'commands refused'), default=0)

    person.hold(lambda: refused() > 5, 'refused', base=7)
    assert driver.output.count('motor base: 7') < 5
    # Less than a message, and nothing at all: the middleware drops them.
    person.motors.publish(b'\x00\x01\x00\x00\x01\x02')
    person.motors.publish(b'')
    person.move()
    assert set(bench.data) == {'000000', '000200'}


@pytest.mark.parametrize(('parameter', 'line'), [
    ('usb_backend:=nowhere:make', "usb_backend: 'nowhere:make' is not allowed"),
    ('elbow_sign:=0', 'elbow_sign: 0 is not allowed: -1 or 1'),
    ('command_timeout:=.nan', 'command_timeout: nan is not allowed'),
    ('comand_timeout:=1.0', "comand_timeout: no such parameter of arm_driver; did you mean")])
def test_invalid_parameters_are_refused(launch, bench, parameter, line):
    driver = launch('ros2', 'run', 'vdl_ros', 'arm_driver', '--ros-args', '-p', parameter)
    assert driver.wait() == 2
    assert line in driver.output
    assert 'Traceback' not in driver.output
    assert bench.data == []
