"""The guardian as a process: it stops the arm of a dead or hanging driver, and nothing else."""

import os
import resource
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import fake_owi535 as fake
import psutil
import pytest
from processes import has_ended, until

from vdl_ros.arm.driver import guardian as module
from vdl_ros.arm.driver.guardian import SILENCE_S, Guardian, GuardianError, stop_arm, watch
from vdl_ros.arm.driver.usb import (
    ArmUsbError,
    DisconnectedError,
    UsbArm,
    UsbPort,
    load_backend,
)
from vdl_ros.arm.joints import Motors
from vdl_ros.common.children import MARK, end_marked

BACKEND = 'fake_owi535:make'

# A driver that moves the arm and waits; each line of input is an action.
# Of this process: the tests of another one end what has theirs.
LAUNCH = f'launch {os.getpid()}'
DRIVER = '''
import sys
from vdl_ros.arm.driver.guardian import SILENCE_S, Guardian
from vdl_ros.arm.driver.usb import UsbArm, load_backend
from vdl_ros.common.children import take_mark
take_mark()
arm = UsbArm(0, load_backend('fake_owi535:make'))
guardian = Guardian(0, 'fake_owi535:make')
guardian.start(wait=True)
guardian.heartbeat(0.0)
guardian.set_lamp(True)
arm.send(bytes([0x11, 0, 1]))
print(guardian.pid, flush=True)
for line in sys.stdin:
    if line == 'beat\\n':
        guardian.heartbeat(SILENCE_S)
    if line == 'goodbye\\n':
        arm.close()
        guardian.end(stopped=True)
    print('done', flush=True)
'''


@pytest.fixture
def driver(bench):
    """Return the process above, with its guardian."""
    process = subprocess.Popen(
        [sys.executable, '-c', DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {MARK: LAUNCH}, start_new_session=True)
    guardian = psutil.Process(int(process.stdout.readline()))

    def send(line):
        process.stdin.write(f'{line}\n')
        process.stdin.flush()
        assert process.stdout.readline() == 'done\n'

    assert bench.data == ['110001']
    yield SimpleNamespace(process=process, guardian=guardian, send=send)
    process.kill()
    process.communicate()
    until(lambda: has_ended(guardian.pid), 'the guardian ends')


@pytest.mark.process
@pytest.mark.parametrize('number', [
    signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow)
                      for each in (signal.SIGSEGV, signal.SIGTERM))])
def test_guardian_stops_the_arm_of_a_dead_driver(bench, driver, number):
    # What ends the driver's group does not end the guardian, which sends nothing while it lives.
    assert os.getsid(driver.guardian.pid) == driver.guardian.pid
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        driver.guardian.send_signal(each)
    driver.send('nothing')
    assert bench.data == ['110001']
    # Not 0: a dump collector on a pipe would take those too and delay the end of the process.
    resource.prlimit(driver.process.pid, resource.RLIMIT_CORE, (1, 1))
    if number == signal.SIGKILL:
        # As a launch ends what a killed actor has left.
        assert len(end_marked(LAUNCH)) == 1
    else:
        os.killpg(driver.process.pid, number)
    until(lambda: len(bench.data) > 1, 'the stop')
    until(lambda: has_ended(driver.guardian.pid), 'the guardian ends')
    assert [each.data for each in bench.transfers[1:]] == ['000001']
    assert bench.transfers[-1].pid == driver.guardian.pid


@pytest.mark.process
def test_guardian_stops_the_arm_of_a_stopped_driver_and_repeats_a_failed_stop(bench, driver):
    begin = time.monotonic()
    driver.send('beat')
    os.kill(driver.process.pid, signal.SIGSTOP)
    # The device is held, as a living driver's is, and stays so.
    until(lambda: len(bench.data) > 1, 'the stop')
    last = bench.transfers[-1]
    assert (last.data, last.pid, last.fault) == ('000001', driver.guardian.pid, '')
    assert last.time - begin >= SILENCE_S
    os.kill(driver.process.pid, signal.SIGCONT)
    driver.send('nothing')
    bench.fail('timeout')
    driver.send('beat')
    until(lambda: len(bench.data) > 5, 'four attempts')
    bench.fail('')
    until(lambda: bench.transfers[-1].fault == '', 'the stop')
    assert {(each.data, each.pid) for each in bench.transfers[1:]} == {
        ('000001', driver.guardian.pid)}
    count = len(bench.data)
    driver.send('goodbye')
    until(lambda: has_ended(driver.guardian.pid), 'the guardian ends')
    assert len(bench.data) == count, 'no stop after a goodbye'


