"""How well policies and scripts do the tasks of the arm, in the kinematic twin.

    ros2 run vdl_ros bench_reach [--checkpoint FILE] [--targets N] [--delays MS,MS] [--json]
    ros2 run vdl_ros bench_reach --task push|pick_place [--checkpoint FILE]
        [--demonstrations FOLDER]

The arms, starts, places and success are those of ``vdl_ros/OWI535Reach-v0``, one episode each, and
the same for each controller: *random*, a policy that chooses each motor's direction at random, ten
times a second; *controller*, inverse kinematics once and the trajectory controller, 50 times a
second, as ``ros2 run vdl_ros go_to`` and ``arm_controller`` do; *policy*, that of the checkpoint,
its most likely action ten times a second. Delays are added to those of the twins. A controller
that is told by stamps that measurements are older would stop at ``stale_after``, which is
increased by the delay.

With ``--task`` it is ``vdl_ros/OWI535Push-v0`` or ``vdl_ros/OWI535PickPlace-v0``, joints by truth,
*controller* is ``benchmarks/cube/controller.py``, *likeliest* and *sampled* are the policy's
actions. With ``--demonstrations`` nothing is measured: the controller's episodes with success
become a LeRobot data set (docs/demonstrations.md).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from benchmarks import report
from benchmarks.cube.controller import ScriptedController
from vdl_ros.arm.control.controller import ControllerConfig, TrajectoryController
from vdl_ros.arm.kinematics import InverseKinematics, UnreachableError
from vdl_ros.common.files import find_resource
from vdl_ros.common.settings import select
from vdl_ros.demonstrations.env_recorder import new_data_set
from vdl_ros.envs.owi535.arm_env import RATE
from vdl_ros.envs.owi535.arm_task import HOLD
from vdl_ros.envs.owi535.cube import CubeTask, PickPlaceTask, PushTask
from vdl_ros.envs.owi535.reach import MOTORS, ReachTask
from vdl_ros.envs.registration import (
    PICK_PLACE,
    PICK_PLACE_STEPS,
    PUSH,
    PUSH_STEPS,
    REACH,
    REACH_STEPS,
)
from vdl_ros.play.saved_policy import SavedPolicy, load_policy
from vdl_ros.rl.acting.evaluation import Act

#: Time for a target, s.
LIMIT = REACH_STEPS / RATE
#: Until nothing changes after all motors are off, s: longer than any delay of commands and HOLD.
REST = 2.5
#: Updates of the trajectory controller per second, as in ``nodes/arm_controller.py``.
CONTROLLER_RATE = 50.0
FEEDBACKS, TWINS = ('truth', 'camera'), ('inside', 'held_out')
#: Tasks with a cube, by name: class, environment and time limit, in steps.
CUBE_TASKS: dict[str, tuple[type[CubeTask], str, int]] = {
    'push': (PushTask, PUSH, PUSH_STEPS),
    'pick_place': (PickPlaceTask, PICK_PLACE, PICK_PLACE_STEPS)}


class Case(NamedTuple):
    """How joints are measured, which twins, and the added delay, ms."""

    feedback: str
    twins: str
    delay_ms: int


class Controller(Protocol):
    """Commands the arms of a task; made for one case."""

    @property
    def over(self) -> bool:
        """Return whether it has ended: all motors stay off."""

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the next actions, int [B, 4]."""


class RandomPolicy:
    """Any action, equally likely."""

    over = False

    def __init__(self, seed: int, motors: int = len(MOTORS)) -> None:
        self._random, self._motors = np.random.default_rng(seed), motors

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return random actions."""
        return self._random.integers(0, 3, (len(observations), self._motors))


class TrainedPolicy:
    """The most likely actions of a policy, or sampled ones."""

    over = False

    def __init__(self, saved: SavedPolicy, deterministic: bool = True) -> None:
        self._act = Act(saved.policy, saved.action_space, deterministic=deterministic)

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the policy's actions."""
        return self._act(observations)


