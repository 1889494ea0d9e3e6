"""The arm as users of LeRobot know robots: connect, observe, act, disconnect; no ROS.

:class:`OWI535` is the arm on USB, :class:`SimulatedOWI535` its twin; the rest is the same. Both
have the driver's safety: all motors off after ``disconnect``, at the end of a ``with`` block, and
``command_timeout`` after the last action; of the USB arm also when this process ends or hangs, by
the guardian.
"""

import atexit
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from vdl_ros.arm.driver.driver import ArmDriver, Link, SafetyConfig, UsbConfig
from vdl_ros.arm.driver.guardian import Guard, Guardian
from vdl_ros.arm.driver.sleep_inhibitor import SleepInhibitor
from vdl_ros.arm.driver.usb import Signs, UsbPort, load_backend
from vdl_ros.arm.joints import JOINTS, MotorError, Motors
from vdl_ros.arm.simulation.simulation import ArmSimulation, Pacer, SimulatedLink
from vdl_ros.common.consent import time_since_boot
from vdl_ros.common.quoting import quoted

R = TypeVar('R', bound='Robot')

# Period of watchdog, run times and heartbeats, and longest step of the twin, s.
_TICK_S = 0.01
_LAMP = 'lamp'
_MOTORS = {f'{name}.motor': name for name in JOINTS}
_log = logging.getLogger(__name__)


class RobotError(ConnectionError):
    """The arm is not connected, or has failed; the message is one line."""


class Robot(ABC):
    """An arm; its methods may be called from any thread.

    An observation has ``base.pos`` to ``gripper.pos``, measured, rad, NaN for a joint that is not
    measured; and ``base.motor`` to ``gripper.motor``, -1 backward, 0 off or 1 forward, and
    ``lamp``, 0 or 1, as they were last sent. An action has the latter: a motor that it does not
    name is switched off, and a lamp that it does not name stays as it is.
    """

    name = 'owi535'

    def __init__(
        self, safety: SafetyConfig | None, signs: Signs, link: Callable[[], Link], guard: Guard,
        clock: Callable[[], float] = time_since_boot,
    ) -> None:
        self._driver = ArmDriver(
            safety or SafetyConfig(), signs, link, guard, sent=lambda motors: None,
            notice=self._notice, clock=clock)
        self._lock = threading.RLock()
        # Whether time passes between calls, so that a thread has to follow it.
        self._has_own_time = True
        self._connected = self._sending = False
        self._ending = threading.Event()
        self._failure: Exception | None = None

    @property
    def observation_features(self) -> dict[str, type]:
        return {f'{name}.pos': float for name in JOINTS} | self.action_features

    @property
    def action_features(self) -> dict[str, type]:
        return {**dict.fromkeys(_MOTORS, float), _LAMP: float}

    @property
    def is_connected(self) -> bool:
        return self._connected

    def connect(self) -> None:
        """Open the arm, all motors off; or RobotError, ArmUsbError, GuardianError."""
        with self._lock:
            if self._connected:
                raise RobotError(f'{self.name}: already connected')
            self._driver.open()
            self._driver.activate()
            self._ending = threading.Event()
            self._connected, self._failure = True, None
            # A script that ends without disconnect().
            atexit.register(self.disconnect)
            if self._has_own_time:
                # Nothing waits for its end: a signal handler may interrupt who has the lock.
                threading.Thread(target=self._run, args=(self._ending,), name=self.name,
                                 daemon=True).start()

    def disconnect(self) -> None:
        """Switch all motors off and release the arm; it may be disconnected already."""
        with self._lock:
            if not self._connected:
                return
            self._connected = False
            self._ending.set()
            if self._sending:
                # The action that a signal handler interrupts may send motion yet; it closes.
                self._driver.deactivate()
            else:
                self._close()

    def _close(self) -> None:
        atexit.unregister(self.disconnect)
        if not self._driver.close():
            _log.error('%s: the device did not accept the stop: left to the guardian', self.name)

    def __enter__(self: R) -> R:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def get_observation(self) -> dict[str, float]:
        """Return the latest observation; RobotError: not connected, or it has failed."""
        with self._lock:
            self._check()
            sent = self._sent()
        return {f'{name}.pos': float(value) for name, value in zip(
            JOINTS, np.asarray(self._positions(), np.float64), strict=True)} | sent

    def send_action(self, action: Mapping[str, float]) -> dict[str, float]:
        """Run the motors like this until the next action, for ``command_timeout`` at most.

        Return the action as it was sent: a motor that has reached its run time limit is off.
        After a ValueError, for a name or value that is not allowed, all motors are off.
        """
        with self._lock:
            self._check()
            try:
                self._sending = True
                self._driver.command(self._motors(action))
            except ValueError as error:
                self._driver.refuse(str(error))
                raise
            finally:
                self._sending = False
                if not self._connected:
                    self._close()
            self._check()
            return self._sent()

    def wait(self, seconds: float) -> None:
        """Let ``seconds`` of the arm's time pass."""
        time.sleep(seconds)

    @abstractmethod
    def _positions(self) -> ArrayLike: ...

    def _follow(self) -> None:
        self._driver.tick()

    def _run(self, ending: threading.Event) -> None:
        while not ending.wait(_TICK_S):
            try:
                with self._lock:
                    if not ending.is_set():
                        self._follow()
            except Exception as error:
                # A mistake in the program: nobody would see it in this thread.
                with self._lock:
                    self._failure = error
                    self._driver.close()
                return

    def _check(self) -> None:
        if not self._connected:
            raise RobotError(f'{self.name}: not connected: call connect() first')
        if self._failure is not None:
            raise RobotError(f'{self.name}: motors off: {self._failure}') from self._failure
        if self._driver.fault:
            raise RobotError(f'{self.name}: motors off: {self._driver.fault}')

    def _motors(self, action: Mapping[str, float]) -> Motors:
        for name in action:
            if name not in _MOTORS and name != _LAMP:
                raise MotorError(
                    f'{quoted(name)}: not in an action: {", ".join(_MOTORS)}, {_LAMP}')
        sent = self._driver.sent
        lamp = action.get(_LAMP, sent is not None and sent.lamp)
        if lamp not in (0, 1):
            raise MotorError(f'lamp: {quoted(lamp, 40)} is not allowed: 0 or 1')
        values: list[Any] = [action.get(name, 0) for name in _MOTORS]
        return Motors.of(values, lamp=bool(lamp))

    def _sent(self) -> dict[str, float]:
        """Return the command that the device follows; NaN if it is not known."""
        sent = self._driver.sent
        if sent is None:
            return dict.fromkeys((*_MOTORS, _LAMP), math.nan)
        return dict(zip((*_MOTORS, _LAMP), map(float, (*sent.values, sent.lamp)), strict=True))

    def _notice(self, level: str, text: str) -> None:
        getattr(_log, level)('%s: %s', self.name, text)