@pytest.mark.process
def test_hanging_or_dead_guardian_is_noticed_and_replaced(bench, tmp_path, monkeypatch):
    # What is in the current folder does not replace pyusb.
    (tmp_path / 'usb.py').write_text('raise SystemExit("shadowed")')
    monkeypatch.chdir(tmp_path)
    # On a busy machine an answer may take more than a second.
    monkeypatch.setattr(module, '_ANSWER_S', 120.0)
    # Another arm is listed first.
    other = fake.Bench(tmp_path)
    other.plug_into(2)
    monkeypatch.setenv(fake.VARIABLE, f'{tmp_path}:{bench.folder}')
    guardian = Guardian(0, BACKEND, port=lambda: '1-1')
    assert (guardian.alive, guardian.pid) == (False, 0)
    guardian.start(wait=True)
    first = psutil.Process(guardian.pid)
    for _ in range(3):
        # It is not asked while motors are off.
        guardian.heartbeat(SILENCE_S)
        until(lambda: guardian.alive and guardian._unanswered_at is None, 'an answer')
        guardian.heartbeat(0.0)
    first.suspend()
    assert guardian.alive
    for number in range(100_000):
        guardian.set_lamp(bool(number % 2))  # which does not block
    guardian.heartbeat(SILENCE_S)
    assert guardian.alive
    monkeypatch.setattr(module, '_ANSWER_S', 0.0)
    assert not guardian.alive
    # Who starts the other one does not wait for it, and may ask again meanwhile.
    pids = [first.pid]
    for _ in range(2):
        with pytest.raises(GuardianError, match='started again'):
            guardian.start()
        pids.append(guardian.pid)
    until(lambda: has_ended(first.pid), 'the end of the first one')
    monkeypatch.setattr(module, '_ANSWER_S', 120.0)
    until(lambda: guardian.alive, 'the start')
    assert first.pid != pids[1] == pids[2]
    guardian.heartbeat(SILENCE_S)
    until(lambda: guardian.alive and guardian._unanswered_at is None, 'an answer')
    os.kill(guardian.pid, signal.SIGKILL)
    until(lambda: not guardian.alive, 'noticed')
    guardian.set_lamp(False)
    guardian.set_lamp(True)
    guardian.start(wait=True)
    assert guardian.alive
    assert guardian.pid not in pids
    # Of a driver that could not stop: it hands over, to one that lives. The new one has the state
    # of the lamp.
    pids.append(guardian.pid)
    psutil.Process(guardian.pid).suspend()
    monkeypatch.setattr(module, '_ANSWER_S', 0.5)
    with pytest.raises(GuardianError, match='started again'):
        guardian.end(stopped=False)
    until(lambda: {each.pid for each in bench.transfers} - {*pids}, 'the stop')
    assert bench.data[-1] == '000001'
    assert other.data == []


@pytest.mark.process
def test_guardian_that_cannot_start_raises(bench):
    with pytest.raises(GuardianError, match='does not start'):
        Guardian(0, 'nowhere:make').start(wait=True)


@pytest.mark.process
@pytest.mark.parametrize('closed', [1, 2])
def test_guardian_stops_the_arm_whoever_reads_its_output(bench, closed):
    # Its driver was killed while it started; it said nothing and was not heard.
    bench.fail('timeout')
    read, write = os.pipe()
    if closed == 1:
        os.close(read)
    words = [sys.executable, '-m', 'vdl_ros.arm.driver.guardian', '--product=0',
             f'--backend={BACKEND}', '--port=1-1']
    guardian = subprocess.Popen(['sh', '-c', 'exec "$@"' + ' 2>&-' * (closed == 2), 'sh', *words],
                                stdin=subprocess.PIPE, stdout=write)
    os.close(write)
    until(lambda: len(bench.data) > 2, 'attempts')
    guardian.stdin.close()
    bench.fail('')
    assert guardian.wait() == 0
    assert (bench.data[-1], bench.transfers[-1].fault) == ('000000', '')
    if closed == 2:
        os.close(read)


def test_an_error_of_the_guardian_itself_ends_in_a_stop(bench, monkeypatch):
    def broken(*_, **__):
        raise MemoryError

    monkeypatch.setattr(signal, 'signal', lambda *_: None)
    monkeypatch.setattr(module, 'watch', broken)
    assert module.main(['--product=0', f'--backend={BACKEND}', '--port=1-1']) == 0
    assert bench.data == ['000000']