class JointController:
    """A trajectory controller for each arm, which moves to the solution of inverse kinematics."""

    def __init__(self, task: ReachTask, case: Case, delay: float) -> None:
        self._task = task
        config = ControllerConfig() if case.feedback == 'truth' else camera_config()
        config = dataclasses.replace(config, stale_after=config.stale_after + delay)
        planner = InverseKinematics(task.geometry, task.checker.collides)
        self._controllers = []
        for positions, target in zip(task.reading.positions, task.targets, strict=True):
            controller = TrajectoryController(task.geometry, config)
            # A place to which there is no way is one that is not reached.
            try:
                goal = planner.plan(target, positions)
                controller.start(goal.names, [goal.positions], [goal.duration])
            except UnreachableError as error:
                report.log(str(error))
            self._controllers.append(controller)

    @property
    def over(self) -> bool:
        """Return whether no trajectory runs."""
        return all(each.state != 'running' for each in self._controllers)

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the next actions."""
        task = self._task
        rows = zip(self._controllers, task.time.tolist(), *task.reading, strict=True)
        return np.array([
            controller.update(now, positions, float(stamp))[:len(MOTORS)]
            if controller.state == 'running' else (0,) * len(MOTORS)
            for controller, now, positions, stamp in rows], np.int64) + 1


def camera_config() -> ControllerConfig:
    """Return the settings of ``arm_controller`` with ``feedback:=camera``."""
    text = find_resource('config/arm/camera_feedback.yaml').read_text()
    return select(ControllerConfig, yaml.safe_load(text)['/**']['ros__parameters'])


def measure(name: str, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a controller; of each target its time, s, None if not reached."""
    delay = case.delay_ms / 1000.0
    task = ReachTask(
        options.targets, randomisation=case.twins, feedback=case.feedback,
        rate=CONTROLLER_RATE if name == 'controller' else RATE,
        **{f'{options.delay_of}_delay': delay})
    random = np.random.default_rng(options.seed)
    observations = task.reset(np.arange(options.targets), random)
    controller: Controller
    if name == 'controller':
        measured_later = delay if options.delay_of == 'measurement' else 0.0
        controller = JointController(task, case, measured_later)
    else:
        controller = (RandomPolicy(options.seed) if name == 'random'
                      else TrainedPolicy(options.policy))
    seconds: list[float | None] = [None] * options.targets
    switches = np.zeros(options.targets)
    end = LIMIT
    while task.time[0] < end - 1e-6 and None in seconds:
        if controller.over:
            end = min(end, float(task.time[0]) + REST)
        outcome = task.step(controller.act(observations), random)
        observations = outcome.observations
        going = np.array([each is None for each in seconds])
        switches += np.where(going, outcome.switched, 0)
        for row in np.flatnonzero(going & outcome.success):
            seconds[row] = round(float(task.time[row]) - HOLD, 2)
    times = [each for each in seconds if each is not None]
    return {
        **case._asdict(), 'controller': name, 'reached': len(times),
        'median_s': round(statistics.median(times), 3) if times else None,
        'mean_s': round(statistics.fmean(times), 3) if times else None,
        'switches': round(float(switches.mean()), 2), 'seconds': seconds}


def slower(figures: Mapping[str, Any], than: Mapping[str, Any]) -> float | None:
    """Return the ratio of the mean times to places that both reached; None if there is none."""
    both = [(a, b) for a, b in zip(figures['seconds'], than['seconds'], strict=True)
            if a is not None and b is not None]
    other = sum(b for _, b in both)
    return sum(a for a, _ in both) / other if other else None


