"""Scripts of *push* and *pick and place*, which act on what a policy observes at that moment.

What they do follows from joints, cube, goal and the latest commands alone, so that a policy can
learn it from demonstrations.
"""

import itertools
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.geometry import EDGE, ArmGeometry
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.envs.owi535.arm_env import IN_FLIGHT, MOVING, RATE
from vdl_ros.envs.owi535.arm_task import CLOSE
from vdl_ros.envs.owi535.cube import CubeTask, PushTask

Array = NDArray[np.float64]

# Heights over cubes, and of ``tool0`` while it pushes or grips, m.
_OVER, _LOW = 0.055, 0.014
# How far behind the cube pushing begins, and of ``tool0`` from its centre when it touches it, m.
_BEHIND, _TOUCH = 0.045, EDGE / 2.0 + 0.009
# ``tool0`` comes down in a funnel: height for each m aside; as far aside it is down, m.
_SLOPE, _STRAIGHT = 3.0, 0.008
# Below the funnel by more than this it only rises, m.
_TOO_LOW = 0.012
# ``tool0`` may push at this height above ``_LOW``, and so far from the line of the push, m.
_HIGH, _ASIDE = 0.02, 0.01
# How far ahead of the cube pushing aims, m; an error aside counts so much.
_AHEAD, _STEER = 0.03, 2.0
# How far ``tool0`` may be from the centre of a cube that it begins to grip, and that it holds, m.
_AROUND, _HELD = 0.012, 0.03
# Shares of the gripper's range: open enough to come down, and open.
_OPEN_ENOUGH, _OPEN = 0.9, 0.97
# A goal is reached within this share of ``CLOSE``.
_THERE = 0.6
# How far motors look ahead, s, and ``tool0`` moves in that time at most, m.
_LOOK, _STRIDE = 0.2, 0.024
# Shoulder, elbow and wrist together point downwards, and the elbow is bent forward by more than
# this, rad; m for each square of rad off it, and for each motor that is switched.
_DOWN, _OFF_DOWN, _BENT, _SWITCH = 2.2, 0.05, 0.8, 0.0006
# Directions of the motors of ``MOVING``.
_CHOICES = np.array([*itertools.product((-1, 0, 1), repeat=len(MOVING))], np.int8)
_ELBOW, _WRIST, _GRIPPER = (JOINTS.index(name) for name in ('elbow', 'wrist', 'gripper'))


class Sight(NamedTuple):
    """What a script acts on.

    Attributes:
        joints: where they are now, float64 [5], rad; NaN: a wrist that is not measured.
        cube, goal: places in ``base_link``, float64 [3], m.
        commands: the latest directions of the motors, the newest first, int8 [IN_FLIGHT, 5].
    """

    joints: Array
    cube: Array
    goal: Array
    commands: NDArray[np.int8]


class Script(ABC):
    """Chooses the directions of the motors for a step of the task."""

    def __init__(self, geometry: ArmGeometry) -> None:
        self._geometry, self._kinematics = geometry, Kinematics(geometry)

    @abstractmethod
    def act(self, sight: Sight) -> NDArray[np.int8]:
        """Return the directions of the motors, int8 [5]."""

    def _tool(self, sight: Sight) -> Array:
        place: Array = self._kinematics.pose(np.nan_to_num(sight.joints))[:3, 3]
        return place

    def _move(self, sight: Sight, way: Array, gripper: int = 0) -> NDArray[np.int8]:
        """Return the directions that bring ``tool0`` on the way, float64 [3], m."""
        way = way * min(1.0, _STRIDE / max(float(np.linalg.norm(way)), _STRIDE))
        choices = _CHOICES[_CHOICES[:, _WRIST] == 0] if np.isnan(sight.joints[_WRIST]) \
            else _CHOICES
        joints, geometry = np.nan_to_num(sight.joints), self._geometry
        moving = slice(len(MOVING))
        after = np.clip(joints[moving] + choices * geometry.velocity[moving] * _LOOK,
                        geometry.lower[moving], geometry.upper[moving])
        turned = after - joints[moving]
        moved = turned @ self._kinematics.jacobian(joints)[:, moving].T
        cost = (np.linalg.norm(way - moved, axis=1)
                + _OFF_DOWN * (after[:, 1:].sum(axis=1) - _DOWN)**2
                + _OFF_DOWN * np.minimum(after[:, _ELBOW] - _BENT, 0.0)**2
                + _SWITCH * (choices != sight.commands[0, moving]).sum(axis=1))
        return np.append(choices[cost.argmin()], np.int8(gripper))


