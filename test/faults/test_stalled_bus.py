"""A USB bus that stalls while the driver is killed: the stop is taken once it is back."""

import contextlib
import subprocess
import sys
import time

import fake_owi535 as fake
import psutil
import pytest
from processes import has_ended, until

OFF = '000000'
# From the return of the bus to motors off, at the most, s.
TAKEN_WITHIN = 0.3
TRIALS = 40
SHORTEST_S, LONGEST_S = 0.05, 10.0
# The transfers at which the bus begins to stall: the first that moves, those that repeat it, and
# the stop of the guardian (0), as the driver is killed before.
FIRSTS = (1, 2, 3, 4, 0)

# The driver without its node, whose start takes seconds.
DRIVER = '''
import time
from vdl_ros.arm.driver.driver import ArmDriver
from vdl_ros.arm.driver.driver import SafetyConfig, UsbConfig
from vdl_ros.arm.driver.guardian import Guardian
from vdl_ros.arm.driver.usb import UsbArm, load_backend
from vdl_ros.arm.joints import Motors
backend = load_backend('fake_owi535:make')
guardian = Guardian(0, 'fake_owi535:make')
driver = ArmDriver(SafetyConfig(), UsbConfig().signs, lambda: UsbArm(0, backend),
                   guardian, sent=lambda motors: None, notice=lambda kind, text: None)
driver.open()
driver.activate()
print(guardian.pid, flush=True)
while True:
    driver.command(Motors(base=1))
    driver.tick()
    time.sleep(0.02)
'''


@contextlib.contextmanager
def driving():
    """Yield a driver that moves the arm, and its guardian; both end with the block."""
    process = subprocess.Popen([sys.executable, '-c', DRIVER], stdout=subprocess.PIPE, text=True,
                               start_new_session=True)
    guardian = None
    try:
        guardian = psutil.Process(int(process.stdout.readline()))
        yield process, guardian
    finally:
        process.kill()
        process.communicate()
        if guardian is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                guardian.kill()


@pytest.mark.process
@pytest.mark.fault_row(
    'USB stalls of 0.05 to 10 s at each transfer while the driver is killed',
    'the stop is taken within 0.3 s after the bus returns', reduced=10, full=TRIALS)
def test_the_stop_is_taken_soon_after_the_bus_returns(trials, took, monkeypatch):
    def stall(index, rng):
        length = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** (index / (TRIALS - 1))
        with fake.plugged_in() as bench:
            for name, value in bench.env.items():
                monkeypatch.setenv(name, value)
            # The bus may stall before the driver has said who its guardian is.
            first = FIRSTS[index % len(FIRSTS)]
            if first:
                bench.stall(first)
            with driving() as (driver, guardian):
                return killed(bench, driver, guardian, first, length, rng)

    def killed(bench, driver, guardian, first, length, rng):
        if first:
            until(lambda: bench.stalled, 'the stall')
            began = time.monotonic()
            killed_at = began + rng.uniform(0.0, length)
            until(lambda: time.monotonic() >= killed_at, 'the time')
            driver.kill()
        else:
            until(lambda: OFF not in bench.data[-2:], 'the arm moves')
            bench.stall(len(bench.data))
            driver.kill()
            until(lambda: bench.stalled, 'the stall')
            began = time.monotonic()
        until(lambda: time.monotonic() >= began + length, 'the return of the bus')
        back = time.monotonic()
        bench.fail('')
        until(lambda: has_ended(guardian.pid), 'the end of the guardian')
        assert not [each for each in bench.transfers if not each.fault and each.time > back
                    and each.data != OFF], 'motors on again'
        taken = next((each for each in bench.transfers if not each.fault and each.time > back
                      and each.data == OFF and each.pid == guardian.pid), None)
        assert taken is not None, 'no stop was taken'
        time_s = took(back, taken.time)
        assert time_s <= TAKEN_WITHIN, f'{time_s:.2f} s after the bus was back'
        return {'after the return (s)': time_s}

    trials.run(stall)
