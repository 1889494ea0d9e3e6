"""The tasks *reach* and *pick* of the SO-101, for contracts and environments alike."""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.envs.owi535 import cube, reach
from vdl_ros.envs.owi535.arm_task import CLOSE, HOLD
from vdl_ros.envs.owi535.robot_tasks import CUBE_FEATURES, PlaceTask
from vdl_ros.envs.registration import SO101_PICK, SO101_REACH
from vdl_ros.envs.so101.twin import JOINTS, SO101Twin
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.task import Measured

Array = NDArray[np.float64]

# Distances of which a goal in an observation is 1, m: one for the way, one for its end.
_FAR, _FINE = 0.5, 0.05
# Targets of reach: poses without those that bend far backwards, rad, and their least height, m.
_LOWEST = np.array([-1.2, -1.0, -1.0, -0.8, 0.0, 0.0])
_HIGHEST = np.array([1.2, 1.0, 1.2, 1.3, 0.0, 0.0])
_HEIGHT = 0.03
# Poses whose places stand for all, and how near to one of them a person's target is, m.
_TRIED, _NEAR = 4000, 0.03


class _SO101Task(PlaceTask):
    """``close`` and ``hold`` are as of the tasks of the OWI-535."""

    #: The environment of the task, and the features that its contract needs.
    env_id: ClassVar[str]
    needed: ClassVar[tuple[str, ...]] = JOINTS[:5]

    def __init__(self, contract: Contract, close: float = CLOSE, hold: float = HOLD) -> None:
        super().__init__(contract, self.needed, close, hold)
        self._arm = SO101Twin()

    @classmethod
    def description(cls, contract: Contract) -> dict[str, Any]:
        return {'task': cls.env_id, 'rate': contract.rate,
                'features': [[each.name, each.unit, each.low, each.high]
                             for each in contract.features],
                'actions': [[each.name, each.unit, each.low, each.high]
                            for each in contract.actions.parts]}

    @classmethod
    def check_policy(cls, contract: Contract, described: Mapping[str, Any]) -> None:
        for name, wanted in cls.description(contract).items():
            if json.dumps(described.get(name), default=str) != json.dumps(wanted):
                raise ValueError(f'{name}: {quoted(described.get(name))} is not {quoted(wanted)}')

    def _tool(self, measured: Measured) -> Array:
        """Return the place between the finger tips, float64 [3], m in ``base_link``."""
        return self._arm.tool_at(np.array([measured.values.get(name, 0.0) for name in JOINTS]))


def _way(begin: Array, end: Array) -> list[float]:
    """Return a way as six numbers of an observation."""
    return [*(end - begin) / _FAR, *(end - begin) / _FINE]


_NONE = np.zeros(1, np.intp)


def _draw(arm: SO101Twin, random: np.random.Generator) -> Array:
    """Return the place of the tool in a random pose above the table, float64 [3], m."""
    while True:
        place = arm.tool_at(random.uniform(_LOWEST, _HIGHEST))
        if place[2] > _HEIGHT and not arm.collides():
            return place


@functools.cache
def _places() -> Array:
    """Return places that the tool reaches, float64 [N, 3], m."""
    arm, random = SO101Twin(), np.random.default_rng(0)
    return np.array([_draw(arm, random) for _ in range(_TRIED)])


class Reach(_SO101Task):
    """The tool reaches a random place; the reward is that of the OWI-535, without travel."""

    env_id = SO101_REACH
    goals = (*(f'tool_{axis}' for axis in 'xyz'), *(
        f'target_{axis}_{scale}' for scale in ('far', 'fine') for axis in 'xyz'))

    # Whether the target is a person's.
    _is_asked = False

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        super().begin(measured, random)
        if not self._is_asked:
            self.target = _draw(self._arm, random)

    def aim(self, place: Array, values: Mapping[str, float]) -> None:
        away = float(np.linalg.norm(_places() - place, axis=1).min())
        if away > _NEAR:
            raise ValueError(f'no pose that was tried comes nearer than {100.0 * away:.0f} cm to '
                             'the target')
        self._forget()
        self.target, self._is_asked, self.distance = place, True, math.nan

    def begin_demonstrated(self, measured: Sequence[Measured]) -> None:
        self._forget()
        self.target = self._tool(measured[-1])

    def goal(self, measured: Measured) -> list[float]:
        tool = self._tool(measured)
        return [*tool / _FAR, *_way(tool, self.target)]

    def reward(self, before: Measured, after: Measured) -> float:
        was, now = (float(np.linalg.norm(self._tool(each) - self.target))
                    for each in (before, after))
        success = self._judge(after, now)
        return float(reach.dense_reward(
            np.array([was - now]), np.zeros(1), np.array([now]), success, _NONE,
            np.zeros(1, np.bool_))[0])


class Pick(_SO101Task):
    """The gripper takes the cube and holds it at a place 3 to 8 cm above the table."""

    env_id = SO101_PICK
    needed = (*JOINTS, *CUBE_FEATURES)
    goals = (*(f'tool_{axis}' for axis in 'xyz'), *(
        f'{name}_{axis}_{scale}' for name in ('cube', 'target') for scale in ('far', 'fine')
        for axis in 'xyz'))

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        super().begin(measured, random)
        self.target = cube.goal_near(_cube(measured), 1.0, random)

    def begin_demonstrated(self, measured: Sequence[Measured]) -> None:
        self._forget()
        self.target = _cube(measured[-1])

    def goal(self, measured: Measured) -> list[float]:
        tool, place = self._tool(measured), _cube(measured)
        return [*tool / _FAR, *_way(tool, place), *_way(place, self.target)]

    def reward(self, before: Measured, after: Measured) -> float:
        steps = before, after
        far = [float(np.linalg.norm(_cube(each) - self.target)) for each in steps]
        away = [float(np.linalg.norm(_cube(each) - self._tool(each))) for each in steps]
        success = self._judge(after, far[1])
        return float(cube.dense_reward(
            np.array([far[0] - far[1]]), np.array([away[0] - away[1]]), np.array([far[1]]),
            success, _NONE)[0])

    def failure(self, after: Measured) -> bool:
        """Return whether the cube is out of reach, or has fallen."""
        return bool(cube.is_lost(_cube(after)[None])[0])


def _cube(measured: Measured) -> Array:
    return np.array([measured[name] for name in CUBE_FEATURES[:3]])
