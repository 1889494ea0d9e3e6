"""How soon a robot learns on its topics, from nothing, from a person who shows, and who helps.

The robots are simulated: the arm's twin (reach, also by the images of its camera, push, pick and
place) and ``examples/diff_drive``.
A script is the person, who sees and presses what a person would (``arm_person.py``,
``examples/diff_drive/person.py``). *nothing*: nobody; *shown*: the first episodes are the
person's, as demonstrations; *helped*: as that, and then the person takes over an episode in which
the robot strays. A trial ends once 90 % of the last 50 episodes have succeeded without help, or
after the longest time; then the policy plays 50 episodes by its likeliest actions. Times are of
the robot's clock. Run it in the repository.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rclpy
from rclpy.node import Node

from benchmarks import report
from benchmarks.graph import launch_command, launched, module_command, own_domain, wait
from vdl_ros.msg import Episode
from vdl_ros.rl.plots.curve_plot import draw_curves
from vdl_ros.rl.plots.curves import make_curve, tidy
from vdl_ros.ros import qos

CASES = ('nothing', 'shown', 'helped')
# Of the last episodes so many have to succeed without help.
EPISODES, SHARE = 50, 0.9
# Patience of a person who only shows, s.
NEVER = 1e9
_LOOK_S = 0.1
# Simulated seconds per second: on two cores more would make actions late.
_ARM_SPEED, _CAMERA_SPEED, _DRIVE_SPEED = 2.5, 1.0, 5.0


class Robot(NamedTuple):
    """A simulated robot.

    Attributes:
        rate: of the contract, Hz.
        shown: episodes that the person shows.
        patience: after which the person helps, s.
        simulations: words of their commands.
        person: words of its command.
        settings: of the training.
    """

    rate: float
    shown: int
    patience: float
    simulations: Sequence[Sequence[str]]
    person: Sequence[str]
    settings: Mapping[str, str]


def robots() -> dict[str, Robot]:
    drive = Path('examples/diff_drive').absolute()

    def node(name: str, **parameters: object) -> list[str]:
        return ['ros2', 'run', 'vdl_ros', name, '--ros-args', *(
            word for each, value in parameters.items() for word in ('-p', f'{each}:={value}'))]

    def arm(task: str, patience: float, env_id: str, *more: Sequence[str], cube: bool = False,
            speed: float = _ARM_SPEED) -> Robot:
        return Robot(
            10.0, 20, patience,
            [node('sim_arm', publish_clock=True, real_time_factor=speed, cube=cube), *more],
            module_command('benchmarks.arm_person', '--task', task, '--first', '{first}',
                           '--patience', '{patience}'),
            {'env_id': env_id, **settings})

    # At this speed it would take a tenth of a core.
    settings = {'black_box': 'none'}
    return {
        'reach': arm('reach', 8.0, 'robot/owi535_sim'),
        'camera': arm('reach', 8.0, 'robot/owi535_camera',
                      node('camera', image_width=64, image_height=64), speed=_CAMERA_SPEED),
        'push': arm('push', 12.0, 'robot/owi535_push', cube=True),
        'pick_place': arm('pick_place', 10.0, 'robot/owi535_pick_place', cube=True),
        'diff_drive': Robot(
            10.0, 20, 4.0,
            [[sys.executable, str(drive / 'simulation.py'), '--ros-args', '-p', 'robots:=1', '-p',
              f'speed:={_DRIVE_SPEED}']],
            [sys.executable, str(drive / 'person.py'), '--ros-args', '-p', 'robots:=1', '-p',
             'first:={first}', '-p', 'patience:={patience}'],
            {'env_id': 'robot/diff_drive', 'robots': str(drive), **settings})}


def measure(robot: Robot, case: str, algorithm: str, seed: int, minutes: float) -> dict[str, Any]:
    """Train once; return steps, minutes, and shares of success and help."""
    episodes: list[Episode] = []
    context = rclpy.Context()
    rclpy.init(args=[], context=context)
    node = Node('bench_teach', context=context)
    subscription = qos.sub(node, 'episodes', episodes.append)
    executor = rclpy.executors.SingleThreadedExecutor(context=context)
    executor.add_node(node)

    def steps() -> int:
        return sum(each.length for each in episodes)

    def is_over() -> bool:
        deadline = time.monotonic() + _LOOK_S
        while time.monotonic() < deadline:
            executor.spin_once(timeout_sec=_LOOK_S)
        return _is_learned(episodes) or steps() / robot.rate / 60.0 >= minutes

    words = [word.format(first=robot.shown, patience=robot.patience if case == 'helped' else NEVER)
             for word in robot.person]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / 'run'
        settings = {**robot.settings, 'algorithm': algorithm, 'seed': str(seed)}
        try:
            with contextlib.ExitStack() as simulations:
                for each in robot.simulations:
                    simulations.enter_context(launched(*each))
                with contextlib.nullcontext() if case == 'nothing' else launched(*words), launched(
                        *launch_command('train.launch.py', folder, settings)) as process:
                    wait(process, is_over, 3600.0, 'the end of a trial')
                played = _play(robot, folder)
        finally:
            executor.shutdown()
            node.destroy_subscription(subscription)
            node.destroy_node()
            rclpy.shutdown(context=context)
        summary = json.loads((folder / 'summary.json').read_text())
    last, total = episodes[-EPISODES:], steps()
    persons = sum(max(0, each.intervened) for each in episodes)
    return {
        'case': case, 'algorithm': algorithm, 'seed': seed, 'is_learned': _is_learned(episodes),
        'episodes': len(episodes), 'steps': total, 'played': played,
        'minutes': round(total / robot.rate / 60.0, 2), 'curve': _curve(episodes),
        'success_alone': round(sum(map(_alone, last)) / len(last), 3) if last else 0.0,
        'persons_share': round(persons / max(1, total), 3),
        'late_share': round(summary['late_actions'] / max(1, summary['agent_steps']), 4)}


def _play(robot: Robot, run: Path) -> float:
    """Return the share of success of the policy's likeliest actions."""
    found = run / 'played.json'
    settings = {'checkpoint': str(run), 'episodes': str(EPISODES), 'json': str(found), **{
        name: value for name, value in robot.settings.items() if name == 'robots'}}
    words = [f'{name}:={value}' for name, value in settings.items()]
    with launched('ros2', 'launch', 'vdl_ros', 'evaluate.launch.py', *words,
                  may_end=True) as process:
        wait(process, found.exists, 3600.0, 'the end of the episodes')
    success = json.loads(found.read_text())['success']
    return round(float(success['rate']), 3)


