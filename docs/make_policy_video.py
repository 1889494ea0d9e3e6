"""Make a moving picture of a policy: ``docs/images/pick_place.webp`` of the arm that takes a cube.

python3 docs/make_policy_video.py --checkpoint runs/NAME/checkpoint.pt
--env_id vdl_ros/OWI535PickPlace-v0 --seed 2 --episodes 3
--output docs/images/pick_place.webp
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

import vdl_ros.envs  # noqa: F401
from vdl_ros.play.saved_policy import load_policy

#: Times as fast as the environment, and its steps per second.
SPEED, RATE = 2.0, 10


def main() -> None:
    """Play, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--checkpoint', type=Path, required=True, help='the policy')
    parser.add_argument('--env_id', required=True, help='the environment, with its defaults')
    parser.add_argument('--steps', type=int, default=300, help='most steps [300]')
    parser.add_argument('--episodes', type=int, default=2, help='most episodes [2]')
    parser.add_argument('--seed', type=int, default=0, help='of the episodes [0]')
    parser.add_argument('--output', type=Path, required=True, help='WebP file')
    options = parser.parse_args()
    act, frames, over = load_policy(options.checkpoint).act(), [], 0
    env = gymnasium.make_vec(options.env_id, 1, render_mode='rgb_array')
    observation, _ = env.reset(seed=options.seed)
    is_reset = np.ones(1, np.bool_)
    while len(frames) < options.steps and over < options.episodes:
        image: Any = env.render()
        frames.append(Image.fromarray(np.asarray(image[0], np.uint8)))
        observation, _, terminated, truncated, info = env.step(act(observation, is_reset))
        is_reset = np.logical_or(terminated, truncated)
        if is_reset[0]:
            over += 1
            print(f'episode {over}: {len(frames)} pictures, success {info["is_success"][0]}')
    env.close()
    frames[0].save(options.output, save_all=True, append_images=frames[1:], loop=0,
                   duration=round(1000 / RATE / SPEED), quality=50, method=4)
    print(f'{options.output}: {len(frames)} pictures, {options.output.stat().st_size} bytes')


if __name__ == '__main__':
    main()
