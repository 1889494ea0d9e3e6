"""From estimates to a calibration: what is certain enough, and the settings that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from vdl_ros.arm.calibration.calibration_file import Calibration, MeasuredJoint
from vdl_ros.arm.calibration.estimation import Estimate, JointEstimate, lag
from vdl_ros.arm.driver.driver_config import SafetyConfig
from vdl_ros.arm.driver.protocol import Signs
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.scene import Scene
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.common.settings import Scalar, settings_of

__all__ = ['calibration_of', 'is_certain', 'table']

#: A value counts if its standard error is at most this share of it, so that 10 % are two errors,
#: or this much, SI units.
SHARE = 0.05
FLOORS = {'speed_forward': 0.0, 'speed_backward': 0.0, 'delay': 0.004, 'start_delay': 0.004,
          'dead_zone': 0.001, 'load_slowdown': 0.01, 'sag': 0.0003}
#: A motor may run this many times as long as the joint's travel takes, and so many s more.
RUN_TIME, MORE_S = 1.25, 0.5
_COLUMNS = (('forward', 'speed_forward', 'rad/s'), ('backward', 'speed_backward', 'rad/s'),
            ('delay', 'delay', 's'), ('start', 'start_delay', 's'),
            ('play', 'dead_zone', 'rad'), ('slowdown', 'load_slowdown', 'share'),
            ('sag', 'sag', 'rad'))


def is_certain(name: str, estimate: Estimate | None) -> bool:
    """Return whether an estimate of the quantity ``name`` is good enough to be used."""
    return estimate is not None and estimate.error <= max(
        SHARE * abs(estimate.value), FLOORS[name])


def calibration_of(
    joints: Mapping[str, JointEstimate], scene: Scene, wired: Signs, feedback: str,
) -> Calibration:
    """
    Return the calibration that estimates give.

    Args:
        joints: estimates by joint.
        scene: the arm's description.
        wired: the signs that the driver used.
        feedback: what measured the joints, ``truth`` or ``camera``.
    """
    measured: dict[str, MeasuredJoint] = {}
    driver: dict[str, Scalar] = {}
    speeds: dict[str, float] = {}
    for name, each in joints.items():
        known = {quantity: _within(MeasuredJoint, quantity, value.value) for quantity in FLOORS
                 if (value := getattr(each, quantity)) is not None and is_certain(quantity, value)}
        measured[name] = MeasuredJoint(each.sign * getattr(wired, name), **known)
        driver[f'{name}_sign'] = measured[name].sign
        if {'speed_forward', 'speed_backward'} <= set(known):
            pair = known['speed_forward'], known['speed_backward']
            speeds[name] = sum(pair) / 2.0
            index = JOINTS.index(name)
            travel = float(scene.geometry.upper[index] - scene.geometry.lower[index])
            driver[f'{name}_max_run_time'] = _within(
                SafetyConfig, f'{name}_max_run_time', RUN_TIME * travel / min(pair) + MORE_S)
    simulation: dict[str, Scalar] = {f'{name}_speed': speed for name, speed in speeds.items()}
    for quantity in ('dead_zone', 'start_delay', 'load_slowdown', 'sag'):
        _add(simulation, quantity, _mean(measured.values(), quantity))
    _add_delay(simulation, measured, scene)
    delay = _mean(measured.values(), 'delay')
    controller: dict[str, Scalar] = {} if delay is None else {'response_time': delay}
    return Calibration(feedback, measured, driver, simulation, controller)


def _add_delay(
    simulation: dict[str, Scalar], measured: Mapping[str, MeasuredJoint], scene: Scene,
) -> None:
    """Add the parts of the twin's delay that are not those of its joints behind their gears."""
    sag = simulation.get('sag', SimulationConfig().sag)
    late = dict(zip(JOINTS, lag(scene, float(sag)), strict=True))
    parts = [max(0.0, each.delay - late[name]) for name, each in measured.items()
             if np.isfinite(each.delay)]
    if parts:
        # How much of it is a time constant is not measured.
        response = float(np.mean(parts))
        constant = min(SimulationConfig().time_constant, response)
        _add(simulation, 'time_constant', constant)
        _add(simulation, 'command_delay', response - constant)


def _mean(joints: Iterable[MeasuredJoint], quantity: str) -> float | None:
    """Return the mean of a quantity over the joints of which it is known."""
    known = [value for each in joints if np.isfinite(value := getattr(each, quantity))]
    return float(np.mean(known)) if known else None


def _add(simulation: dict[str, Scalar], name: str, value: float | None) -> None:
    """Add a setting of the twin, if it is known."""
    if value is not None:
        simulation[name] = _within(SimulationConfig, name, value)


def _within(settings: type, name: str, value: float) -> float:
    """Return the allowed value of a setting that is nearest to ``value``."""
    found = settings_of(settings)[name]
    low, high = found.minimum, found.maximum
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


def table(joints: Mapping[str, JointEstimate], wired: Signs) -> str:
    """Return the estimates with their standard errors; '?' marks those that are not used."""
    rows = [['joint', 'sign', *(title for title, _, _ in _COLUMNS)],
            ['', '', *(unit for _, _, unit in _COLUMNS)]]
    for name, each in joints.items():
        row = [name, f'{each.sign * getattr(wired, name):+d}']
        for _, quantity, _ in _COLUMNS:
            value = getattr(each, quantity)
            mark = '' if is_certain(quantity, value) else '?'
            row.append('-' if value is None else f'{value.value:.3f} ±{value.error:.3f}{mark}')
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join('  '.join(cell.ljust(width) for cell, width in zip(
        row, widths, strict=True)).rstrip() for row in rows)