@pytest.fixture
def watched(monkeypatch):
    """Return a function that returns what ``watch`` does with words, in virtual time.

    Words are those of the pipe, a heartbeat the time until which motors may be on. The function
    returns what ``watch`` returns and when it sends which stop until ``problems`` end, where the
    driver ends. The process stands still from 0.01 s on for ``standstill``, s.
    """
    look = module.select.select

    def watched(words, problems=('',), *, standstill=0.0, begin=0.0):
        read, write = os.pipe()
        os.write(write, b''.join(
            module.WORD.pack(b'm', each) if isinstance(each, float)
            else module.WORD.pack(each.encode(), 0.0) for each in words))
        stops, left, now = [], [write], [begin]

        def wait(descriptors, _, __, seconds):
            found = look(descriptors, [], [], 0.0)
            if found[0]:
                return found
            if seconds is None:
                os.close(left.pop())
                return look(descriptors, [], [])
            # As the kernel's, which goes on with the rest of its time.
            stands_still = standstill and now[0] <= begin + 0.01 < now[0] + seconds
            now[0] += seconds + (standstill if stands_still else 0.0)
            return found

        def silent(motors):
            stops.append((pytest.approx(now[0]), motors))
            if len(stops) == len(problems):
                os.close(left.pop())
            return problems[len(stops) - 1]

        with monkeypatch.context() as patch:
            patch.setattr(module.select, 'select', wait)
            found = watch(read, silent, clock=lambda: now[0])
        for each in (read, *left):
            os.close(each)
        return found, stops
    return watched


def test_silence_counts_only_while_motors_may_be_on(watched):
    # Who has said nothing yet, or only of the lamp, may have been killed while motors were on.
    off, lit = Motors(), Motors(lamp=True)
    for words, command, stops in (
            ('', off, [(0.4, off)]), ('0110', off, [(0.4, off)]), ('s', off, []), ('1s', lit, []),
            ((0.05, '1'), lit, [(0.05, lit)]), (('1', 0.05, 's'), lit, []),
            (('1', 0.4, 0.05, 0.4), lit, [(0.4, lit)]), ((0.4, 0.05), off, [(0.05, off)]),
            ((0.05, 'g'), None, [])):
        assert watched(words) == (command, stops), words


def test_time_in_which_the_guardian_stood_still_counts_as_silence(watched):
    # Also the time that a heartbeat waited in the pipe, unless a newer one waits behind it.
    off = Motors()
    assert watched([3.3], begin=6.0) == (off, [(6.0, off)])
    assert watched([3.3, 6.3], begin=6.0) == (off, [(6.3, off)])
    (at, _), = watched([0.4], standstill=3.0)[1]
    assert at.expected <= 3.01 + 0.02, 'a moment after it goes on'


def test_a_stop_in_silence_is_repeated_sooner_if_it_failed(watched):
    # A transfer of the driver may come after a stop: it stood still within it.
    times = (0.4, 0.41, 0.43, 0.47, 0.55, 0.65, 1.05, 1.45)
    assert watched([0.4], ['stalled'] * 5 + [''] * 3) == (
        Motors(), [(each, Motors()) for each in times])


def stop(connect, log=lambda text: None, step=0.0):
    """Return what ``stop_arm`` returns and the time that it took, s; a pause takes ``step``."""
    now = [0.0]
    return stop_arm(
        Motors(), lambda: connect(now), lambda: now[0],
        lambda seconds: now.__setitem__(0, now[0] + (step or seconds)), log), now[0]


def test_stalled_bus_does_not_end_the_attempts_to_stop():
    taken, lines = [], []

    def stalled(now):
        if now[0] < 3600.0:
            now[0] += 0.1
            raise ArmUsbError('stalled') if now[0] < 1800.0 else RuntimeError('a mistake')
        return SimpleNamespace(send=taken.append, close=lambda: None)

    problem, duration = stop(stalled, lines.append)
    assert (problem, taken, lines) == ('', [bytes(3)], ['stalled'])
    assert duration < 3600.3, 'soon after the bus is back'


def test_guardian_gives_up_if_the_arm_stays_disconnected(bench):
    bench.fail('unplugged')
    backend = load_backend(BACKEND)
    problem, duration = stop(lambda now: UsbArm(0, backend))
    assert problem == 'the arm is not connected'
    assert duration == pytest.approx(2.0, abs=0.05)

    def away(now):
        raise DisconnectedError('arm: disconnected')

    assert stop(away, step=1.0)[0] == 'arm: disconnected'


def test_an_arm_at_another_port_is_stopped_as_soon_as_its_bus_is_back(bench):
    bench.plug_into(2)
    bench.fail('timeout')
    port = UsbPort(0, load_backend(BACKEND), '1-1', held=True)

    def connect(now):
        if now[0] > 600.0:
            bench.fail('')
        return port.open(share=True)

    problem, duration = stop(connect, step=10.0)
    assert (bench.data[-1], bench.transfers[-1].fault) == ('000000', '')
    # Then it waits for its own.
    assert (problem, duration) == ('the arm is not connected', 620.0)
