"""``vdl_ros/OWI535Reach-v0``: the task *reach* for Gymnasium, one arm or B at once."""

from __future__ import annotations

from vdl_ros.envs.owi535.arm_env import ArmEnv, ArmVectorEnv
from vdl_ros.envs.owi535.reach_description import describe
from vdl_ros.envs.owi535.reach_task import ReachTask
from vdl_ros.envs.registration import REACH_STEPS

__all__ = ['ReachEnv', 'ReachVectorEnv']


class ReachEnv(ArmEnv):
    """One arm; arguments as of ``ReachTask``."""

    task = ReachTask
    #: What a checkpoint says of this environment, for the node that runs its policy.
    checkpoint_description = staticmethod(describe)


class ReachVectorEnv(ArmVectorEnv):
    """B arms, simulated together; arguments as of ``ReachTask``."""

    task = ReachTask
    steps = REACH_STEPS