def _alone(episode: Episode) -> bool:
    return episode.success > 0 and episode.intervened <= 0


def _curve(episodes: Sequence[Episode]) -> list[list[float]]:
    """Return steps, and the share of ``EPISODES`` that succeeded without help, each tenth time."""
    return [[sum(each.length for each in episodes[:count]),
             round(sum(map(_alone, episodes[count - EPISODES:count])) / EPISODES, 3)]
            for count in range(EPISODES, len(episodes) + 1, 10)]


def _is_learned(episodes: Sequence[Episode]) -> bool:
    return (len(episodes) >= EPISODES
            and sum(map(_alone, episodes[-EPISODES:])) >= SHARE * EPISODES)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; ValueError: a name or number that is not allowed."""
    parser = report.Parser('bench_teach', __doc__, quick='one seed, five minutes of the robot')
    parser.add_argument('--robots', default=','.join(robots()), help=','.join(robots()))
    parser.add_argument('--cases', default=','.join(CASES), help=','.join(CASES))
    parser.add_argument('--algorithm', default='sac')
    parser.add_argument('--plot', type=Path, metavar='FILE.png', help='draw those that are helped')
    parser.numbers('--seeds', 'one trial of each', ('1,2,3', '1'), (1, 1000))
    parser.number('--minutes', float, "longest time of the robot's clock", (60.0, 5.0), (1, 6000))
    options = parser.complete(words)
    for name, known in (('robots', [*robots()]), ('cases', CASES)):
        found = getattr(options, name).split(',')
        if not {*found} <= {*known}:
            raise ValueError(f'--{name}: {getattr(options, name)!r} is not allowed: of '
                             f'{",".join(known)}')
        setattr(options, name, found)
    plot = options.plot
    if plot and not (plot.absolute().parent.is_dir() and 'helped' in options.cases):
        raise ValueError(f'--plot: {plot} is not allowed: a file in a folder that is '
                         'there, and with the case helped')
    return options


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table: the median of the seeds, and its range."""
    rows = []
    for name, trials in found['robots'].items():
        for case in dict.fromkeys((each['case'], each['algorithm']) for each in trials):
            mine = [each for each in trials if (each['case'], each['algorithm']) == case]
            reached = [each for each in mine if each['is_learned']]
            minutes = sorted(each['minutes'] for each in mine)
            late = max(each['late_share'] for each in mine)
            rows.append((
                name, case[1], case[0], f'{len(reached)} of {len(mine)}',
                f'{statistics.median(minutes):.1f} ({minutes[0]:.1f} to {minutes[-1]:.1f})',
                f'{statistics.median(each["steps"] for each in mine):,.0f}',
                f'{statistics.median(each["success_alone"] for each in mine):.0%}',
                f'{statistics.median(each["persons_share"] for each in mine):.0%}', f'{late:.1%}',
                ', '.join(f'{each["played"]:.0%}' for each in mine if 'played' in each)))
    return '\n'.join(report.table(
        ('robot', 'algorithm', 'case', 'learned', 'minutes', 'steps', 'success alone',
         "person's steps", 'late', 'played'), rows))


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw the success without help, of robots that were helped, over their minutes."""
    curves = []
    for name, trials in found['robots'].items():
        lines = [np.array([*each['curve'], [each['steps'], each['success_alone']]]).T
                 for each in trials if each['case'] == 'helped' and 'curve' in each]
        runs = [tidy(steps / robots()[name].rate, share) for steps, share in lines]
        if runs:
            curves.append(dataclasses.replace(make_curve(name, runs, 1), band=None))
    draw_curves(curves, path, x='time', y=f'success of {EPISODES} episodes without help',
                title='Robots that a script shows 20 episodes, and then helps', raw=True)


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_teach', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    if options.output is not None and options.output.exists():
        found = json.loads(options.output.read_text())['robots']
    known = robots()
    try:
        with own_domain(configure=True):
            for seed in options.seeds:
                for name in options.robots:
                    for case in options.cases:
                        trial = measure(
                            known[name], case, options.algorithm, seed, options.minutes)
                        report.log(f'{name}: {trial}')
                        # In real time two runs of a seed differ.
                        found.setdefault(name, []).append(trial)
    finally:
        report.deliver('teach', {
            'cores': len(os.sched_getaffinity(0)), 'minutes': options.minutes, 'robots': found},
            options, markdown)
        if options.plot is not None:
            draw({'robots': found}, options.plot)
