"""
Arm steps a second, at 10 Hz, of the kinematic twin and the task, beside the simulation's.

    ros2 run vdl_ros bench_twin [--arms N,N] [--seconds S] [--rounds N] [--quick] [--json]

Four kinds in turn, in one process: *bare*, MuJoCo's ``mj_step`` of the same scene without motors,
as often as 0.1 s needs; *simulation*, ``ArmSimulation`` with its motors; *twin*, the kinematic
twin of B arms; *task*, ``vdl_ros/OWI535Reach-v0`` of B arms, with collisions, measurements,
observations and resets. Commands are random. Figures are steps per second of processor time, so
that other processes disturb them less, and medians over the rounds.
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
from vdl_ros.arm.model.motor_command import Motors
from vdl_ros.arm.simulation.kinematic_twin import KinematicTwin
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.arm.simulation.simulation import ArmSimulation
from vdl_ros.envs.registration import REACH

import mujoco  # isort: skip  # after the package, which chooses its OpenGL

PERIOD = 0.1
#: Commands sampled beforehand.
COMMANDS = 64


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
    """Return the figures of one arm with physics."""
    random = np.random.default_rng(0)
    commands = [Motors.of(row) for row in random.integers(-1, 2, (COMMANDS, 5))]
    simulation = ArmSimulation()
    scene = build_scene()
    data = mujoco.MjData(scene.model)
    physics = round(PERIOD / scene.model.opt.timestep)

    def bare(_: int) -> None:
        for _ in range(physics):
            mujoco.mj_step(scene.model, data)

    def simulate(number: int) -> None:
        simulation.command(commands[number % COMMANDS])
        simulation.step(PERIOD)

    return {'bare': steps_per_s(bare, 1, seconds),
            'simulation': steps_per_s(simulate, 1, seconds)}


def many_arms(arms: int, seconds: float) -> dict[str, float]:
    """Return the figures of ``arms`` arms at once."""
    random = np.random.default_rng(0)
    twin = KinematicTwin(build_scene(), arms, PERIOD)
    directions = random.integers(-1, 2, (COMMANDS, arms, 5))
    env = gymnasium.make_vec(REACH, arms, vectorization_mode='vector_entry_point')
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(COMMANDS)]
    env.reset(seed=0)
    try:
        return {
            f'twin_{arms}': steps_per_s(
                lambda number: twin.step(directions[number % COMMANDS]), arms, seconds),
            f'task_{arms}': steps_per_s(
                lambda number: env.step(actions[number % COMMANDS]), arms, seconds)}
    finally:
        env.close()


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_twin', __doc__, quick='one round of 0.3 s each')
    parser.add_argument('--arms', default='16,64,256', help='numbers of arms (16,64,256)')
    parser.add_argument('--seconds', type=float, help='of a measurement (2; quick: 0.3)')
    parser.add_argument('--rounds', type=int, help='(3; quick: 1)')
    options = parser.parse_args()
    report.complete(options, {'seconds': (2.0, 0.3), 'rounds': (3, 1)},
                    {'seconds': (0.01, 600), 'rounds': (1, 1000)})
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
        rounds.append(found)
        report.log(f'round {number + 1} of {options.rounds}')
    report.deliver('twin', {
        'seconds': options.seconds, 'rounds': options.rounds,
        'arm_steps_per_s': {name: statistics.median(each[name] for each in rounds)
                            for name in rounds[0]}}, options, text)


def text(found: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    figures = found['arm_steps_per_s']
    names = {'bare': '`mj_step` alone', 'simulation': '`ArmSimulation`'} | {
        name: f'{"kinematic twin" if kind == "twin" else "task *reach*"}, {arms} arms'
        for name in figures if '_' in name for kind, arms in [name.split('_')]}
    return '\n'.join(report.table(
        ('arm steps at 10 Hz', 'per second of processor time', 'of `mj_step` alone'),
        [(title, f'{figures[name]:,.0f}', f'{figures[name] / figures["bare"]:.2f}')
         for name, title in names.items()]))
