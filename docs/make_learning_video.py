"""Make the README's moving picture: the arm while it learns to reach, beside its curve.

    python3 docs/make_learning_video.py --run runs/reach-video --output docs/images/reach.webp

Trains in one process and stops at each stage to play the policy, so a second start goes on where
the first one ended.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vdl_ros import local_training
from vdl_ros.common.settings import select
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.registration import REACH
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.recipes import config_file
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

TOTAL_STEPS = 3_000_000
# Agent steps at which the policy is shown, and for how many of the environment's steps.
STAGES = ((8_192, 40), (150_000, 60), (400_000, 60), (TOTAL_STEPS, 180))
SIDE = (320, 240)
# Times as fast as the arm.
SPEED = 2.0
Images = list[NDArray[np.uint8]]


def train(run: Path, steps: int) -> None:
    """Train until so many steps, from the checkpoint of the run if there is one."""
    given = {'env_id': REACH, 'algorithm': 'ppo', 'total_steps': TOTAL_STEPS, 'seed': 1}
    values = config_file.resolve(given, None)
    config, env = select(TrainConfig, values), select(EnvConfig, values)
    over, progress = threading.Event(), run / 'progress.csv'

    def watch() -> None:
        while not over.wait(0.2):
            if max((at for at, _ in _rows(progress)), default=0) >= steps:
                over.set()

    threading.Thread(target=watch, daemon=True).start()
    local_training.train(env, config, make_algorithm_config(config, values), run, over,
                         resume=progress.exists())
    over.set()


def _rows(progress: Path) -> list[tuple[int, float]]:
    """Return steps and success, %, of each row."""
    if not progress.exists():
        return []
    with progress.open() as file:
        return [(int(row['agent_steps']), 100.0 * float(row['success_rate_100']))
                for row in csv.DictReader(file)]


def play(checkpoint: Path, steps: int) -> Images:
    """Return pictures of the policy, uint8 [H, W, 3]."""
    act, images = load_policy(checkpoint).act(), []
    env = gymnasium.make_vec(REACH, 1, feedback='truth', render_mode='rgb_array')
    observation, _ = env.reset(seed=4)
    is_reset = np.ones(1, np.bool_)
    for _ in range(steps):
        frame: Any = env.render()
        images.append(np.asarray(frame[0], np.uint8))
        observation, _, terminated, truncated, _ = env.step(act(observation, is_reset))
        is_reset = np.logical_or(terminated, truncated)
    env.close()
    return images


def draw(rows: list[tuple[int, float]], steps: int) -> NDArray[np.uint8]:
    """Return the curve until ``steps``, uint8 [240, 320, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2, 2.4), dpi=100, layout='constrained')
    axes = figure.add_subplot()
    known = [(at / 1e6, share) for at, share in rows if at <= steps and share == share]
    if known:
        axes.plot(*zip(*known, strict=True), color='#1f77b4')
    axes.set(xlim=(0, TOTAL_STEPS / 1e6), ylim=(0, 100), xlabel='million steps',
             ylabel='success, %', title=f'after {steps:,} steps')
    axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return np.asarray(Image.open(buffer).convert('RGB').resize(SIDE), np.uint8)


def main() -> None:
    """Train, play, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--run', type=Path, required=True, help='folder of the training')
    parser.add_argument('--output', type=Path, required=True, help='WebP file')
    options = parser.parse_args()
    frames = []
    for steps, length in STAGES:
        stage = options.run.with_name(f'{options.run.name}-{steps}.pt')
        if not stage.exists():
            train(options.run, steps)
            shutil.copyfile(options.run / 'checkpoint.pt', stage)
        curve = draw(_rows(options.run / 'progress.csv'), steps)
        frames += [Image.fromarray(np.concatenate([image, curve], axis=1))
                   for image in play(stage, length)]
    frames[0].save(options.output, save_all=True, append_images=frames[1:], loop=0,
                   duration=round(1000 / 10 / SPEED), quality=50, method=4)
    print(f'{options.output}: {len(frames)} pictures, {options.output.stat().st_size} bytes')


if __name__ == '__main__':
    main()
