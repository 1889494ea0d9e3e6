"""Parameters of an arm, estimated from what was recorded while single joints moved.

The model is that of ``simulation/motor_model.py``, seen from outside: a joint does ``delay`` later
what its motor is told, and starts another ``start_delay`` later; it turns at a speed that its load
changes, less the play of its gears after a reversal, and it sags under its load. Loads are those
of the description's masses. Fitted are positions of the moving joint, once it moves steadily, and
at rest.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.calibration.calibration_file import Calibration, MeasuredJoint
from vdl_ros.arm.calibration.moves import SETTLE, Recording, Stroke
from vdl_ros.arm.driver.driver import SafetyConfig
from vdl_ros.arm.driver.usb import Signs
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.scene import Scene
from vdl_ros.arm.simulation.twins import Gravity
from vdl_ros.common.command_line import aligned
from vdl_ros.common.settings import Scalar, settings_of

Array = NDArray[np.float64]

# A joint that ended a move at least this far from where it began has no play left that way, rad.
_TAKEN_UP = 0.05
# Steady motion begins some time after this share of a move, s.
_UNDER_WAY, _SPEED_UP = 0.1, 0.3
# A rest counts as much as this many positions of a moving joint.
_REST_WEIGHT = 3.0
_ITERATIONS = 12


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value and its standard error, SI units."""

    value: float
    error: float


@dataclasses.dataclass(frozen=True)
class JointEstimate:
    """One joint.

    ``sign`` is 1 if the joint's angle increases when its motor is commanded forward, else -1.
    Speeds are without load, rad/s. ``delay`` is the time from the command off to when the joint,
    at its full speed, would have stopped, s; a start takes ``start_delay`` more. That one,
    ``dead_zone``, ``load_slowdown`` and ``sag`` are those of ``SimulationConfig``; a joint without
    load has none of the last two.
    """

    sign: int
    speed_forward: Estimate
    speed_backward: Estimate
    delay: Estimate
    start_delay: Estimate
    dead_zone: Estimate
    load_slowdown: Estimate | None
    sag: Estimate | None


def estimate(recording: Recording, scene: Scene) -> dict[str, JointEstimate]:
    """Return what the moves of ``moves.py`` show, by joint, unless it hardly moved."""
    if not recording.times:
        return {}
    data = _Data(recording, scene)
    found = {}
    for index, name in enumerate(JOINTS):
        sag = _sag(data, index)
        sign, moves = _moves(data, index, sag)
        # Each direction with a reversal and without.
        if len({(each.way, each.reversed) for each in moves}) < 4:
            continue
        found[name] = _fit(data, index, sign, sag, moves)
    return found


def lag(scene: Scene, sag: float) -> Array:
    """Return how late the twin's joints follow their gears, float64 [5], s; ``sag`` is in rad."""
    stiffness, damping = scene.gears(sag)
    return np.asarray(damping / stiffness)


class _Data:
    """Readings with their loads, as shares of ``Scene.load``, and poses at rest."""

    def __init__(self, recording: Recording, scene: Scene) -> None:
        self.scene = scene
        self.times = np.array(recording.times)
        self.positions = np.array(recording.positions)
        self.loaded = scene.load > 0.0
        self._gravity, self._scale = Gravity(scene), np.where(self.loaded, scene.load, 1.0)
        self.load = self.load_at(self.positions)
        self.strokes = [each for each in recording.strokes() if np.isfinite(
            [self.rest(each.rested, each.start)[each.joint],
             self.rest(each.end, each.next)[each.joint]]).all()]

    def rest(self, begin: float, end: float) -> Array:
        """Return the mean pose, float64 [5], between two motions; NaN where there is none."""
        which = (self.times >= begin + SETTLE) & (self.times <= end)
        if not which.any():
            return np.full(len(JOINTS), math.nan)
        return np.asarray(self.positions[which].mean(axis=0))

    def load_at(self, poses: Array) -> Array:
        """Return the loads, as shares, in poses, float64 [..., 5]; NaN: straight."""
        poses = np.where(np.isfinite(poses), poses, self.scene.geometry.upright)
        return np.asarray(np.where(self.loaded, self._gravity(poses) / self._scale, 0.0))


def _moves(data: _Data, index: int, sag: Estimate | None) -> tuple[int, list['_Move']]:
    """Return the sign of a joint, and those of its moves before which its play is known."""
    strokes = [each for each in data.strokes if each.joint == index]
    rests = [(data.rest(each.rested, each.start), data.rest(each.end, each.next))
             for each in strokes]
    gone = [stroke.command * float(after[index] - before[index])
            for stroke, (before, after) in zip(strokes, rests, strict=True)]
    sign = 1 if sum(gone) >= 0.0 else -1
    return sign, [
        _Move(data, stroke, sign * stroke.command, stroke.command != previous.command, rest,
              sag.value if sag else 0.0)
        for previous, before, stroke, own, rest in zip(
            strokes, gone, strokes[1:], gone[1:], rests[1:], strict=False)
        if min(sign * before, sign * own) >= _TAKEN_UP]


