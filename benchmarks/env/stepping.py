"""Step an environment as fast as possible; measure speed and memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil

__all__ = ['frames_per_s', 'is_vector', 'memory', 'settle', 'stepper']

_ACTIONS = 256
# Steps before memory is measured, and the limit of their time.
_FIRST_STEPS = 20
_FIRST_SECONDS = 0.2


def is_vector(env: Any) -> bool:
    """Return whether ``env`` has many copies."""
    return hasattr(env, 'num_envs')


def stepper(env: Any) -> Callable[[], int]:
    """Reset ``env``, and return a function that steps it once and returns the number of frames.

    Random actions are sampled beforehand, which takes longer than a step of CartPole. An automatic
    reset takes time but is no frame.
    """
    env.action_space.seed(0)
    actions: Iterator[Any] = itertools.cycle(
        [env.action_space.sample() for _ in range(_ACTIONS)])
    env.reset(seed=0)
    step = env.step
    if not is_vector(env):
        def once() -> int:
            _, _, terminated, truncated, _ = step(next(actions))
            if terminated or truncated:
                env.reset()
            return 1
        return once
    count, resetting = env.num_envs, 0

    def together() -> int:
        nonlocal resetting
        _, _, terminated, truncated, _ = step(next(actions))
        frames = count - resetting
        resetting = int(np.count_nonzero(terminated | truncated))
        return frames
    return together


def frames_per_s(
    once: Callable[[], int], seconds: float, clock: Callable[[], float] = time.perf_counter, *,
    warm_up: float = 0.1,
) -> float:
    """Return frames per second of ``clock``.

    Args:
        seconds: of the measurement at least.
        clock: s.
        warm_up: share of ``seconds`` before it.
    """
    for share in (warm_up, 1.0):
        frames, began = 0, clock()
        while (spent := clock() - began) < share * seconds or not frames:
            frames += once()
    return frames / spent


def settle(env: Any) -> None:
    """Make a few steps, so that the environment has allocated its memory."""
    once = stepper(env)
    until = time.perf_counter() + _FIRST_SECONDS
    for _ in range(_FIRST_STEPS):
        once()
        if time.perf_counter() > until:
            break


def memory() -> int:
    """Return the resident bytes of this process and the unshared ones of its children."""
    process = psutil.Process()
    return int(process.memory_info().rss + sum(
        child.memory_full_info().uss for child in process.children(recursive=True)))