def measure_cubes(name: str, twins: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one who acts in a task with a cube."""
    kind, _, limit = CUBE_TASKS[options.task]
    task = kind(options.targets, randomisation=twins)
    random = np.random.default_rng(options.seed)
    torch.manual_seed(options.seed)
    observations = task.reset(np.arange(options.targets), random)
    acting: Any
    if name == 'controller':
        acting = ScriptedController(task)
    elif name == 'random':
        acting = RandomPolicy(options.seed, len(task.motors))
    else:
        acting = TrainedPolicy(options.policy, deterministic=name == 'likeliest')
    over = np.zeros(options.targets, np.bool_)
    seconds: list[float] = []
    for step in range(limit):
        outcome = task.step(acting.act(observations), random)
        observations = outcome.observations
        seconds += [(step + 1) / RATE - HOLD] * int((outcome.success & ~over).sum())
        over |= outcome.terminated
    return {'twins': twins, 'by': name, 'reached': len(seconds),
            'median_s': round(statistics.median(seconds), 2) if seconds else None}


def demonstrate(options: argparse.Namespace) -> None:
    """Write the controller's episodes, inside the ranges, that end with success."""
    kind, env_id, limit = CUBE_TASKS[options.task]
    task = kind(options.targets)
    random = np.random.default_rng(options.seed)
    observations = task.reset(np.arange(options.targets), random)
    controller = ScriptedController(task)
    over = np.zeros(options.targets, np.bool_)
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
    parser = report.Parser('bench_reach', __doc__, quick='20 targets, no added delay')
    parser.add_argument('--task', choices=('reach', *CUBE_TASKS), default='reach', help='(reach)')
    parser.add_argument('--targets', type=int, help='episodes (100; quick: 20)')
    parser.add_argument('--delays', help='added delays, ms (0,100,200,300; quick: 0)')
    parser.add_argument('--delay-of', choices=('measurement', 'command'), default='measurement',
                        help='what comes later by an added delay (measurement)')
    parser.add_argument('--checkpoint', type=Path, metavar='FILE', help='measure this policy too')
    parser.add_argument('--seed', type=int, default=0, help='of arms, starts and places (0)')
    parser.add_argument('--demonstrations', type=Path, metavar='FOLDER',
                        help='write episodes of the script for a cube, and measure nothing')
    options = parser.parse_args()
    report.complete(options, {'targets': (100, 20), 'delays': ('0,100,200,300', '0')},
                    {'targets': (1, 10_000), 'seed': (0, 2**31)})
    options.delays = report.numbers('--delays', options.delays, 0, 1000)
    if options.demonstrations and options.task == 'reach':
        raise ValueError(f'--demonstrations: not allowed with --task reach: '
                         f'{" or ".join(CUBE_TASKS)}')
    env_id = REACH if options.task == 'reach' else CUBE_TASKS[options.task][1]
    options.policy = options.checkpoint and load_policy(options.checkpoint, env_id=env_id)
    return options


def main() -> int:
    """Measure, and print a table or one JSON object."""
    return report.run('bench_reach', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    # More threads do not pay for such small batches.
    torch.set_num_threads(1)
    steps = {'policy_agent_steps': options.policy.agent_steps if options.policy else None}
    if options.demonstrations:
        demonstrate(options)
    elif options.task == 'reach':
        report.deliver('reach', {
            'targets': options.targets, 'seed': options.seed, 'delay_of': options.delay_of,
            **steps, 'figures': _all_cases(options)}, options, text)
    else:
        names = ['random', 'controller', *(['likeliest', 'sampled'] if options.policy else [])]
        figures = []
        for twins, name in itertools.product(TWINS, names):
            figures.append(measure_cubes(name, twins, options))
            report.log(f'{twins}, {name}: {figures[-1]["reached"]} of {options.targets}')
        report.deliver('cube', {
            'task': options.task, 'episodes': options.targets, 'seed': options.seed, **steps,
            'figures': figures}, options, cube_text)


def _all_cases(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of all who reach, in every case."""
    names = ['random', 'controller', *(['policy'] if options.policy else [])]
    found: list[dict[str, Any]] = []
    for words in itertools.product(FEEDBACKS, TWINS, options.delays):
        case = Case(*words)
        each = {name: measure(name, case, options) for name in names}
        if options.policy:
            each['policy']['times_controller'] = slower(each['policy'], each['controller'])
        found += ({name: value for name, value in figures.items() if name != 'seconds'}
                  for figures in each.values())
        report.log(f'{case.feedback}, {case.twins}, {case.delay_ms} ms: ' + ', '.join(
            f'{name} {figures["reached"]}' for name, figures in each.items()))
    return found


def text(found: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    by_key = {(Case(*(each[name] for name in Case._fields)), each['controller']): each
              for each in found['figures']}
    cases, names = (list(dict.fromkeys(column)) for column in zip(*by_key, strict=True))

    def cells(each: Mapping[str, Any]) -> str:
        median, mean = (f'{each[name]:.1f}' if each[name] is not None else '-'
                        for name in ('median_s', 'mean_s'))
        ratio = each.get('times_controller')
        return (f'{each["reached"]} · {median} · {mean} · {each["switches"]:.0f}'
                + (f' · {ratio:.2f}' if ratio is not None else ''))

    head = ('joints by', 'twins', f'{found["delay_of"]} later, ms', *names)
    return (f'Reached of {found["targets"]} · median time, s · mean time, s · motor switches'
            + (' · mean time over the controller\'s' if 'policy' in names else '') + '\n\n'
            + '\n'.join(report.table(head, [
                (case.feedback, case.twins, str(case.delay_ms),
                 *(cells(by_key[case, name]) for name in names)) for case in cases])))


def cube_text(found: Mapping[str, Any]) -> str:
    """Return the figures of a task with a cube as a Markdown table."""
    cells = {(each['twins'], each['by']): f'{each["reached"]} · ' + (
        '-' if each['median_s'] is None else f'{each["median_s"]:.1f}')
        for each in found['figures']}
    twins, names = (list(dict.fromkeys(column)) for column in zip(*cells, strict=True))
    return f'Of {found["episodes"]} · median time, s\n\n' + '\n'.join(report.table(
        (found['task'], *names),
        [(row, *(cells[row, name] for name in names)) for row in twins]))
