"""The tasks of the SO-101 as Gymnasium environments: their contracts, on the twin itself.

Features, actions, task and reset are those of the files in ``config/robots``, so that a policy
acts on the topics as it does here.
"""

import contextlib
import json
from collections import deque
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.simulation.simulation import PoseError
from vdl_ros.envs.checked_vector_env import ResetResult, SingleStepResult
from vdl_ros.envs.owi535.robot_tasks import CUBE_FEATURES
from vdl_ros.envs.so101.tasks import Pick, Reach
from vdl_ros.envs.so101.twin import JOINTS, SO101Twin
from vdl_ros.robots.contract import ServiceReset
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.robots.positions import Positions
from vdl_ros.robots.task import HISTORY, Measured, make_task, with_arguments

# On topics a measurement is up to so old when it is used, s.
_AGE = 0.05


class SO101Env(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One arm; ``arguments`` are those of the task.

    An action is -1 to 1 for ``low`` to ``high`` of the contract. ``info`` of a step has
    ``is_success`` and ``distance``, m.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 10.0}
    #: The contract.
    robot: ClassVar[str]

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.render_mode = render_mode
        self._contract = with_arguments(find_contract(self.robot), json.dumps(arguments))
        self._task = make_task(self._contract)
        names = [feature.name for feature in self._contract.features]
        self._has_cube = CUBE_FEATURES[0] in names
        self._twin = SO101Twin(cube=self._has_cube)
        self._positions = Positions(self._contract)
        self.observation_space: Any = self._task.observation_space
        self.action_space = spaces.Box(
            -1.0, 1.0, (len(self._contract.actions.parts),), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> ResetResult:
        super().reset(seed=seed, options=options)
        reset = self._contract.reset
        assert isinstance(reset, ServiceReset)
        while True:
            drawn = {key: self.np_random.uniform(*reset.request[key]['uniform']).tolist()
                     for key in ('position', 'cube') if key in reset.request}
            pose = dict(zip(reset.request['name'], drawn.pop('position'), strict=True))
            # As on topics: another one, if the arm would be inside the cube.
            with contextlib.suppress(PoseError):
                self._twin.reset(pose, **drawn)
                break
        self._positions.forget()
        self._history, self._steps = deque[NDArray[np.float64]](maxlen=HISTORY), 0
        rest = self._positions.allowed(
            np.array(self._contract.actions.neutral),
            dict(zip(JOINTS, self._twin.joint_positions.tolist(), strict=True)))
        self._history.extend([rest] * HISTORY)
        self._before = self._measure()
        self._task.begin(self._before, self.np_random)
        return self._task.observe(self._before), {}

    def step(self, action: NDArray[np.float32]) -> SingleStepResult:
        task, before = self._task, self._before
        self._positions.tick()
        wanted = self._positions.allowed(self._contract.actions.values(action), before.values)
        sent = self._positions.of(wanted, before.values)
        assert sent is not None
        self._twin.command(sent)
        self._twin.step(1.0 / self._contract.rate)
        self._history.appendleft(wanted)
        self._steps += 1
        self._before = after = self._measure()
        reward = task.reward(before, after)
        success, failure = task.success(after), task.failure(after)
        return task.observe(after), reward, success or failure, False, {
            'is_success': success, 'distance': task.distance}

    def render(self) -> NDArray[np.uint8] | None:
        return None if self.render_mode is None else self._twin.render(self._task.target)

    def _measure(self) -> Measured:
        values = dict(zip(JOINTS, self._twin.joint_positions.tolist(), strict=True))
        cube = self._twin.cube
        if cube is not None:
            w, x, y, z = cube[3:]
            yaw = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
            values |= dict(zip(CUBE_FEATURES, (*cube[:3].tolist(), float(yaw)), strict=True))
        time, age = self._steps / self._contract.rate, float(self.np_random.uniform(0.0, _AGE))
        return Measured(
            {each.name: values[each.name] for each in self._contract.features},
            dict.fromkeys(self._contract.inputs, time - age),
            dict.fromkeys(self._contract.inputs, age), time, np.array(self._history))


class ReachEnv(SO101Env):
    """The tool reaches a place."""

    robot = 'so101_sim'
    #: What a checkpoint says of this environment, for what plays its policy.
    checkpoint_description = staticmethod(lambda: Reach.description(find_contract('so101_sim')))


class PickEnv(SO101Env):
    """The gripper takes a cube and lifts it to a place."""

    robot = 'so101_pick'
    checkpoint_description = staticmethod(lambda: Pick.description(find_contract('so101_pick')))
