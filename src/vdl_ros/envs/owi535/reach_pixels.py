"""
``vdl_ros/OWI535ReachPixels-v0``: the task *reach* with a camera image that shows the target.

The arm is the kinematic twin of *reach*; MuJoCo only renders.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.envs.owi535.arm_env import ArmEnv, ArmVectorEnv
from vdl_ros.envs.owi535.arm_observation import arm_features, feature_space
from vdl_ros.envs.owi535.reach_observation import FEATURES, MOTORS
from vdl_ros.envs.owi535.reach_task import Outcome, ReachTask
from vdl_ros.envs.owi535.task_renderer import TaskRenderer
from vdl_ros.envs.registration import REACH_STEPS

__all__ = ['ReachPixelsEnv', 'ReachPixelsTask', 'ReachPixelsVectorEnv']

#: Width and height of the images, pixels.
SIZE = 84
#: An image for ``render()`` is so many times larger.
ENLARGED = 4
#: Columns of the observation of *reach* that do not depend on the target: with measured joints,
#: and the commands alone.
_OF_ARM = {feature.name for feature in arm_features(MOTORS)} | {'age'}
_JOINTS = [index for index, feature in enumerate(FEATURES) if feature.name in _OF_ARM]
_COMMANDS = [index for index in _JOINTS if '_command_' in FEATURES[index].name]


class ReachPixelsTask:
    """B arms of the task *reach*, each with an image."""

    def __init__(self, count: int, joints: bool = True, **arguments: Any) -> None:
        """
        Make ``count`` arms; reset them before the first step.

        Args:
            count: number of arms, B.
            joints: whether measured joints are observed beside image and commands.
            arguments: of ``ReachTask``.

        Raises:
            EnvError: an argument that is not allowed.
        """
        self._reach = ReachTask(count, **arguments)
        self._columns = _JOINTS if joints else _COMMANDS
        self._images = np.zeros((count, SIZE, SIZE, 3), np.uint8)
        self._renderer = TaskRenderer(SIZE, SIZE, rod=True)
        self.action_space = self._reach.action_space
        self.observation_space = spaces.Dict({
            'image': spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8),
            'arm': feature_space([FEATURES[index] for index in self._columns])})

    def reset(
        self, rows: NDArray[np.intp], random: np.random.Generator,
    ) -> dict[str, NDArray[Any]]:
        """Start episodes of arms ``rows``, int [N]; return their observations."""
        numbers = self._reach.reset(rows, random)
        return self._observe(numbers, rows)

    def step(self, actions: NDArray[np.integer], random: np.random.Generator) -> Outcome:
        """Command the motors, int [B, 4]: 0 backward, 1 off, 2 forward; simulate 0.1 s."""
        outcome = self._reach.step(actions, random)
        observations: Any = self._observe(outcome.observations, np.arange(len(actions)))
        return outcome._replace(observations=observations)

    def render(self, arm: int) -> NDArray[np.uint8]:
        """Return the last image of one arm, enlarged, uint8 [H, W, 3]."""
        return np.kron(self._images[arm], np.ones((ENLARGED, ENLARGED, 1), np.uint8))

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()
        self._reach.close()

    def _observe(
        self, numbers: NDArray[np.float32], rows: NDArray[np.intp],
    ) -> dict[str, NDArray[Any]]:
        """Return observations of ``rows``, int [N]: images are as old as measurements."""
        positions = self._reach.late_positions
        for row in rows:
            self._renderer.render(
                positions[row], self._reach.targets[row], out=self._images[row])
        return {'image': self._images[rows], 'arm': numbers[:, self._columns]}


class ReachPixelsEnv(ArmEnv):
    """One arm; arguments as of ``ReachPixelsTask``."""

    task = ReachPixelsTask


class ReachPixelsVectorEnv(ArmVectorEnv):
    """B arms; arguments as of ``ReachPixelsTask``."""

    task = ReachPixelsTask
    steps = REACH_STEPS
