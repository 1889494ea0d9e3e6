"""What all workers share: games, and what they print at each update.

They run in environments without this package.
"""

import json
import re
import statistics
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from ale_py.env import AtariEnv

EPISODES = 100
returns: deque[float] = deque(maxlen=EPISODES)


def rom(env_id: str) -> str:
    name = env_id.removeprefix('ALE/').removesuffix('-v5')
    return re.sub('(?<!^)(?=[A-Z])', '_', name).lower()


def make_game(env_id: str) -> gymnasium.Env[Any, Any]:
    """Return a game as the graph has it: skip 4, 84 x 84, four frames, clipped rewards."""
    # Not by gymnasium.make: ale-py registers its games with Gymnasium 1.0 and later only.
    env: gymnasium.Env[Any, Any] = AtariEnv(
        game=rom(env_id), frameskip=1, repeat_action_probability=0.0,
        max_num_frames_per_episode=108_000)
    env = gymnasium.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)
    if hasattr(gymnasium.wrappers, 'FrameStackObservation'):
        env = gymnasium.wrappers.FrameStackObservation(env, 4)
    else:  # before 1.0; its frames are no array
        env = gymnasium.wrappers.TransformObservation(
            gymnasium.wrappers.FrameStack(env, 4), np.asarray)
    return gymnasium.wrappers.TransformReward(env, lambda reward: max(-1.0, min(1.0, reward)))


def report(agent_steps: int, last_returns: Iterable[float] = ()) -> None:
    """Print how many agent steps have been collected, and what episodes returned.

    Args:
        last_returns: of the last 100 episodes; without them ``returns`` of this module. The mean
            of fewer episodes is not reported.
    """
    found = list(last_returns) or list(returns)
    mean = statistics.fmean(found) if len(found) == EPISODES else None
    print(json.dumps({'wall_s': time.monotonic(), 'agent_steps': int(agent_steps),
                      'mean_return': mean}), flush=True)
