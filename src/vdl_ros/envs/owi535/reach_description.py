"""
What a checkpoint says of the task *reach*: rate, observation, twins and arm of its training.

:func:`describe` is saved with every training; :func:`check` refuses a policy that was trained on
something else than this program and this arm.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry, load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.common.quoting import quoted
from vdl_ros.envs.owi535.arm_task import ranges_and_speed
from vdl_ros.envs.owi535.reach_observation import FEATURES, IN_FLIGHT, MOTORS, RATE
from vdl_ros.envs.registration import REACH

__all__ = ['MisfitError', 'check', 'describe']

# Differences of an arm from the one of the training that are too large: of limits, rad, and of
# the places of tool0, m.
_LIMIT, _PLACE = 0.35, 0.02
# tool0 is compared with all angles at zero, and with one motor after the other turned by so much,
# rad.
_TURN = 0.5


class MisfitError(ValueError):
    """A policy that does not fit this program or this arm; the message is one line."""


def describe(
    randomisation: str = 'inside', calibration: str = '', rate: float = RATE,
) -> dict[str, Any]:
    """
    Return the description, plain values in SI units; arguments as of ``ReachTask``.

    Raises:
        EnvError: an argument that is not allowed.
    """
    geometry = load()
    twins, speed = ranges_and_speed(randomisation, calibration, geometry)
    ranges = dataclasses.asdict(twins)
    return {
        'task': REACH, 'rate': rate, 'motors': list(MOTORS),
        'actions': ['backward', 'off', 'forward'], 'commands': IN_FLIGHT,
        'features': [[*feature] for feature in FEATURES],
        'twins': {name: [[*each] for each in ranges[name]] for name in ranges},
        'arm': {'lower': geometry.lower.tolist(), 'upper': geometry.upper.tolist(),
                'velocity': speed.tolist(), 'tool0': _places(geometry).tolist()}}


def check(found: Mapping[str, Any], geometry: ArmGeometry) -> None:
    """
    Check that a policy may move an arm.

    Args:
        found: what its checkpoint says; it may come from anywhere.
        geometry: of the arm.

    Raises:
        MisfitError: names the first thing that differs, its value and the right one.
    """
    wanted = describe()
    if not found:
        raise MisfitError('the checkpoint does not describe its environment: only those of '
                          f'{REACH} do; one of an earlier version gets it when it is resumed')
    try:
        # A checkpoint may hold tensors too, whose comparison is one.
        found = json.loads(json.dumps(dict(found)))
    except (TypeError, ValueError, RecursionError):
        raise MisfitError('the description of the environment is not of plain values') from None
    for name in ('task', 'rate', 'motors', 'actions', 'commands'):
        if found.get(name) != wanted[name]:
            raise MisfitError(f'{name}: {quoted(found.get(name))} is not {wanted[name]!r}')
    _check_features(found.get('features'), wanted['features'])
    try:
        arm = {name: _array(found['arm'][name], np.shape(wanted['arm'][name]))
               for name in wanted['arm']}
        # Of a policy that learned on an arm, the speed is not known.
        speeds = None if 'robot' in found else [
            (float(low), float(high)) for low, high in found['twins']['speed']]
        if speeds is not None and not speeds:
            raise ValueError
    except (KeyError, OverflowError, TypeError, ValueError):
        raise MisfitError('arm, twins: not a description of an arm') from None
    _check_arm(arm, speeds, geometry)


def _check_features(found: object, wanted: list[list[Any]]) -> None:
    if not isinstance(found, list) or len(found) != len(wanted):
        number = len(found) if isinstance(found, list) else 0
        raise MisfitError(f'features: {number} are not {len(wanted)}')
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one != other:
            raise MisfitError(f'feature {index}: {quoted(one)} is not {other!r}')


def _check_arm(
    arm: Mapping[str, NDArray[np.float64]], speeds: list[tuple[float, float]] | None,
    geometry: ArmGeometry,
) -> None:
    """Compare the arm of the training with this one; None: its speed is not known."""
    for index, joint in enumerate(JOINTS):
        for name in ('lower', 'upper'):
            trained, here = arm[name][index], getattr(geometry, name)[index]
            if not abs(trained - here) <= _LIMIT:
                raise MisfitError(f'{joint}: its {name} limit is {here:.3f} rad, but '
                                  f'{trained:.3f} rad in the training')
        if speeds is None:
            continue
        trained, here = arm['velocity'][index], geometry.velocity[index]
        slowest = min(low for low, _ in speeds) * trained
        fastest = max(high for _, high in speeds) * trained
        if not slowest <= here <= fastest:
            raise MisfitError(f'{joint}: its speed is {here:.3f} rad/s, but {slowest:.3f} to '
                              f'{fastest:.3f} rad/s in the training')
    away = np.linalg.norm(arm['tool0'] - _places(geometry), axis=1).max()
    if not away <= _PLACE:
        raise MisfitError(f'lengths: tool0 is up to {away:.3f} m from where the arm of the '
                          f'training has it, more than {_PLACE:g} m')


def _places(geometry: ArmGeometry) -> NDArray[np.float64]:
    """Return places of tool0 that depend on the arm's lengths, float64 [5, 3], m."""
    count = len(MOTORS)
    poses = np.zeros((count + 1, len(JOINTS)))
    poses[1:, :count] = _TURN * np.eye(count)
    return Kinematics(geometry).pose(poses)[:, :3, 3]


def _array(values: object, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.shape != shape:
        raise ValueError(f'shape {array.shape}')
    return array