class Push(Script):
    """Comes down behind the cube, and pushes it on the line to its goal."""

    def act(self, sight: Sight) -> NDArray[np.int8]:
        tool, away = self._tool(sight), (sight.goal - sight.cube)[:2]
        distance = float(np.linalg.norm(away))
        if distance < _THERE * CLOSE:
            return np.zeros(len(JOINTS), np.int8)
        along, from_cube = away / distance, (tool - sight.cube)[:2]
        ahead = float(from_cube @ along)
        aside, gap = from_cube - ahead * along, max(0.0, -ahead - _TOUCH)
        if (tool[2] < _LOW + _HIGH and ahead < _ASIDE - _TOUCH
                and np.linalg.norm(aside) < _ASIDE + 0.35 * gap):
            way = min(_AHEAD, distance + gap) * along - _STEER * aside
            return self._move(sight, np.append(way, _LOW - tool[2]))
        return self._move(sight, _down(tool, sight.cube[:2] - _BEHIND * along, _LOW, _OVER))


class PickPlace(Script):
    """Takes the cube from above, carries it to its goal, and holds it there."""

    def act(self, sight: Sight) -> NDArray[np.int8]:
        tool, cube, goal = self._tool(sight), sight.cube, sight.goal
        # A cube that is askew stops the gripper sooner.
        holds = bool((sight.commands[:, _GRIPPER] < 0).all())
        around = _HELD if holds else _AROUND
        if np.linalg.norm((tool - cube)[:2]) < around and abs(tool[2] - cube[2]) < around:
            if not holds or np.linalg.norm(goal - cube) < _THERE * CLOSE:
                return np.array([0, 0, 0, 0, -1], np.int8)
            way = _down(cube, goal[:2], goal[2], max(goal[2], _OVER + 0.01))
            return self._move(sight, way, gripper=-1)
        opened = float(sight.joints[_GRIPPER] / self._geometry.upper[_GRIPPER])
        over, low = cube[2] + _OVER - EDGE / 2.0, cube[2] + _LOW - EDGE / 2.0
        way = _down(tool, cube[:2], low if opened > _OPEN_ENOUGH else over, over)
        return self._move(sight, way, gripper=int(opened < _OPEN))


def _down(tool: Array, place: Array, low: float, high: float) -> Array:
    """Return the way of ``tool`` to a place, [2], m, from above: at ``high`` as far as needed."""
    aside = place - tool[:2]
    height = np.clip(low + _SLOPE * (np.linalg.norm(aside) - _STRAIGHT), low, high) - tool[2]
    return np.append(aside if height < _TOO_LOW else 0.0 * aside, height)


#: By the name of a task.
SCRIPTS: dict[str, type[Script]] = {'push': Push, 'pick_place': PickPlace}


class ScriptedController:
    """Moves B arms of a task by its script."""

    def __init__(self, task: CubeTask) -> None:
        self._task = task
        self._script = SCRIPTS['push' if isinstance(task, PushTask) else 'pick_place'](
            task.geometry)
        self._commands = np.zeros((len(task.goals), IN_FLIGHT, len(JOINTS)), np.int8)

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the next actions, int [B, motors]."""
        task, cubes = self._task, self._task.cube_reading.place
        chosen = np.array([
            self._script.act(Sight(*each)) for each in zip(
                self._joints(), cubes, task.goals, self._commands, strict=True)])
        self._commands = np.concatenate([chosen[:, None], self._commands[:, :-1]], axis=1)
        return chosen[:, :len(task.motors)].astype(np.int64) + 1

    def _joints(self) -> Array:
        """Return what was measured, and turned since, float64 [B, 5], rad."""
        task = self._task
        late = (task.time - task.reading.stamp)[:, None] * RATE - np.arange(IN_FLIGHT)
        turned = (np.clip(late, 0.0, 1.0)[..., None] * self._commands).sum(axis=1)
        return np.asarray(task.reading.positions + turned * task.geometry.velocity / RATE)
