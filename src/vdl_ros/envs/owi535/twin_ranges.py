"""Domain randomisation of the arm's tasks: the ranges from which an episode's twin is drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.arm.twins.twin_parameters import TwinParameters

__all__ = [
    'HELD_OUT', 'INSIDE', 'NOMINAL', 'RANDOMISATIONS', 'Ranges', 'TwinRanges', 'Twins', 'uniform',
]

Array = NDArray[np.float64]
#: Intervals; a value is drawn uniformly from their union.
Ranges = tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True)
class Twins:
    """
    N twins and their sensors, one for each episode.

    ``age`` is that of the youngest measurement, float64 [N], s. ``noise`` is the standard
    deviation of angles measured by camera, float64 [N, 5], rad.
    """

    parameters: TwinParameters
    age: Array
    noise: Array

    def delayed(self, measurements: Array, commands: Array) -> Twins:
        """Return them with both delays, float64 [N], s, added."""
        parameters = dataclasses.replace(
            self.parameters, command_delay=self.parameters.command_delay + commands)
        return Twins(parameters, self.age + measurements, self.noise)


@dataclasses.dataclass(frozen=True)
class TwinRanges:
    """
    Ranges of a twin's parameters; those of the motors have the names of ``SimulationConfig``.

    ``speed`` is a multiple of the description's speed, drawn for each joint, and ``noise`` is
    drawn for each joint too.
    """

    speed: Ranges = ((0.8, 1.2),)
    dead_zone: Ranges = ((0.0, 0.05),)
    start_delay: Ranges = ((0.0, 0.05),)
    time_constant: Ranges = ((0.01, 0.06),)
    load_slowdown: Ranges = ((0.0, 0.35),)
    sag: Ranges = ((0.003, 0.02),)
    command_delay: Ranges = ((0.0, 0.1),)
    #: Of a measurement when it is used: rendering, network, topics.
    age: Ranges = ((0.0, 0.15),)
    #: Of angles tracked by camera: 0.6 to 2.3 degrees.
    noise: Ranges = ((0.01, 0.04),)

    def about(self, measured: TwinParameters) -> TwinRanges:
        """
        Return these ranges about a measured arm, of one row, instead of the described one.

        Each parameter of its motors is drawn as a share of the measured value, the share of
        ``speed``; those of the sensor stay as they are. Draw with its ``speed``.
        """
        motors: dict[str, Any] = {}
        for field in dataclasses.fields(TwinParameters)[1:]:
            value = float(getattr(measured, field.name)[0])
            motors[field.name] = tuple((low * value, high * value) for low, high in self.speed)
        return dataclasses.replace(self, **motors)

    def draw(
        self, random: np.random.Generator, geometry: ArmGeometry, count: int,
        speed: Array | None = None,
    ) -> Twins:
        """
        Return ``count`` random twins.

        ``speed`` is that of each joint, float64 [5], rad/s; by default the description's.
        """
        speed = geometry.velocity if speed is None else speed
        joints = (count, len(JOINTS))
        parameters = TwinParameters(
            speed=speed * uniform(random, self.speed, joints),
            **{field.name: uniform(random, getattr(self, field.name), (count,))
               for field in dataclasses.fields(TwinParameters)[1:]})
        return Twins(parameters, uniform(random, self.age, (count,)),
                     uniform(random, self.noise, joints))


def uniform(random: np.random.Generator, ranges: Ranges, shape: tuple[int, ...]) -> Array:
    """Return values uniformly distributed over the union of ``ranges``."""
    lengths = np.array([high - low for low, high in ranges])
    along = random.uniform(0.0, lengths.sum(), shape)
    result = np.full(shape, ranges[0][0]) + along
    for before, after in zip(np.cumsum(lengths)[:-1], ranges[1:], strict=True):
        result = np.where(along > before, after[0] + along - before, result)
    return result


def _nominal() -> TwinRanges:
    """Return the arm of the description and of the default settings, measured at once."""
    config = SimulationConfig()
    fields = {field.name for field in dataclasses.fields(TwinParameters)} - {'speed'}
    motors: dict[str, Any] = {
        name: ((getattr(config, name), getattr(config, name)),) for name in fields}
    return TwinRanges(
        speed=((1.0, 1.0),), age=((0.0, 0.0),), noise=((0.0, 0.0),), **motors)


#: What a policy is trained on.
INSIDE = TwinRanges()
#: Twins of which every parameter lies outside of ``INSIDE``.
HELD_OUT = TwinRanges(
    speed=((0.65, 0.8), (1.2, 1.35)), dead_zone=((0.05, 0.08),), start_delay=((0.05, 0.08),),
    time_constant=((0.06, 0.1),), load_slowdown=((0.35, 0.5),), sag=((0.02, 0.03),),
    command_delay=((0.1, 0.2),), age=((0.15, 0.25),), noise=((0.04, 0.06),))
NOMINAL = _nominal()
#: By the value of an environment's argument ``randomisation``.
RANDOMISATIONS = {'inside': INSIDE, 'held_out': HELD_OUT, 'none': NOMINAL}
