"""Adds the arm's tasks to Gymnasium's registry; imports neither MuJoCo nor the tasks."""

from __future__ import annotations

import gymnasium

__all__ = ['REACH', 'REACH_STEPS', 'register']

REACH = 'vdl_ros/OWI535Reach-v0'
#: Steps after which an episode is truncated, at 10 Hz: 20 s.
REACH_STEPS = 200


def register() -> None:
    """Add the tasks, if they are not there."""
    if REACH not in gymnasium.registry:
        gymnasium.register(
            REACH, entry_point='vdl_ros.envs.owi535.reach:ReachEnv',
            vector_entry_point='vdl_ros.envs.owi535.reach:ReachVectorEnv',
            max_episode_steps=REACH_STEPS)
