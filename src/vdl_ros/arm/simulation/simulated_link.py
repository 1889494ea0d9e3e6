"""The twin behind the driver's link: takes the three bytes that the USB device would take."""

from __future__ import annotations

from vdl_ros.arm.driver.protocol import Signs, decode
from vdl_ros.arm.simulation.simulation import ArmSimulation

__all__ = ['NullWatchdog', 'SimulatedLink']


class SimulatedLink:
    """The driver's ``Link`` to a simulated arm."""

    def __init__(self, simulation: ArmSimulation, signs: Signs) -> None:
        """Command ``simulation``, wired as ``signs`` say."""
        self._simulation, self._signs = simulation, signs

    def send(self, packet: bytes) -> None:
        """
        Let the simulated arm do what a command says, 3 bytes.

        Raises:
            ValueError: the bytes say nothing.
        """
        self._simulation.command(decode(packet, self._signs))

    def close(self) -> None:
        """Leave the arm as it is, as the device does."""


class NullWatchdog:
    """The driver's ``Guard`` for an arm that dies with its driver."""

    alive = True

    def start(self) -> None:
        """Do nothing."""

    def lamp(self, lit: bool) -> None:
        """Do nothing."""

    def beat(self, moving: bool) -> None:
        """Do nothing."""

    def end(self, *, stopped: bool) -> None:
        """Do nothing."""