class OWI535(Robot):
    """The arm on USB; a disconnected cable is an error until the arm is found again.

    Args:
        positions: returns the measured positions of the joints, float64 [5], rad, NaN for
            those that are not measured, for example from a camera; the arm has no sensors.
    """

    def __init__(
        self, usb: UsbConfig | None = None, safety: SafetyConfig | None = None,
        positions: Callable[[], ArrayLike] | None = None,
    ) -> None:
        usb = usb or UsbConfig()
        self._port = port = UsbPort(
            usb.usb_product, load_backend(usb.usb_backend), usb.usb_timeout, usb.usb_port)
        super().__init__(
            safety, usb.signs, port.open,
            Guardian(usb.usb_product, usb.usb_backend, usb.usb_timeout, lambda: port.name))
        self._measure = positions
        self._inhibitor = SleepInhibitor()

    def connect(self) -> None:
        if not self._connected:
            self._port.release()
        super().connect()
        problem = self._inhibitor.start()
        if problem:
            _log.warning(problem)

    def disconnect(self) -> None:
        super().disconnect()
        self._inhibitor.end()

    def _positions(self) -> ArrayLike:
        return np.full(len(JOINTS), math.nan) if self._measure is None else self._measure()


class SimulatedOWI535(Robot):
    """The twin; ``simulation`` is public, to place it or to add objects before ``connect``.

    Args:
        simulation: the twin; by default one that stands straight up.
        real_time: whether it follows the wall clock, in a thread; if not, its time passes
            only in ``wait``, as fast as it can be computed.
    """

    name = 'simulated_owi535'

    def __init__(
        self, simulation: ArmSimulation | None = None, safety: SafetyConfig | None = None,
        *, real_time: bool = True,
    ) -> None:
        self.simulation = simulation or ArmSimulation()
        signs = Signs()
        super().__init__(
            safety, signs, lambda: SimulatedLink(self.simulation, signs), Guard(),
            clock=lambda: self.simulation.time)
        self._has_own_time = real_time
        self._pacer = Pacer()

    def connect(self) -> None:
        self._pacer.sync(time.monotonic(), self.simulation.requested_time)
        super().connect()

    def wait(self, seconds: float) -> None:
        if self._has_own_time:
            super().wait(seconds)
            return
        with self._lock:
            self._advance(seconds)

    def _positions(self) -> ArrayLike:
        with self._lock:
            return self.simulation.joint_positions

    def _follow(self) -> None:
        self._advance(self._pacer.due(time.monotonic(), self.simulation.requested_time))

    def _advance(self, seconds: float) -> None:
        """Simulate ``seconds`` and tick the driver on the way."""
        end = self.simulation.requested_time + seconds
        while (left := end - self.simulation.requested_time) > 1e-9:
            self.simulation.step(min(_TICK_S, left))
            self._driver.tick()
