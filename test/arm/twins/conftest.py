"""What the twins are compared with."""

import numpy as np
import pytest

from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import Motors
from vdl_ros.arm.simulation.simulation import ArmSimulation


@pytest.fixture
def play_of_simulations():
    """Return a function: the play of simulations 0 to N - 1 after a second reset, [N, 5]."""
    def draw(seed):
        random = np.random.default_rng(seed)
        for _ in range(2):
            random.uniform(size=len(JOINTS))  # speeds
            play = random.uniform(-1.0, 1.0, len(JOINTS))
        return play

    return lambda count: np.array([draw(seed) for seed in range(count)])


@pytest.fixture
def move_beside_simulations():
    """
    Return a generator: a twin and simulations with its parameters take the same random commands.

    It yields the positions of the simulations, [N, 5], and which had no contact so far, [N].
    """
    def move(batch, parameters, poses, period, steps, random):
        count, geometry = len(poses), load()
        arms = [ArmSimulation(parameters.config(arm), arm, geometry) for arm in range(count)]
        for arm, pose in zip(arms, poses, strict=True):
            arm.reset(pose)
        free, directions = np.ones(count, bool), np.zeros((count, len(JOINTS)), int)
        for _ in range(steps):
            changed = random.random(directions.shape) < 0.2
            directions = np.where(changed, random.integers(-1, 2, directions.shape), directions)
            batch.step(directions)
            for index, arm in enumerate(arms):
                arm.command(Motors.of(directions[index]))
                arm.step(period)
                free[index] &= not (arm.data.contact.dist < 0.0).any()
            yield np.array([arm.joint_positions for arm in arms]), free

    return move
