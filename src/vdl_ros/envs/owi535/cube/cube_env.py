"""``vdl_ros/OWI535Push-v0`` and ``vdl_ros/OWI535PickPlace-v0`` for Gymnasium."""

from __future__ import annotations

from vdl_ros.envs.owi535.arm_env import ArmEnv, ArmVectorEnv
from vdl_ros.envs.owi535.cube.cube_task import PickPlaceTask, PushTask
from vdl_ros.envs.registration import PICK_PLACE_STEPS, PUSH_STEPS

__all__ = ['PickPlaceEnv', 'PickPlaceVectorEnv', 'PushEnv', 'PushVectorEnv']


class PushEnv(ArmEnv):
    """One arm that pushes; arguments as of ``CubeTask``."""

    task = PushTask


class PushVectorEnv(ArmVectorEnv):
    """B arms that push; arguments as of ``CubeTask``."""

    task = PushTask
    steps = PUSH_STEPS


class PickPlaceEnv(ArmEnv):
    """One arm that picks and places; arguments as of ``CubeTask``."""

    task = PickPlaceTask


class PickPlaceVectorEnv(ArmVectorEnv):
    """B arms that pick and place; arguments as of ``CubeTask``."""

    task = PickPlaceTask
    steps = PICK_PLACE_STEPS
