"""A2C of Stable-Baselines3 until it is ended; run by the Python of its own environment."""

from __future__ import annotations

import sys
from functools import partial

import atari
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

# 16 processes, and 640 steps of each update.
PROCESSES, STEPS = 16, 40
ENDLESS = 10**9


class Report(BaseCallback):
    """Reports each update."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        atari.report(self.num_timesteps)


def main() -> None:
    """Train."""
    envs = SubprocVecEnv([partial(atari.make, sys.argv[1])] * PROCESSES)
    A2C('CnnPolicy', envs, n_steps=STEPS, device='cpu').learn(ENDLESS, callback=Report())


if __name__ == '__main__':
    main()