def _sag(data: _Data, index: int) -> Estimate | None:
    """Return how far a joint sags, from rests between which only other joints moved."""
    if not data.loaded[index]:
        return None
    changes = []
    for stroke in data.strokes:
        if stroke.joint == index:
            continue
        before, after = data.rest(stroke.rested, stroke.start), data.rest(stroke.end, stroke.next)
        if math.isfinite(before[index] + after[index]):
            less = data.load_at(before)[index] - data.load_at(after)[index]
            changes.append((less, after[index] - before[index]))
    if len(changes) < 3:
        return None
    less, moved = np.array(changes).T
    total = float(less @ less)
    if total < 0.01:
        return None
    value = float(less @ moved) / total
    return Estimate(value, float(np.sqrt(np.mean((moved - value * less)**2) / total)))


class _Move:
    """A stroke as the fit needs it: how far the gear went at which times."""

    def __init__(self, data: _Data, stroke: Stroke, way: int, is_reversed: bool,
                 rests: tuple[Array, Array], sag: float) -> None:
        index = stroke.joint
        self.way, self.reversed = way, is_reversed
        self.start, self.end = stroke.start, stroke.end
        before, after = rests
        begun = before[index] + sag * data.load_at(before)[index]
        #: How far the gear went in all, rad.
        self.distance = way * (after[index] + sag * data.load_at(after)[index] - begun)
        which = (data.times >= stroke.start) & (data.times <= stroke.end + SETTLE)
        times = data.times[which]
        load = data.load[which, index]
        gone = way * (data.positions[which, index] + sag * load - begun)
        steady = (gone > _UNDER_WAY * self.distance) & (times <= stroke.end)
        later = steady & (times >= times[steady].min(initial=stroke.end) + _SPEED_UP)
        # A short move may have nothing better than its second half.
        steady = later if later.sum() >= 3 else steady & (gone > 0.5 * self.distance)
        self.times, self.gone = times[steady], gone[steady]
        # The load at each time, and its integral from the start on.
        self._at = np.concatenate([[stroke.start], times])
        self._load = way * np.concatenate([[data.load_at(before)[index]], load])
        steps = np.diff(self._at) * (self._load[1:] + self._load[:-1]) / 2.0
        self._total = np.concatenate([[0.0], np.cumsum(steps)])

    def load(self, time: Array | float) -> Array:
        return np.asarray(np.interp(time, self._at, self._load))

    def total(self, time: Array | float) -> Array:
        """Return the integral of the load since the start, s."""
        return np.asarray(np.interp(time, self._at, self._total))


