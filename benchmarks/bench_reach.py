"""How well policies and scripts do the tasks of the arm, in the kinematic twin.

The arms, starts, places and success are those of ``vdl_ros/OWI535Reach-v0``, one episode each, and
the same for each controller: *random*, a policy that chooses each motor's direction at random, ten
times a second; *controller*, inverse kinematics once and the trajectory controller, 50 times a
second, as ``ros2 run vdl_ros go_to`` and ``arm_controller`` do; *policy*, that of the checkpoint,
its most likely action ten times a second. Delays are added to those of the twins.

With ``--task`` it is ``vdl_ros/OWI535Push-v0`` or ``vdl_ros/OWI535PickPlace-v0``, joints by truth,
*controller* is ``benchmarks/arm_scripts.py``, *likeliest* and *sampled* are the policy's
actions. With ``--demonstrations`` nothing is measured: the controller's episodes with success
become a LeRobot data set (docs/demonstrations.md).
"""

import argparse
import dataclasses
import itertools
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from benchmarks import report
from benchmarks.arm_scripts import ScriptedController
from vdl_ros.arm.control.controller import ControllerConfig, TrajectoryController
from vdl_ros.arm.kinematics import InverseKinematics, UnreachableError
from vdl_ros.common.files import find_resource
from vdl_ros.common.settings import select
from vdl_ros.demonstrations.env_recorder import new_data_set
from vdl_ros.envs.owi535.arm_env import RATE
from vdl_ros.envs.owi535.arm_task import HOLD, ArmTask
from vdl_ros.envs.owi535.cube import CubeTask, PickPlaceTask, PushTask
from vdl_ros.envs.owi535.reach import MOTORS, ReachTask
from vdl_ros.envs.registration import PICK_PLACE, PUSH, REACH
from vdl_ros.play.saved_policy import load_policy

#: Updates of the trajectory controller per second, as in ``nodes/arm_controller.py``.
CONTROLLER_RATE = 50.0
FEEDBACKS, TWINS = ('truth', 'camera'), ('inside', 'held_out')
#: Tasks with a cube, by name: class and environment.
CUBE_TASKS: dict[str, tuple[type[CubeTask], str]] = {
    'push': (PushTask, PUSH), 'pick_place': (PickPlaceTask, PICK_PLACE)}
Acting = Callable[[NDArray[np.float32]], NDArray[np.integer]]


class Case(NamedTuple):
    """How joints are measured, which twins, and the added delay, ms."""

    feedback: str
    twins: str
    delay_ms: int


