"""Device of the simulated arm for the driver: accepts the three bytes of the USB protocol."""

from __future__ import annotations

from vdl_ros.arm.driver.protocol import Signs, decode
from vdl_ros.arm.simulation.simulation import ArmSimulation

__all__ = ['NullGuardian', 'SimulatedLink']


class SimulatedLink:
    """The driver's ``Link`` to a simulated arm."""

    def __init__(self, simulation: ArmSimulation, signs: Signs) -> None:
        """Send commands to ``simulation``, wired as ``signs`` describe."""
        self._simulation, self._signs = simulation, signs

    def send(self, packet: bytes) -> None:
        """
        Pass a command of 3 bytes to the simulated arm.

        Raises:
            ValueError: the bytes are no command.
        """
        self._simulation.command(decode(packet, self._signs))

    def close(self) -> None:
        """Do nothing: like the device, the arm keeps its last command."""


class NullGuardian:
    """The driver's ``Guard`` for a simulated arm, which ends with its driver."""

    alive = True

    def start(self) -> None:
        """Do nothing."""

    def set_lamp(self, lit: bool) -> None:
        """Do nothing."""

    def heartbeat(self, moving: bool) -> None:
        """Do nothing."""

    def end(self, *, stopped: bool) -> None:
        """Do nothing."""
