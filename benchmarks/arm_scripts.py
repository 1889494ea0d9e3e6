"""Scripts of *push* and *pick and place*: places, one after the other, by kinematics."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.geometry import EDGE
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import InverseKinematics, UnreachableError
from vdl_ros.envs.owi535.arm_env import MOVING, RATE
from vdl_ros.envs.owi535.arm_task import CLOSE
from vdl_ros.envs.owi535.cube import CubeTask, PushTask

Array = NDArray[np.float64]
#: Directions of the motors for the next step, one after the other.
Moves = Generator[NDArray[np.int8], None, None]

#: Height over cubes, height of ``tool0`` while it pushes or grips, m.
OVER, LOW = 0.055, 0.014
#: How far behind the cube pushing begins, m, and how far it goes on before it looks again, m.
BEHIND, STRIDE = 0.045, 0.04
#: How far ``tool0`` is from the cube's centre when it touches it, m.
TOUCH = EDGE / 2.0 + 0.009
#: Angles at which a motor is switched off, rad, and the longest time for a place, s.
TOLERANCE, PATIENCE = 0.03, 8.0
#: How long the gripper closes, s.
CLOSING = 2.0


class ScriptedController:
    """Moves B arms of a task, each by its script."""

    def __init__(self, task: CubeTask) -> None:
        self._task = task
        script: Callable[[Arm], Moves] = push if isinstance(task, PushTask) else pick_and_place
        kinematics = InverseKinematics(task.geometry, task.checker.collides)
        self._arms = [_TaskArm(task, kinematics, row) for row in range(len(task.goals))]
        self._scripts = [script(arm) for arm in self._arms]
        self._off = np.zeros(len(JOINTS), np.int8)

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the next actions, int [B, motors]."""
        rows = [next(script, self._off) for script in self._scripts]
        for arm, row in zip(self._arms, rows, strict=True):
            arm.commands.append(row)
        return np.array(rows, np.int64)[:, :len(self._task.motors)] + 1


class Arm(ABC):
    """What is known of one arm and its cube, and moves of it."""

    def __init__(self, kinematics: InverseKinematics) -> None:
        self._kinematics = kinematics

    @property
    def motors(self) -> Sequence[str]:
        """Return those that :meth:`move` may use, the first ones of ``JOINTS``."""
        return MOVING

    @property
    @abstractmethod
    def goal(self) -> Array:
        """Return the goal of the cube, float64 [3], m."""

    @property
    @abstractmethod
    def cube(self) -> Array:
        """Return the measured place of the cube, float64 [3], m."""

    @property
    @abstractmethod
    def joints(self) -> Array:
        """Return where the joints are now, float64 [5], rad."""

    def move(self, place: Array, gripper: int = 0) -> Moves:
        """Bring ``tool0`` to a place, [3], m, if it can be reached."""
        try:
            target = self._kinematics.solve(place, self.joints, self.motors)
        except UnreachableError:
            return
        for _ in range(round(PATIENCE * RATE)):
            away = target - self.joints
            motors = np.where(np.abs(away) > TOLERANCE, np.sign(away), 0.0).astype(np.int8)
            motors[JOINTS.index('gripper')] = 0
            if not motors.any():
                return
            motors[JOINTS.index('gripper')] = gripper
            yield motors

    def wait(self, seconds: float, gripper: int = 0) -> Moves:
        for _ in range(round(seconds * RATE)):
            motors = np.zeros(len(JOINTS), np.int8)
            motors[JOINTS.index('gripper')] = gripper
            yield motors


class _TaskArm(Arm):
    """An arm of a task: late measurements, and the commands since."""

    def __init__(self, task: CubeTask, kinematics: InverseKinematics, row: int) -> None:
        super().__init__(kinematics)
        self._task, self._row = task, row
        self.commands: list[NDArray[np.int8]] = []

    @property
    def motors(self) -> Sequence[str]:
        """Return those whose joints are measured."""
        return MOVING if np.isfinite(self._task.reading.positions[self._row, 3]) else MOVING[:3]

    @property
    def goal(self) -> Array:
        return self._task.goals[self._row]

    @property
    def cube(self) -> Array:
        return self._task.cube_reading.place[self._row]

    @property
    def joints(self) -> Array:
        """Return what was measured, and turned since."""
        task, row = self._task, self._row
        measured = np.nan_to_num(task.reading.positions[row])
        late = float(task.time[row] - task.reading.stamp[row]) * RATE
        turned = np.zeros(len(JOINTS))
        for command in reversed(self.commands):
            if late <= 0.0:
                break
            turned += command * task.geometry.velocity * min(late, 1.0) / RATE
            late -= 1.0
        return measured + turned


def push(arm: Arm) -> Moves:
    """Go over the cube to behind it, push it on, and begin again where it went astray."""
    while True:
        yield from arm.wait(0.3)
        away = arm.goal - arm.cube
        while np.linalg.norm(away) < 0.6 * CLOSE:
            yield from arm.wait(0.1)
            away = arm.goal - arm.cube
        along = away / np.linalg.norm(away)
        behind = arm.cube - BEHIND * along
        yield from arm.move(_at(behind, OVER))
        yield from arm.move(_at(behind, LOW))
        start = behind
        while True:
            to_go = float((arm.goal - start) @ along) - TOUCH
            aside = arm.goal - arm.cube
            aside = aside - (aside @ along) * along
            if to_go <= 0.003 or np.linalg.norm(aside) > 0.7 * EDGE:
                break
            start = start + min(STRIDE, to_go) * along
            yield from arm.move(_at(start, LOW))
        yield from arm.move(_at(start - 0.01 * along, OVER))


def pick_and_place(arm: Arm) -> Moves:
    """Take the cube from above, carry it to its goal, and hold it there."""
    while True:
        yield from arm.move(_at(arm.cube, OVER), gripper=1)
        yield from arm.wait(1.0, gripper=1)
        yield from arm.move(_at(arm.cube, LOW))
        yield from arm.wait(0.3)
        yield from arm.wait(CLOSING, gripper=-1)
        yield from arm.move(_at(arm.cube, OVER))
        yield from arm.wait(0.3)
        if arm.cube[2] < EDGE:
            continue
        yield from arm.move(_at(arm.goal, OVER))
        while arm.cube[2] > EDGE or np.linalg.norm(arm.goal - arm.cube) < CLOSE:
            tool = arm.goal + _at(np.zeros(3), LOW - EDGE / 2.0)
            yield from arm.move(tool)
            yield from arm.wait(0.5)
            if arm.goal[2] < EDGE:
                break
        yield from arm.wait(2.0)


def _at(place: Array, height: float) -> Array:
    """Return a place at another height, float64 [3], m."""
    return np.array([place[0], place[1], height])
