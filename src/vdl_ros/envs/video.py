"""Record episodes of a policy as a video."""

import dataclasses
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.video_writer import VideoWriter
from vdl_ros.envs.checked_vector_env import VectorEnvironment, failure, frame_rate
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make

_OPTIONS = {'crf': 20, 'threads': 1}
_MIN_SIDE, _MAX_ENLARGED = 320, 2048


def enlarge(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image for a video: at least 320 pixels to a side, height and width even.

    Players blur small images, so pixels are repeated; Atari's 160 columns are doubled. The longer
    side of a strip is not made longer than ``_MAX_ENLARGED``.
    """
    sides = image.shape[:2]
    scale = min(-(-_MIN_SIDE // min(sides)), _MAX_ENLARGED // max(sides))
    # Of one row or column there would be none.
    scale = max(2 if 1 in sides else 1, scale)
    image = image.repeat(scale, axis=0).repeat(scale, axis=1)
    return image[:image.shape[0] // 2 * 2, :image.shape[1] // 2 * 2]


def make_drawn(config: EnvConfig, seed: int) -> VectorEnvironment:
    """Return one copy of an environment that renders into memory; a game with all its lives."""
    # Without a display and without pygame's greeting.
    os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
    os.environ.setdefault('PYGAME_HIDE_SUPPORT_PROMPT', '1')
    return make(dataclasses.replace(config, episodic_life=False), seed, num_envs=1, render=True)


def record_episodes(
    config: EnvConfig,
    seed: int,
    act: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]],
    path: str | Path,
    *,
    episodes: int = 1,
    min_steps: int = 0,
    max_steps: int = 27_000,
    max_time: float = math.inf,
    stop: threading.Event | None = None,
) -> tuple[list[float], int]:
    """Record episodes of a policy in real time; return their raw returns, and steps of all.

    The return of an episode that is cut by a limit, or by ``stop``, is that until there.

    Args:
        act: from observations [1, ...], is_reset [1] and previous rewards [1] to actions [1, ...].
        episodes: how many at least.
        min_steps: more episodes follow until there are so many steps.
        max_steps: largest number of steps; default: 30 minutes of Atari.
        max_time: longest time that recording takes, s.

    Raises:
        EnvError: the environment cannot be created or rendered.
        ValueError: PyAV is not installed.
    """
    env = make_drawn(config, seed)
    try:
        observations, _ = env.reset()
        rewards: NDArray[Any] = np.zeros(env.num_envs)
        returns, steps = [0.0], 0
        is_reset, over = np.ones(env.num_envs, np.bool_), np.zeros(env.num_envs, np.bool_)
        end = time.monotonic() + max_time
        with VideoWriter(path, frame_rate(env, 30.0), _OPTIONS) as video:
            image = only_image(env)
            shape = image.shape
            video.add(enlarge(image))
            while (not over[0] or len(returns) < episodes or steps < min_steps) and (
                    steps < max_steps and time.monotonic() < end) and not (
                        stop and stop.is_set()):
                observations, rewards, terminated, truncated, info = env.step(
                    act(observations, is_reset, rewards))
                image = only_image(env)
                if image.shape != shape:
                    raise failure(env, f'render(): an image {image.shape} is not allowed after '
                                  f'one {shape}')
                video.add(enlarge(image))
                # The step after an episode's last one ignores the action and resets, but a world
                # only once its other bodies are gone.
                was_over, over = over, terminated | truncated
                is_reset = was_over | info.get('is_lost', False)
                if was_over[0]:
                    returns.append(0.0)
                elif not is_reset[0]:
                    returns[-1] += float(rewards[0])
                    steps += 1
        return returns, steps
    finally:
        env.close()


def only_image(env: VectorEnvironment) -> NDArray[np.uint8]:
    """Return the image of the only copy of an environment, uint8 [H, W, 3]."""
    images: Any = env.render()
    if not images or images[0] is None:
        raise failure(env, 'render() returns no image')
    image: NDArray[np.uint8] = images[0]
    return image
