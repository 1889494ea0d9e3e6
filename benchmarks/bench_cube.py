"""Cubes that a random policy, a scripted controller and a trained policy bring to their goals.

    ros2 run vdl_ros bench_cube [--task push|pick_place] [--checkpoint FILE] [--episodes N]
        [--seed N] [--quick] [--json] [--output FILE] [--demonstrations FOLDER]

Each gets the same arms, starts, cubes and goals, one episode each, inside the ranges of training
and outside of them, joints by truth; success and time limits are those of
``vdl_ros/OWI535Push-v0`` and ``vdl_ros/OWI535PickPlace-v0``. *random* chooses each motor's
direction at random. *controller* is ``benchmarks/cube/controller.py``. *likeliest* and *sampled*
are the policy's actions. With ``--demonstrations`` nothing is measured: the controller's episodes
with success become a LeRobot data set (docs/demonstrations.md).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import report
from benchmarks.bench_reach import RandomPolicy, TrainedPolicy
from benchmarks.cube.controller import ScriptedController
from vdl_ros.demonstrations.env_recorder import new_data_set
from vdl_ros.envs.owi535.arm_env import RATE
from vdl_ros.envs.owi535.arm_task import HOLD
from vdl_ros.envs.owi535.cube import CubeTask, PickPlaceTask, PushTask
from vdl_ros.envs.registration import PICK_PLACE, PICK_PLACE_STEPS, PUSH, PUSH_STEPS
from vdl_ros.play.saved_policy import SavedPolicy, load_policy

#: By name: class, environment and time limit, in steps.
TASKS: dict[str, tuple[type[CubeTask], str, int]] = {
    'push': (PushTask, PUSH, PUSH_STEPS),
    'pick_place': (PickPlaceTask, PICK_PLACE, PICK_PLACE_STEPS)}
TWINS = ('inside', 'held_out')


class Actor(Protocol):
    """Chooses actions."""

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the next actions, int [B, motors]."""


def actor(name: str, task: CubeTask, policy: SavedPolicy | None, seed: int) -> Actor:
    """Return who acts, for a task that was reset."""
    if name == 'controller':
        return ScriptedController(task)
    if name == 'random':
        return RandomPolicy(seed, len(task.motors))
    assert policy is not None
    return TrainedPolicy(policy, deterministic=name == 'likeliest')


def measure(name: str, twins: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one who acts."""
    kind, _, limit = TASKS[options.task]
    task = kind(options.episodes, randomisation=twins)
    random = np.random.default_rng(options.seed)
    torch.manual_seed(options.seed)
    observations = task.reset(np.arange(options.episodes), random)
    acting = actor(name, task, options.policy, options.seed)
    over = np.zeros(options.episodes, np.bool_)
    seconds: list[float] = []
    for step in range(limit):
        outcome = task.step(acting.act(observations), random)
        observations = outcome.observations
        reached = int((outcome.success & ~over).sum())
        seconds += [(step + 1) / RATE - HOLD] * reached
        over |= outcome.terminated
    return {'twins': twins, 'by': name, 'reached': len(seconds),
            'median_s': round(statistics.median(seconds), 2) if seconds else None}


def demonstrate(options: argparse.Namespace) -> None:
    """Write the controller's episodes, inside the ranges, that end with success."""
    kind, env_id, limit = TASKS[options.task]
    task = kind(options.episodes)
    random = np.random.default_rng(options.seed)
    observations = task.reset(np.arange(options.episodes), random)
    controller = ScriptedController(task)
    over = np.zeros(options.episodes, np.bool_)
    seen, done = [], []
    with new_data_set(options.demonstrations, env_id, options.task, RATE) as write:
        for _ in range(limit):
            seen.append(observations)
            done.append(controller.act(observations))
            outcome = task.step(done[-1], random)
            observations = outcome.observations.copy()
            for row in np.flatnonzero(outcome.success & ~over):
                write(*(np.stack([each[row] for each in steps]) for steps in (seen, done)))
                report.log(f'{len(seen)} steps of arm {row}')
            over |= outcome.terminated


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_cube', __doc__, quick='10 episodes')
    parser.add_argument('--task', choices=tuple(TASKS), default='push', help='(push)')
    parser.add_argument('--episodes', type=int, help='(100; quick: 10)')
    parser.add_argument('--checkpoint', type=Path, metavar='FILE', help='measure this policy too')
    parser.add_argument('--seed', type=int, default=0, help='of arms, cubes and goals (0)')
    parser.add_argument('--demonstrations', type=Path, metavar='FOLDER',
                        help='write episodes of the controller, and measure nothing')
    options = parser.parse_args()
    report.complete(options, {'episodes': (100, 10)},
                    {'episodes': (1, 10_000), 'seed': (0, 2**31)})
    options.policy = options.checkpoint and load_policy(
        options.checkpoint, env_id=TASKS[options.task][1])
    return options


def main() -> int:
    """Measure, and print a table or one JSON object."""
    return report.run('bench_cube', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    # More threads do not pay for such small batches.
    torch.set_num_threads(1)
    if options.demonstrations:
        demonstrate(options)
        return
    names = ['random', 'controller', *(['likeliest', 'sampled'] if options.policy else [])]
    figures = []
    for twins in TWINS:
        for name in names:
            figures.append(measure(name, twins, options))
            report.log(f'{twins}, {name}: {figures[-1]["reached"]} of {options.episodes}')
    report.deliver('cube', {
        'task': options.task, 'episodes': options.episodes, 'seed': options.seed,
        'policy_agent_steps': options.policy.agent_steps if options.policy else None,
        'figures': figures}, options, text)


def text(found: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    figures = found['figures']
    names = list(dict.fromkeys(each['by'] for each in figures))
    cells = {(each['twins'], each['by']): f'{each["reached"]} · ' + (
        '-' if each['median_s'] is None else f'{each["median_s"]:.1f}') for each in figures}
    return (f'Of {found["episodes"]} · median time, s\n\n' + '\n'.join(report.table(
        (found['task'], *names),
        [(twins, *(cells[twins, name] for name in names))
         for twins in dict.fromkeys(each['twins'] for each in figures)])))
