"""The guardian as a process: it stops the arm of a dead or hanging driver, and nothing else."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import fake_owi535 as fake
import psutil
import pytest

from vdl_ros.arm.driver.guardian import SILENCE_S, Guardian, GuardianError, stop_arm, watch
from vdl_ros.arm.driver.usb import (
    DisconnectedError,
    TransferTimeoutError,
    UsbArm,
    load_backend,
)
from vdl_ros.arm.model.motor_command import Motors

pytestmark = pytest.mark.process

BACKEND = 'fake_owi535:make'
# From a driver's death or last word to motors off, at the most, each time, s.
STOPPED_WITHIN = 0.6
ROUNDS = 3

# A driver that moves the arm and waits; each line of input is an action.
DRIVER = '''
import sys
from vdl_ros.arm.driver.guardian import Guardian
from vdl_ros.arm.driver.usb import UsbArm, load_backend
arm = UsbArm(0, load_backend('fake_owi535:make'), 0.1)
guardian = Guardian(0, 'fake_owi535:make')
guardian.start()
guardian.set_lamp(sys.argv[1] == '1')
arm.send(bytes([0x11, 0, int(sys.argv[1])]))
print(guardian.pid, flush=True)
for line in sys.stdin:
    if line == 'beat\\n':
        guardian.heartbeat(True)
    if line == 'still\\n':
        guardian.heartbeat(False)
    if line == 'goodbye\\n':
        arm.close()
        guardian.end(stopped=True)
    if line == 'hand over\\n':
        arm.close()
        guardian.end(stopped=False)
    print('done', flush=True)
'''


def until(condition, what, timeout=120.0):
    pause, deadline = threading.Event(), time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        pause.wait(0.005)
    return value


def ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def bench(monkeypatch):
    with fake.plugged_in() as bench:
        for name, value in bench.env.items():
            monkeypatch.setenv(name, value)
        yield bench


class Driver:
    """The process above, and its guardian."""

    def __init__(self, lamp):
        self.process = subprocess.Popen(
            [sys.executable, '-c', DRIVER, str(int(lamp))], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.guardian = psutil.Process(int(self.process.stdout.readline()))

    def send(self, line):
        self.process.stdin.write(f'{line}\n')
        self.process.stdin.flush()
        assert self.process.stdout.readline() == 'done\n'


@pytest.fixture
def drive(bench):
    started = []

    def start(lamp=False):
        started.append(Driver(lamp))
        return started[-1]

    yield start
    for driver in started:
        driver.process.kill()
        driver.process.communicate()
        until(lambda driver=driver: ended(driver.guardian), 'the guardian ends')


@pytest.mark.parametrize('lamp', [False, True])
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_guardian_stops_the_arm_of_a_dead_driver(bench, drive, took, number, lamp):
    driver = drive(lamp)
    assert bench.data == [f'11000{int(lamp)}']
    # Not 0: a dump collector on a pipe would take those too and delay the end of the process.
    resource.prlimit(driver.process.pid, resource.RLIMIT_CORE, (1, 1))
    died = time.monotonic()
    os.kill(driver.process.pid, number)
    until(lambda: len(bench.data) > 1, 'the stop')
    until(lambda: ended(driver.guardian), 'the guardian ends')
    assert [each.data for each in bench.transfers[1:]] == [f'00000{int(lamp)}']
    assert bench.transfers[-1].pid == driver.guardian.pid
    assert took(died, bench.transfers[-1].time) < STOPPED_WITHIN


def test_guardian_stops_immediately(bench, drive, took):
    times = []
    for _ in range(ROUNDS):
        driver = drive()
        died, count = time.monotonic(), len(bench.data)
        driver.process.kill()
        until(lambda count=count: len(bench.data) > count, 'the stop')
        until(lambda driver=driver: ended(driver.guardian), 'the guardian ends')
        times.append(took(died, bench.transfers[-1].time))
    print(f'stopped {[round(each * 1000) for each in times]} ms after the signal')
    assert max(times) < STOPPED_WITHIN
    # A busy machine makes some late, a slow guardian all.
    assert min(times) < SILENCE_S / 2


def test_guardian_survives_signals_to_the_drivers_group(bench, drive):
    driver = drive()
    assert os.getsid(driver.guardian.pid) == driver.guardian.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        driver.guardian.send_signal(number)
    os.killpg(driver.process.pid, signal.SIGKILL)
    until(lambda: bench.data == ['110000', '000000'], 'the stop')


def test_guardian_sends_nothing_while_the_driver_lives(bench, drive):
    driver = drive()
    before = driver.guardian.cpu_times()
    os.kill(driver.process.pid, signal.SIGSTOP)
    os.kill(driver.process.pid, signal.SIGCONT)
    driver.send('nothing')
    assert bench.data == ['110000']
    assert not ended(driver.guardian)
    after = driver.guardian.cpu_times()
    assert after.user - before.user < 0.1


def test_guardian_stops_the_arm_of_a_silent_driver(
        bench, drive, took):
    driver, times = drive(lamp=True), []
    # The device is held, as a living driver's is, and stays so.
    for _ in range(ROUNDS):
        count, begin = len(bench.data), time.monotonic()
        driver.send('beat')
        until(lambda count=count: len(bench.data) > count, 'the stop')
        last = bench.transfers[-1]
        assert (last.data, last.pid, last.fault) == ('000001', driver.guardian.pid, '')
        times.append(took(begin, last.time))
        assert last.time - begin >= SILENCE_S
    print(f'stopped {[round(each * 1000) for each in times]} ms after the last word')
    assert max(times) < STOPPED_WITHIN
    # It reads both words at once: between the two there is no silence, however late the driver is.
    count = len(bench.data)
    driver.guardian.suspend()
    driver.send('beat')
    driver.send('still')
    driver.guardian.resume()
    driver.send('goodbye')
    until(lambda: ended(driver.guardian), 'the guardian ends')
    assert len(bench.data) == count, 'no stop after a goodbye'


def test_guardian_stops_the_arm_of_a_driver_blocked_by_its_terminal(bench, drive, took):
    driver, times = drive(), []
    for number in range(ROUNDS):
        driver.send('beat')
        begin = time.monotonic()
        os.kill(driver.process.pid, signal.SIGSTOP)
        until(lambda number=number: len(bench.data) > number + 1, 'the stop')
        times.append(took(begin, bench.transfers[-1].time))
        os.kill(driver.process.pid, signal.SIGCONT)
        driver.send('nothing')
    assert bench.data == ['110000'] + ['000000'] * ROUNDS
    assert max(times) < STOPPED_WITHIN


def test_heartbeat_does_not_block_on_a_hanging_guardian(bench):
    guardian = Guardian(0, BACKEND)
    guardian.start()
    os.kill(guardian.pid, signal.SIGSTOP)
    for number in range(100_000):
        guardian.set_lamp(bool(number % 2))
    os.kill(guardian.pid, signal.SIGKILL)
    until(lambda: not guardian.alive, 'noticed')


def test_stopped_guardian_is_not_alive_and_is_replaced(bench, monkeypatch):
    # On a busy machine an answer may take more than a second.
    monkeypatch.setattr('vdl_ros.arm.driver.guardian._ANSWER_S', 15.0)
    guardian = Guardian(0, BACKEND)
    guardian.start()
    first = psutil.Process(guardian.pid)
    for _ in range(3):
        # It is not asked while motors are off.
        guardian.heartbeat(True)
        until(lambda: guardian._unanswered_at is None or not guardian.alive, 'an answer')
        assert guardian.alive
        guardian.heartbeat(False)
    first.suspend()
    assert guardian.alive
    guardian.heartbeat(True)
    until(lambda: guardian.heartbeat(True) or not guardian.alive, 'noticed', 120.0)
    guardian.start()
    assert ended(first)
    assert guardian.alive
    guardian.heartbeat(True)
    until(lambda: guardian.alive and guardian._unanswered_at is None, 'an answer')
    guardian.end(stopped=True)


def test_goodbye_ends_the_guardian_silently(bench, drive):
    driver = drive()
    driver.send('goodbye')
    until(lambda: ended(driver.guardian), 'the guardian ends')
    assert bench.data == ['110000']


def test_driver_that_could_not_stop_hands_over_to_the_guardian(bench, drive):
    driver = drive()
    driver.send('hand over')
    until(lambda: bench.data == ['110000', '000000'], 'the stop')
    assert driver.process.poll() is None


def test_guardian_retries_a_failed_stop(bench, drive):
    driver = drive()
    bench.fail('timeout')
    driver.process.kill()
    until(lambda: len(bench.data) > 2, 'two attempts')
    bench.fail('')
    until(lambda: bench.transfers[-1].fault == '', 'the stop')
    until(lambda: ended(driver.guardian), 'the guardian ends')
    assert [each.fault for each in bench.transfers].count('') == 2
    assert set(bench.data[1:]) == {'000000'}


def test_stalled_bus_does_not_end_the_attempts_to_stop():
    now, faults = [0.0], []

    def stalled():
        if now[0] < 3600.0:
            now[0] += 0.1
            raise TransferTimeoutError('stalled')
        return SimpleNamespace(send=faults.append, close=lambda: None)

    lines = []
    assert stop_arm(Motors(), stalled, lambda: now[0],
                    lambda seconds: now.__setitem__(0, now[0] + seconds), lines.append) == ''
    assert faults == [bytes(3)]
    assert now[0] < 3600.3, 'soon after the bus is back'
    assert lines == ['stalled']


def test_guardian_of_a_silent_driver_retries_a_failed_stop(bench, drive):
    driver = drive()
    bench.fail('timeout')
    driver.send('beat')
    until(lambda: len(bench.data) > 4, 'four attempts')
    bench.fail('')
    until(lambda: bench.transfers[-1].fault == '', 'the stop')
    assert {each.pid for each in bench.transfers[1:]} == {driver.guardian.pid}
    # A driver that is back commands the arm itself.
    count = len(bench.data)
    bench.fail('timeout')
    driver.send('beat')
    until(lambda: len(bench.data) > count, 'an attempt')
    driver.send('still')
    driver.send('goodbye')
    until(lambda: ended(driver.guardian), 'the guardian ends')


def test_failed_stop_in_silence_is_repeated_until_one_is_taken():
    read, write = os.pipe()
    os.write(write, b'm')
    problems, calls = ['stalled'] * 5 + ['', ''], []
    taken, deadline = threading.Event(), 30.0

    def end():
        taken.wait(deadline)
        # After a stop was taken there is no further attempt.
        threading.Event().wait(0.5)
        os.close(write)

    def silent(motors):
        calls.append(motors)
        problem = problems[len(calls) - 1]
        if not problem:
            taken.set()
        return problem

    closing = threading.Thread(target=end)
    closing.start()
    assert watch(read, silent, silence=0.05) == Motors()
    closing.join()
    os.close(read)
    assert len(calls) == 6


def test_dead_guardian_is_detected_and_replaced(bench):
    guardian = Guardian(0, BACKEND)
    assert (guardian.alive, guardian.pid) == (False, 0)
    guardian.start()
    first = guardian.pid
    guardian.set_lamp(True)
    os.kill(first, signal.SIGKILL)
    until(lambda: not guardian.alive, 'noticed')
    guardian.set_lamp(False)
    guardian.set_lamp(True)
    guardian.start()
    assert guardian.alive
    assert guardian.pid != first
    guardian.end(stopped=False)
    # The new one has the state of the lamp.
    until(lambda: bench.data == ['000001'], 'the stop')


def test_guardian_that_cannot_start_raises(bench):
    with pytest.raises(GuardianError, match='does not start'):
        Guardian(0, 'nowhere:make').start()


def test_usb_py_in_the_current_folder_does_not_replace_pyusb(bench, tmp_path, monkeypatch):
    (tmp_path / 'usb.py').write_text('raise SystemExit("shadowed")')
    monkeypatch.chdir(tmp_path)
    guardian = Guardian(0, BACKEND)
    guardian.start()
    guardian.end(stopped=True)
    assert bench.data == []


@pytest.mark.parametrize(('written', 'expected'), [
    (b'', Motors()), (b'1', Motors(lamp=True)), (b'0110', Motors()), (b'01', Motors(lamp=True)),
    (b'g', None), (b'1g', None), (b'm1s', Motors(lamp=True)), (b'mg', None)])
def test_bytes_of_the_pipe(written, expected):
    read, write = os.pipe()
    os.write(write, written)
    os.close(write)
    silences = []
    assert watch(read, silences.append) == expected
    assert silences == []
    os.close(read)


@pytest.mark.parametrize(('written', 'reported'), [
    (b'1', 0), (b'm1', 1), (b'1ms', 0), (b'1mmm', 1), (b'1sm', 1)])
def test_silence_counts_only_while_motors_may_be_on(written, reported):
    read, write = os.pipe()
    os.write(write, written)
    silences, timer = [], threading.Timer(0.3, os.close, [write])

    def silent(motors):
        if not silences:
            timer.start()
        silences.append(motors)

    if not reported:
        timer.start()
    assert watch(read, silent, silence=0.05) == Motors(lamp=True)
    assert silences == [Motors(lamp=True)] * reported
    timer.join()
    os.close(read)


def test_guardian_gives_up_if_the_arm_stays_disconnected(bench):
    now = [0.0]
    bench.fail('unplugged')
    backend = load_backend(BACKEND)
    problem = stop_arm(Motors(), lambda: UsbArm(0, backend, 0.1), clock=lambda: now[0],
                       pause=lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert problem == 'the arm is not connected'
    assert now[0] == pytest.approx(2.0, abs=0.05)

    def away():
        raise DisconnectedError('arm: disconnected')

    now[0] = 0.0
    assert stop_arm(Motors(), away, lambda: now[0],
                    lambda seconds: now.__setitem__(0, now[0] + 1)) == 'arm: disconnected'