def _fit(
    data: _Data, index: int, sign: int, sag: Estimate | None, moves: Sequence[_Move],
) -> JointEstimate:
    """Fit the moves of a joint by Gauss and Newton's method."""
    loaded, config = bool(data.loaded[index]), SimulationConfig()
    nominal = float(data.scene.geometry.velocity[index])
    # What is seen of a load is as old as the joint lags behind its motor, about.
    late = config.time_constant + float(
        lag(data.scene, max(sag.value, 0.001) if sag else config.sag)[index])
    # Forward and backward speed, delay, delay of a start, play, slowdown.
    guess = np.array([nominal, nominal, 0.1, 0.0, 0.0, 0.0])
    fitted = np.array([True] * 5 + [loaded])
    for _ in range(_ITERATIONS):
        blocks = [_residuals(each, guess, late) for each in moves]
        jacobian = np.concatenate([each[1] for each in blocks])[:, fitted]
        residual = np.concatenate([each[0] for each in blocks])
        step = np.linalg.lstsq(jacobian, residual, rcond=None)[0]
        guess[fitted] += step
        guess[:2] = np.clip(guess[:2], 0.1 * nominal, 10.0 * nominal)
        guess[2:4] = np.clip(guess[2:4], -0.2, 2.0)
        guess[5] = np.clip(guess[5], -0.9, 0.9)
    errors = np.zeros(len(guess))
    inverse = np.linalg.pinv(jacobian.T @ jacobian)
    # Errors within a move have one cause: each move is one observation.
    spread = np.zeros_like(inverse)
    for (left, rows) in blocks:
        pull = rows[:, fitted].T @ left
        spread += np.outer(pull, pull)
    spread *= len(moves) / max(1, len(moves) - int(fitted.sum()) // 2)
    errors[fitted] = np.sqrt(np.maximum(np.diag(inverse @ spread @ inverse), 0.0))
    forward, backward, delay, start, play, slowdown = (
        Estimate(float(value), float(error)) for value, error in zip(guess, errors, strict=True))
    return JointEstimate(sign, forward, backward, delay, start, play,
                         slowdown if loaded else None, sag)


def _residuals(move: _Move, guess: Array, late: float) -> tuple[Array, Array]:
    """Return measured less modelled positions, rad, and the derivatives of the latter."""
    column = 0 if move.way > 0 else 1
    speed, delay, start, play, slowdown = guess[column], *guess[2:]
    begun, ended = move.start + delay + start, move.end + delay
    times = np.append(move.times, ended)
    passed = times - begun
    loads = move.total(times + late) - move.total(begun + late)
    turned = passed - slowdown * loads
    rows = np.zeros((len(times), len(guess)))
    rows[:, column] = turned
    rows[:, 2] = rows[:, 3] = -speed * (1.0 - slowdown * move.load(begun + late))
    rows[-1, 2] += speed * (1.0 - slowdown * move.load(ended + late))
    rows[:, 4] = -float(move.reversed)
    rows[:, 5] = -speed * loads
    residual = np.append(move.gone, move.distance) - (speed * turned - play * move.reversed)
    weight = np.append(np.ones(len(move.times)), _REST_WEIGHT)
    return residual * weight, rows * weight[:, None]


# A value counts if its standard error is at most this share of it, so that 10 % are two errors,
# or the error of its quantity below.
_SHARE = 0.05
# Title, unit and this error of each quantity.
_QUANTITIES = {
    'speed_forward': ('forward', 'rad/s', 0.0), 'speed_backward': ('backward', 'rad/s', 0.0),
    'delay': ('delay', 's', 0.004), 'start_delay': ('start', 's', 0.004),
    'dead_zone': ('play', 'rad', 0.001), 'load_slowdown': ('slowdown', 'share', 0.01),
    'sag': ('sag', 'rad', 0.0003)}
# A motor may run this many times as long as the joint's travel takes, and so many s more.
_RUN_TIME, _MORE_S = 1.25, 0.5


def _is_certain(name: str, estimate: Estimate) -> bool:
    return estimate.error <= max(_SHARE * abs(estimate.value), _QUANTITIES[name][2])


def calibration_of(
    joints: Mapping[str, JointEstimate], scene: Scene, wired: Signs, feedback: str,
) -> Calibration:
    """Return the calibration that estimates give; ``feedback``: ``truth`` or ``camera``."""
    measured: dict[str, MeasuredJoint] = {}
    driver: dict[str, Scalar] = {}
    simulation: dict[str, Scalar] = {}
    for name, each in joints.items():
        known = {quantity: _within(MeasuredJoint, quantity, value.value)
                 for quantity in _QUANTITIES
                 if (value := getattr(each, quantity)) and _is_certain(quantity, value)}
        measured[name] = MeasuredJoint(each.sign * getattr(wired, name), **known)
        driver[f'{name}_sign'] = measured[name].sign
        if {'speed_forward', 'speed_backward'} <= set(known):
            pair = known['speed_forward'], known['speed_backward']
            simulation[f'{name}_speed'] = sum(pair) / 2.0
            joint = scene.geometry.joints[name]
            driver[f'{name}_max_run_time'] = _within(
                SafetyConfig, f'{name}_max_run_time',
                _RUN_TIME * (joint.upper - joint.lower) / min(pair) + _MORE_S)
    for quantity in ('dead_zone', 'start_delay', 'load_slowdown', 'sag'):
        if (mean := _mean(measured.values(), quantity)) is not None:
            simulation[quantity] = _within(SimulationConfig, quantity, mean)
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
        for name, value in (('time_constant', constant), ('command_delay', response - constant)):
            simulation[name] = _within(SimulationConfig, name, value)


def _mean(joints: Iterable[MeasuredJoint], quantity: str) -> float | None:
    known = [value for each in joints if np.isfinite(value := getattr(each, quantity))]
    return float(np.mean(known)) if known else None


def _within(settings: type, name: str, value: float) -> float:
    """Return the allowed value of a setting that is nearest to ``value``."""
    found = settings_of(settings)[name]
    return float(np.clip(value, found.minimum, found.maximum))


def table(joints: Mapping[str, JointEstimate], wired: Signs) -> str:
    """Return the estimates with their standard errors; '?' marks those that are not used."""
    titles, units, _ = zip(*_QUANTITIES.values(), strict=True)
    rows = [['joint', 'sign', *titles], ['', '', *units]]
    for name, each in joints.items():
        row = [name, f'{each.sign * getattr(wired, name):+d}']
        for quantity in _QUANTITIES:
            value = getattr(each, quantity)
            row.append('-' if value is None else f'{value.value:.3f} ±{value.error:.3f}'
                       + '?' * (not _is_certain(quantity, value)))
        rows.append(row)
    return '\n'.join(aligned(rows))
