"""
The task *reach* on the topics of the arm, real or simulated: by measurements, in real time.

Observation, actions and dense reward are those of ``vdl_ros/OWI535Reach-v0``, so its policies act
and learn here. The truth is not known: distances are those of the measured joints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.envs.owi535.arm_task import world
from vdl_ros.envs.owi535.reach_description import describe
from vdl_ros.envs.owi535.reach_observation import IN_FLIGHT, MOTORS, JointReading, ReachObserver
from vdl_ros.envs.owi535.reach_task import (
    CLOSE,
    HOLD,
    POSES_AT_TARGET,
    ReachTask,
    dense_reward,
    travel_time,
)
from vdl_ros.robots.contract import Contract, ContractError
from vdl_ros.robots.measured import Measured
from vdl_ros.robots.task import Task

__all__ = ['ReachOnRobot']

_WRIST = MOTORS.index('wrist')


class ReachOnRobot(Task):
    """A random reachable target in each episode; it ends ``HOLD`` after ``tool0`` is there."""

    def __init__(self, contract: Contract) -> None:
        """
        Sample the arm's workspace; takes a second.

        Raises:
            ContractError: the contract lacks a joint, or has other actions.
        """
        super().__init__(contract)
        missing = {*JOINTS} - {feature.name for feature in contract.features}
        if missing:
            raise ContractError(f'features: {", ".join(sorted(missing))}: missing: the joints '
                                f'{", ".join(JOINTS)}')
        parts = contract.actions.parts
        if [(part.name, part.levels) for part in parts] != [
                (name, (-1.0, 0.0, 1.0)) for name in MOTORS]:
            raise ContractError(f'actions: parts: {[part.name for part in parts]} is not allowed: '
                                f'{", ".join(MOTORS)}, each with levels [-1, 0, 1]')
        self._source = next(each.source for each in contract.features if each.name == JOINTS[0])
        self._geometry = load()
        self._world = world()
        self._observer, self._kinematics = ReachObserver(self._geometry), Kinematics(
            self._geometry)
        self._assumed = np.zeros(len(JOINTS)).clip(self._geometry.lower, self._geometry.upper)
        #: In ``base_link``, float64 [3], m.
        self.target = np.zeros(3)
        self._at_target = np.zeros((POSES_AT_TARGET, len(JOINTS)))
        self._latest: JointReading | None = None
        self._earlier: JointReading | None = None
        self._close_since = math.nan
        self._success = False

    @staticmethod
    def description(contract: Contract) -> dict[str, Any]:
        """Return that of the environment of the same task; of one arm, which nobody measured."""
        found = describe(rate=contract.rate)
        del found['twins']
        return found | {'robot': contract.name}

    @property
    def observation_space(self) -> spaces.Box:
        """Return that of the environment of the same task."""
        return ReachTask.observation_space

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        """Draw a target that this arm can reach."""
        straight = math.isnan(measured['wrist'])
        space = self._world.straight if straight else self._world.free
        drawn = space.draw(random, 1)
        self.target = space.places[drawn[0]]
        self._at_target = space.neighbours(random, drawn, POSES_AT_TARGET)[0]
        self._forget()

    def begin_demonstrated(self, measured: Sequence[Measured]) -> None:
        """Take the place of ``tool0`` at the end as the target."""
        self.target = self._kinematics.pose(self._positions(measured[-1]))[:3, 3]
        self._forget()

    def _forget(self) -> None:
        self._latest = self._earlier = None
        self._close_since, self._success = math.nan, False

    def command(
        self, action: NDArray[np.float64], measured: Measured,
    ) -> NDArray[np.float64]:
        """Keep a wrist that is not measured where it is, as in the environment."""
        if math.isnan(measured['wrist']):
            action = np.where(np.arange(len(MOTORS)) == _WRIST, 0.0, action)
        return action

    def observe(self, measured: Measured) -> NDArray[np.float32]:
        """Return the observation, by the function of the environment."""
        stamp = measured.stamps[self._source]
        reading = JointReading(
            np.array([measured[name] for name in JOINTS]), np.array(stamp))
        # The same measurement may come twice, by a slow camera.
        if self._latest is None or stamp != self._latest.stamp:
            self._earlier, self._latest = self._latest, reading
        return self._observer.observe(
            reading, self._earlier or reading, np.array(stamp + measured.ages[self._source]),
            measured.actions[:IN_FLIGHT].astype(np.int8), self.target)

    def reward(self, before: Measured, after: Measured) -> float:
        """Return the dense reward of the environment."""
        positions = np.stack([self._positions(before), self._positions(after)])
        tools = self._kinematics.pose(positions)[:, :3, 3]
        distances = np.linalg.norm(tools - self.target, axis=1)
        travel = travel_time(
            self._geometry, positions, np.broadcast_to(
                self._at_target, (2, *self._at_target.shape)))
        self._judge(after.time, float(distances[1]))
        switched = np.count_nonzero(before.actions[0] != after.actions[0])
        return float(dense_reward(
            distances[:1] - distances[1:], travel[:1] - travel[1:], distances[1:],
            np.array([self._success]), np.array([switched]),
            self._world.checker.collides(positions[1:]))[0])

    def success(self, after: Measured) -> bool:
        """Return whether ``tool0`` has been within ``CLOSE`` of the target for ``HOLD``."""
        return self._success

    def _judge(self, time: float, distance: float) -> None:
        if distance > CLOSE:
            self._close_since = math.nan
            return
        if math.isnan(self._close_since):
            self._close_since = time
        # Ticks vary a little in time.
        self._success = time - self._close_since >= HOLD - 0.5 / self.contract.rate

    def _positions(self, measured: Measured) -> NDArray[np.float64]:
        positions = np.array([measured[name] for name in JOINTS])
        return np.where(np.isfinite(positions), positions, self._assumed)
