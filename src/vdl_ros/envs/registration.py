"""Adds the arm's tasks to Gymnasium's registry; imports neither MuJoCo nor the tasks."""

from __future__ import annotations

import gymnasium

__all__ = [
    'PICK_PLACE', 'PICK_PLACE_STEPS', 'PUSH', 'PUSH_STEPS', 'REACH', 'REACH_PIXELS',
    'REACH_STEPS', 'register',
]

REACH = 'vdl_ros/OWI535Reach-v0'
REACH_PIXELS = 'vdl_ros/OWI535ReachPixels-v0'
PUSH = 'vdl_ros/OWI535Push-v0'
PICK_PLACE = 'vdl_ros/OWI535PickPlace-v0'
#: Steps after which an episode is truncated, at 10 Hz: 20 s, and 30 s.
REACH_STEPS, PUSH_STEPS, PICK_PLACE_STEPS = 200, 200, 300


def register() -> None:
    """Add the tasks, if they are not there."""
    for name, module, kind, steps in (
            (REACH, 'reach', 'Reach', REACH_STEPS),
            (REACH_PIXELS, 'reach_pixels', 'ReachPixels', REACH_STEPS),
            (PUSH, 'cube.cube_env', 'Push', PUSH_STEPS),
            (PICK_PLACE, 'cube.cube_env', 'PickPlace', PICK_PLACE_STEPS)):
        if name not in gymnasium.registry:
            place = f'vdl_ros.envs.owi535.{module}:{kind}'
            gymnasium.register(name, entry_point=f'{place}Env',
                               vector_entry_point=f'{place}VectorEnv', max_episode_steps=steps)
