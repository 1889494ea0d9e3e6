"""A training run through the graph, beside serial mode and the roofline of this machine.

    ros2 run vdl_ros bench_train [--env ALE/Pong-v5] [--num-actors N] [--quick] [--json] ...

Roofline = cores / (t_step + t_infer + t_learn): the seconds per agent step of the environment,
the policy's network and the update, each measured alone on one core. The graph of
``train.launch.py`` (a process for the learner and for each actor, DDS between them), serial mode
and the three parts are measured in turn, round after round. Speeds exclude start and warm-up.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import report

# Options, and the settings that they set.
OPTIONS = {'env': 'env_id', 'network': 'network', 'num_envs': 'num_envs',
           'unroll_length': 'unroll_length', 'batch_size': 'batch_size'}
# Updates of 640 steps from 16 environments each, as in the systems it is compared with; they come
# before those of a task's preset.
DEFAULTS = {'unroll_length': '20', 'batch_size': '2', 'max_policy_lag': '4'}
# Settings that the benchmark sets itself.
RESERVED = ('num_actors', 'num_learners', 'learner_rank', 'total_steps', 'stop_at_return',
            'run_dir', 'resume', 'launch_id')
WARM_UP = 0.25  # of the measured seconds, before them


def arguments(
    words: Sequence[str] | None = None,
) -> tuple[argparse.Namespace, Any, dict[str, Any]]:
    """Return the options, the plan of the runs, and every setting as resolved.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    from benchmarks.train.runs import Plan
    from vdl_ros.common.settings import SettingError, as_dict, select, settings_of, suggestion
    from vdl_ros.envs import factory
    from vdl_ros.envs.env_config import EnvConfig
    from vdl_ros.recipes import config_file
    from vdl_ros.rl.policy.policy import make_policy
    from vdl_ros.rl.runs.run_config import RunConfig
    from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig, make_algorithm_config, verify
    from vdl_ros.ros.node_settings import ProcessConfig

    options = _parse(words)
    report.complete(options, {'seconds': (20.0, 3.0), 'rounds': (3, 1)},
                    {'seconds': (0.5, 3600), 'rounds': (1, 1000), 'num_actors': (1, 256)})
    learning, launching = (settings_of(EnvConfig, TrainConfig, *ALGORITHM_SETTINGS.values()),
                           settings_of(RunConfig, ProcessConfig))
    given = DEFAULTS | {setting: getattr(options, name) for name, setting in OPTIONS.items()
                     if getattr(options, name) is not None}
    for word in options.set:
        name, found, value = word.partition(':=')
        if not found:
            raise ValueError(f'--set: {word!r} is not allowed: name:=value')
        if name in RESERVED or name in OPTIONS.values():
            raise ValueError(f'--set: {name} is not allowed: the benchmark has its own')
        if name not in learning | launching:
            raise SettingError(
                f'--set: no such setting {name!r}{suggestion(name, learning | launching)}')
        given[name] = value
    parsed = {name: (learning | launching)[name].parse(value) for name, value in given.items()}
    values = config_file.resolve(parsed)
    env, train = select(EnvConfig, values), select(TrainConfig, values)
    algorithm = make_algorithm_config(train, values)
    verify(train, algorithm)
    make_policy(train, *factory.spaces(env), algorithm)
    plan = Plan(
        settings={name: value for name, value in given.items() if name in learning},
        more={name: value for name, value in given.items() if name in launching},
        num_actors=options.num_actors, warm_up=WARM_UP * options.seconds, seconds=options.seconds)
    return options, plan, as_dict(env, train, algorithm)


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = report.Parser('bench_train', __doc__)
    parser.add_argument('--env', default='ALE/Pong-v5', metavar='ID', help='(ALE/Pong-v5)')
    # Texts, checked as settings; the task's preset has the defaults.
    parser.add_argument('--network', metavar='NAME')
    parser.add_argument('--num-actors', type=int, default=2, metavar='N', help='processes (2)')
    parser.add_argument('--num-envs', metavar='B', help='environments of an actor')
    parser.add_argument('--unroll-length', metavar='T', help='steps of a trajectory (20)')
    parser.add_argument('--batch-size', metavar='N', help='trajectories of an update (2)')
    parser.add_argument('--set', action='append', default=[], metavar='NAME:=VALUE',
                        help='any other setting; may be given more than once')
    parser.add_argument('--seconds', type=float, help='of each measurement (20; quick: 3)')
    parser.add_argument('--rounds', type=int, help='measurements of each (3; quick: 1)')
    return parser.parse_args(words)


def measure(
    options: argparse.Namespace, plan: Any, settings: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return the results of each round by measurement; the first one changes from round to round.

    Raises:
        RuntimeError: a measurement failed.
    """
    from benchmarks.train.parts import PARTS
    from benchmarks.train.runs import Listener, run_graph, run_part, run_serial

    rounds = []
    with contextlib.closing(Listener()) as listener:
        tasks: list[tuple[str, Callable[[], dict[str, Any]]]] = [
            ('graph', lambda: run_graph(plan, listener)), ('serial', lambda: run_serial(plan)),
            *((part, lambda part=part: run_part(part, plan, settings)) for part in PARTS)]
        for number in range(options.rounds):
            found: dict[str, Any] = {}
            turn = number % len(tasks)
            for name, task in tasks[turn:] + tasks[:turn]:
                found[name] = task()
                speed = found[name].get('steps_per_s') or 1 / found[name]['seconds_per_step']
                report.log(f'round {number + 1}: {name}: {speed:,.0f} agent steps/s')
            rounds.append(found)
    return rounds


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_train', arguments, lambda found: _measure_and_deliver(*found))


def _measure_and_deliver(
    options: argparse.Namespace, plan: Any, settings: dict[str, Any],
) -> None:
    from benchmarks.graph import own_domain
    from benchmarks.train.table import markdown, result
    with own_domain(configure=True):
        rounds = measure(options, plan, settings)
    cores = len(os.sched_getaffinity(0))
    report.deliver('train', {
        'cores': cores, 'env': settings['env_id'], 'num_actors': options.num_actors,
        'seconds': options.seconds, 'set': options.set,
        **{name: settings[name] for name in (
            'network', 'num_envs', 'unroll_length', 'batch_size', 'inference')},
        'settings': settings, **result(rounds, cores, options.num_actors)}, options, markdown)
