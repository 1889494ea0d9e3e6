"""Arm steps a second, at 10 Hz, of the twins and the tasks, beside bare MuJoCo.

    ros2 run vdl_ros bench_twin [--arms N,N] [--pixel-arms N] [--seconds S] [--rounds N] [--quick]
        [--json]

All in turn, in one process. Bare are MuJoCo's ``mj_step``, as often as 0.1 s needs, of the arm
alone and with a cube beside it, and rendering alone, an image of 84 x 84. Beside them are
``ArmSimulation`` with its motors, the kinematic twin of B arms, and the tasks of B arms with
measurements, observations and resets. Commands are random. Figures are steps per second of
processor time, so that other processes disturb them less, and medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

import vdl_ros.envs  # noqa: F401
from benchmarks import report
from vdl_ros.arm.joints import Motors
from vdl_ros.arm.simulation.render import ArmRenderer
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.arm.simulation.simulation import ArmSimulation
from vdl_ros.arm.simulation.twins import KinematicTwin
from vdl_ros.envs.owi535.reach import SIZE
from vdl_ros.envs.owi535.task_renderer import add_cube
from vdl_ros.envs.registration import PICK_PLACE, PUSH, REACH, REACH_PIXELS

import mujoco  # isort: skip  # after the package, which chooses its OpenGL

PERIOD = 0.1
#: Commands sampled beforehand.
COMMANDS = 64
BARE = ('bare', 'bare_cube', 'bare_image')
#: Titles, and the bare figure that each is compared with.
KINDS = {
    'bare': ('`mj_step` alone', 'bare'),
    'bare_cube': ('`mj_step` alone, with a cube', 'bare_cube'),
    'bare_image': ('rendering alone', 'bare_image'),
    'simulation': ('`ArmSimulation`', 'bare'),
    'twin': ('kinematic twin', 'bare'),
    'reach': ('task *reach*', 'bare'),
    'push': ('task *push*', 'bare_cube'),
    'pick': ('task *pick and place*', 'bare_cube'),
    'pixels': ('task *reach* from images', 'bare_image')}


def steps_per_s(step: Callable[[int], object], arms: int, seconds: float) -> float:
    """Return the arm steps per second of processor time; ``step`` takes the step's number."""
    for number in range(3):
        step(number)
    began, count = time.process_time(), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until or not count:
        step(count)
        count += 1
    return arms * count / (time.process_time() - began)


def one_arm(seconds: float) -> dict[str, float]:
    """Return the figures of one arm: bare, and with physics."""
    random = np.random.default_rng(0)
    commands = [Motors.of(row) for row in random.integers(-1, 2, (COMMANDS, 5))]
    simulation = ArmSimulation()
    found = {}
    for name, scene in (('bare', build_scene()), ('bare_cube', build_scene(furnish=add_cube))):
        model, data = scene.model, mujoco.MjData(scene.model)
        physics = round(PERIOD / model.opt.timestep)
        found[name] = steps_per_s(
            lambda _, model=model, data=data, physics=physics: mujoco.mj_step(
                model, data, physics), 1, seconds)

    def simulate(number: int) -> None:
        simulation.command(commands[number % COMMANDS])
        simulation.step(PERIOD)

    found['simulation'] = steps_per_s(simulate, 1, seconds)
    with ArmRenderer(build_scene(), SIZE, SIZE) as renderer:
        found['bare_image'] = bare_images(renderer, seconds)
    return found


def bare_images(renderer: ArmRenderer, seconds: float) -> float:
    """Return the images per second of MuJoCo's own renderer, of a scene that does not change."""
    renderer.render(np.zeros(5))
    image = np.zeros((SIZE, SIZE, 3), np.uint8)
    return steps_per_s(lambda _: renderer.bare.render(out=image), 1, seconds)


def many_arms(arms: int, seconds: float) -> dict[str, float]:
    """Return the figures of ``arms`` arms at once."""
    random = np.random.default_rng(0)
    twin = KinematicTwin(build_scene(), arms, PERIOD)
    directions = random.integers(-1, 2, (COMMANDS, arms, 5))
    return {f'twin_{arms}': steps_per_s(
        lambda number: twin.step(directions[number % COMMANDS]), arms, seconds),
        **{f'{name}_{arms}': task(env_id, arms, seconds)
           for name, env_id in (('reach', REACH), ('push', PUSH), ('pick', PICK_PLACE))}}


def task(env_id: str, arms: int, seconds: float) -> float:
    """Return the arm steps per second of an environment."""
    env = gymnasium.make_vec(env_id, arms, vectorization_mode='vector_entry_point')
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(COMMANDS)]
    env.reset(seed=0)
    try:
        return steps_per_s(lambda number: env.step(actions[number % COMMANDS]), arms, seconds)
    finally:
        env.close()


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_twin', __doc__, quick='one round of 0.3 s each')
    parser.add_argument('--arms', default='16,64,256', help='numbers of arms (16,64,256)')
    parser.add_argument('--pixel-arms', type=int, default=16,
                        help='number of arms with images (16)')
    parser.add_argument('--seconds', type=float, help='of a measurement (2; quick: 0.3)')
    parser.add_argument('--rounds', type=int, help='(3; quick: 1)')
    options = parser.parse_args()
    report.complete(options, {'seconds': (2.0, 0.3), 'rounds': (3, 1)},
                    {'seconds': (0.01, 600), 'rounds': (1, 1000), 'pixel_arms': (1, 4096)})
    options.arms = report.numbers('--arms', options.arms, 1, 4096)
    return options


def main() -> int:
    """Measure, and print a table or one JSON object."""
    return report.run('bench_twin', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    rounds: list[dict[str, float]] = []
    for number in range(options.rounds):
        found = one_arm(options.seconds)
        for arms in options.arms:
            found |= many_arms(arms, options.seconds)
        found[f'pixels_{options.pixel_arms}'] = task(
            REACH_PIXELS, options.pixel_arms, options.seconds)
        rounds.append(found)
        report.log(f'round {number + 1} of {options.rounds}')
    report.deliver('twin', {
        'seconds': options.seconds, 'rounds': options.rounds,
        'arm_steps_per_s': {name: statistics.median(each[name] for each in rounds)
                            for name in rounds[0]}}, options, text)


def text(found: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    figures = found['arm_steps_per_s']
    rows = []
    for name, figure in figures.items():
        kind, _, arms = name.partition('_') if name not in BARE else (name, '', '')
        title, bare = KINDS[kind]
        rows.append((title + (f', {arms} arms' if arms else ''), f'{figure:,.0f}',
                     f'{figure / figures[bare]:.2f}', KINDS[bare][0]))
    return '\n'.join(report.table(
        ('arm steps at 10 Hz', 'per second of processor time', 'share', 'of'), rows))