def any_action(seed: int, motors: int) -> Acting:
    """Return a policy that chooses any action, equally likely."""
    random = np.random.default_rng(seed)
    return lambda observations: random.integers(0, 3, (len(observations), motors))


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

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the next actions, int [B, 4]."""
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


def play(
    task: ArmTask, start: Callable[[], Acting], seed: int,
    on_success: Callable[[int], None] = lambda row: None,
    on_rewards: Callable[[NDArray[Any]], None] = lambda rewards: None,
) -> dict[str, Any]:
    """Play an episode with each arm; return how many had success, and their median time, s.

    Args:
        start: returns who acts, once the arms are at their starts.
        seed: of starts, places and measurements.
        on_success: called with the number of an arm.
        on_rewards: called with those of each step, [B].
    """
    count = len(task.time)
    random = np.random.default_rng(seed)
    observations = task.reset(np.arange(count), random)
    acting = start()
    seconds: list[float | None] = [None] * count
    over = np.zeros(count, np.bool_)
    while task.time[0] < task.steps / RATE - 1e-6 and not over.all():
        outcome = task.step(acting(observations), random)
        observations = outcome.observations
        on_rewards(outcome.rewards.copy())
        for row in np.flatnonzero(outcome.success & ~over):
            seconds[row] = round(float(task.time[row]) - HOLD, 2)
            on_success(row)
        over |= outcome.terminated
    times = [each for each in seconds if each is not None]
    return {'reached': len(times),
            'median_s': round(statistics.median(times), 3) if times else None}


def measure(name: str, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    delay = case.delay_ms / 1000.0
    task = ReachTask(
        options.targets, randomisation=case.twins, feedback=case.feedback,
        rate=CONTROLLER_RATE if name == 'controller' else RATE,
        **{f'{options.delay_of}_delay': delay})
    measured_later = delay if options.delay_of == 'measurement' else 0.0
    starts: dict[str, Callable[[], Acting]] = {
        'random': lambda: any_action(options.seed, len(MOTORS)),
        'controller': lambda: JointController(task, case, measured_later).act,
        'policy': lambda: options.policy.act()}
    return {**case._asdict(), 'controller': name, **play(task, starts[name], options.seed)}


def measure_cubes(name: str, twins: str, options: argparse.Namespace) -> dict[str, Any]:
    task = CUBE_TASKS[options.task][0](options.targets, randomisation=twins)
    torch.manual_seed(options.seed)
    starts: dict[str, Callable[[], Acting]] = {
        'random': lambda: any_action(options.seed, len(task.motors)),
        'controller': lambda: ScriptedController(task).act,
        'likeliest': lambda: options.policy.act(),
        'sampled': lambda: options.policy.act(deterministic=False)}
    return {'twins': twins, 'by': name, **play(task, starts[name], options.seed)}


def demonstrate(options: argparse.Namespace) -> None:
    """Write the controller's episodes, inside the ranges, that end with success."""
    kind, env_id = CUBE_TASKS[options.task]
    task = kind(options.targets)
    controller = ScriptedController(task)
    seen: list[NDArray[np.float32]] = []
    done: list[NDArray[np.int64]] = []
    rewards: list[NDArray[Any]] = []

    def act(observations: NDArray[np.float32]) -> NDArray[np.int64]:
        seen.append(observations.copy())
        done.append(controller.act(observations))
        return done[-1]

    with new_data_set(options.demonstrations, env_id, options.task, RATE) as write:
        def keep(row: int) -> None:
            write(*(np.stack([each[row] for each in steps]) for steps in (seen, done, rewards)),
                  True)
            report.log(f'{len(seen)} steps of arm {row}')

        play(task, lambda: act, options.seed, keep, rewards.append)


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_reach', __doc__, quick='20 targets, no added delay')
    parser.add_argument('--task', choices=('reach', *CUBE_TASKS), default='reach', help='(reach)')
    parser.number('--targets', int, 'episodes', (100, 20), (1, 10_000))
    parser.numbers('--delays', 'added delays, ms', ('0,100,200,300', '0'), (0, 1000))
    parser.add_argument('--delay-of', choices=('measurement', 'command'), default='measurement',
                        help='what comes later by an added delay (measurement)')
    parser.add_argument('--checkpoint', type=Path, metavar='FILE', help='measure this policy too')
    parser.number('--seed', int, 'of arms, starts and places', (0, 0), (0, 2**31))
    parser.add_argument('--demonstrations', type=Path, metavar='FOLDER',
                        help='write episodes of the script for a cube, and measure nothing')
    options = parser.complete()
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
    names = ['random', 'controller', *(['policy'] if options.policy else [])]
    found: list[dict[str, Any]] = []
    for words in itertools.product(FEEDBACKS, TWINS, options.delays):
        case = Case(*words)
        each = {name: measure(name, case, options) for name in names}
        found += each.values()
        report.log(f'{case.feedback}, {case.twins}, {case.delay_ms} ms: ' + ', '.join(
            f'{name} {figures["reached"]}' for name, figures in each.items()))
    return found


def text(found: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(each['controller'] for each in found['figures']))
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in found['figures']:
        case = {name: each[name] for name in Case._fields}
        rows.setdefault(tuple(case.values()), case)[each['controller']] = each
    columns = {'joints by': '{feedback}', 'twins': '{twins}',
               f'{found["delay_of"]} later, ms': '{delay_ms}', **{
                   name: f'{{{name}[reached]}} · {{{name}[median_s]:.1f}}' for name in names}}
    return f'Reached of {found["targets"]} · median time, s\n\n' + '\n'.join(
        report.columns(columns, rows.values()))


def cube_text(found: Mapping[str, Any]) -> str:
    names = dict.fromkeys(each['by'] for each in found['figures'])
    rows: dict[str, dict[str, Any]] = {}
    for each in found['figures']:
        rows.setdefault(each['twins'], {'twins': each['twins']})[each['by']] = each
    columns = {found['task']: '{twins}', **{
        name: f'{{{name}[reached]}} · {{{name}[median_s]:.1f}}' for name in names}}
    return f'Of {found["episodes"]} · median time, s\n\n' + '\n'.join(
        report.columns(columns, rows.values()))
