"""Parameters of many simulated arms: what ``SimulationConfig`` states of one, as arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.simulation_config import SimulationConfig

__all__ = ['TwinParameters']

Array = NDArray[np.float64]


@dataclasses.dataclass(eq=False)
class TwinParameters:
    """
    Parameters of B arms; names and units are those of ``SimulationConfig``.

    ``speed`` is float64 [B, 5], rad/s, without load; all others are float64 [B].
    """

    speed: Array
    dead_zone: Array
    start_delay: Array
    time_constant: Array
    load_slowdown: Array
    sag: Array
    command_delay: Array

    @classmethod
    def of(
        cls, geometry: ArmGeometry, count: int, config: SimulationConfig | None = None,
    ) -> TwinParameters:
        """Return the parameters of ``count`` equal arms, without ``speed_variation``."""
        config = config or SimulationConfig()
        given = np.array([getattr(config, f'{name}_speed') for name in JOINTS])
        speed = np.where(given > 0.0, given, geometry.velocity)
        return cls(np.tile(speed, (count, 1)), **{
            field.name: np.full(count, getattr(config, field.name))
            for field in dataclasses.fields(cls)[1:]})

    def config(self, arm: int) -> SimulationConfig:
        """Return the settings of one arm, for ``ArmSimulation``."""
        values = {f'{name}_speed': float(speed)
                  for name, speed in zip(JOINTS, self.speed[arm], strict=True)}
        values |= {field.name: float(getattr(self, field.name)[arm])
                   for field in dataclasses.fields(self)[1:]}
        return SimulationConfig(speed_variation=0.0, **values)

    def replace(self, rows: NDArray[np.intp], others: TwinParameters) -> None:
        """Give the arms ``rows``, int [N], the parameters of ``others``, N arms."""
        for field in dataclasses.fields(self):
            getattr(self, field.name)[rows] = getattr(others, field.name)
