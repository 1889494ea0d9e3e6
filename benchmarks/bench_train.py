"""A training run through the graph, beside serial mode and the roofline of this machine.

Roofline = cores / (t_step + t_infer + t_learn): the seconds per agent step of the environment,
the policy's network and the update, each measured alone on one core. The graph of
``train.launch.py``, serial mode and the three parts are measured in turn, round after round.
Speeds exclude start and warm-up.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import report
from vdl_ros.common.metrics import PHASES

PARTS = ('step', 'infer', 'learn')
# Options, and the settings that they set.
OPTIONS = {'env': 'env_id', 'network': 'network', 'num_envs': 'num_envs',
           'unroll_length': 'unroll_length', 'batch_size': 'batch_size'}
# Updates of 640 steps from 16 environments each, as in the systems it is compared with; they come
# before those of a task's preset.
DEFAULTS = {'unroll_length': '20', 'batch_size': '2', 'max_in_flight': '4'}
# Settings that the benchmark sets itself.
RESERVED = ('num_actors', 'num_learners', 'learner_rank', 'total_steps', 'stop_at_return',
            'run_dir', 'resume', 'launch_id')
WARM_UP = 0.25  # of the measured seconds, before them
PART_LIMIT = 600.0  # s beside the measurement: updates of large networks take long


def arguments(
    words: Sequence[str] | None = None,
) -> tuple[argparse.Namespace, Any, dict[str, Any]]:
    """Return the options, the plan of the runs, and every setting as resolved."""
    from benchmarks.graph import Plan
    from vdl_ros.common.settings import SettingError, as_dict, select, settings_of, suggestion
    from vdl_ros.envs import factory
    from vdl_ros.envs.env_config import EnvConfig
    from vdl_ros.recipes import config_file
    from vdl_ros.rl.policy.policy import make_policy
    from vdl_ros.rl.runs.run_config import RunConfig
    from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig, make_algorithm_config, verify
    from vdl_ros.ros.node_settings import ProcessConfig

    parser = report.Parser('bench_train', __doc__)
    parser.add_argument('--env', default='ALE/Pong-v5', metavar='ID', help='(ALE/Pong-v5)')
    # Texts, checked as settings; the task's preset has the defaults.
    parser.add_argument('--network', metavar='NAME')
    parser.number('--num-actors', int, 'processes', (2, 2), (1, 256))
    parser.add_argument('--num-envs', metavar='B', help='environments of an actor')
    parser.add_argument('--unroll-length', metavar='T', help='steps of a trajectory (20)')
    parser.add_argument('--batch-size', metavar='N', help='trajectories of an update (2)')
    parser.add_argument('--set', action='append', default=[], metavar='NAME:=VALUE',
                        help='any other setting; may be given more than once')
    parser.number('--seconds', float, 'of each measurement', (20.0, 3.0), (0.5, 3600))
    parser.number('--rounds', int, 'measurements of each', (3, 1), (1, 1000))
    options = parser.complete(words)
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
    values = config_file.resolve({
        name: (learning | launching)[name].parse(value) for name, value in given.items()})
    env, train = select(EnvConfig, values), select(TrainConfig, values)
    algorithm = make_algorithm_config(train, values)
    verify(train, algorithm)
    make_policy(train, *factory.spaces(env), algorithm)
    plan = Plan(
        settings={name: value for name, value in given.items() if name in learning},
        more={name: value for name, value in given.items() if name in launching},
        num_actors=options.num_actors, warm_up=WARM_UP * options.seconds, seconds=options.seconds)
    return options, plan, as_dict(env, train, algorithm)


def measure(
    options: argparse.Namespace, plan: Any, settings: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return the results of each round by measurement; each round begins with another one."""
    from benchmarks.graph import listener, run_graph, run_module, run_serial

    rounds = []
    with listener() as reports:
        tasks: list[tuple[str, Callable[[], dict[str, Any]]]] = [
            ('graph', lambda: run_graph(plan, reports)), ('serial', lambda: run_serial(plan)),
            *((part, lambda part=part: run_module(
                'benchmarks.train_parts', part, str(plan.seconds), json.dumps(settings),
                limit=PART_LIMIT + 2.0 * plan.seconds)) for part in PARTS)]
        for number in range(options.rounds):
            found: dict[str, Any] = {}
            for name, task in report.turned(tasks, number):
                found[name] = task()
                speed = found[name].get('steps_per_s') or 1 / found[name]['seconds_per_step']
                report.log(f'round {number + 1}: {name}: {speed:,.0f} agent steps/s')
            rounds.append(found)
    return rounds


def result(rounds: Sequence[Mapping[str, Any]], cores: int, num_actors: int) -> dict[str, Any]:
    """Return the figures over all rounds.

    Speeds and times are medians; roofline, efficiency and ratio are of these medians. Shares and
    processor use are means, losses sums.

    Args:
        rounds: each with ``graph`` and ``serial`` as of graph.py, and by part what
            train_parts.py printed.
        num_actors: receivers of each policy.
    """
    graphs, serials = ([each[name] for each in rounds] for name in ('graph', 'serial'))
    runs, summaries = graphs + serials, [each['summary'] for each in graphs]
    speed, serial = (
        statistics.median(each['steps_per_s'] for each in kind) for kind in (graphs, serials))
    times = {part: statistics.median(each[part]['seconds_per_step'] for each in rounds)
             for part in PARTS}
    roof = cores / sum(times.values())
    steps = sum(each['agent_steps'] for each in summaries)
    wire_in, wire_out = (sum(each['wire_bytes'][way] for each in summaries) / steps
                         for way in ('in', 'out'))
    wire_out *= num_actors  # a policy crosses the wire once for each actor
    return {
        'steps_per_s': speed, 'serial_steps_per_s': serial, 'roofline_steps_per_s': roof,
        'efficiency': speed / roof, 'serial_efficiency': serial / roof,
        'serial_ratio': speed / serial,
        **{f't_{part}_us': time * 1e6 for part, time in times.items()},
        'wire_bytes_per_step_in': wire_in, 'wire_bytes_per_step_out': wire_out,
        **{name: sum(each[name] for each in summaries)
           for name in ('trajectories_lost', 'trajectories_rejected')},
        'parameters': rounds[0]['infer']['parameters'],
        'time_shares': report.mean([each['time_shares'] for each in runs]),
        'processes': report.mean([each['processes'] for each in runs])}


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_train', arguments, lambda found: _measure_and_deliver(*found))


def _measure_and_deliver(options: argparse.Namespace, plan: Any, settings: dict[str, Any]) -> None:
    from benchmarks.graph import own_domain
    with own_domain(configure=True):
        rounds = measure(options, plan, settings)
    cores = len(os.sched_getaffinity(0))
    report.deliver('train', {
        'cores': cores, 'env': settings['env_id'], 'num_actors': options.num_actors,
        'seconds': options.seconds, 'set': options.set,
        **{name: settings[name] for name in (
            'network', 'num_envs', 'unroll_length', 'batch_size', 'inference')},
        'settings': settings, **result(rounds, cores, options.num_actors)}, options, markdown)


def markdown(found: Mapping[str, Any]) -> str:
    rows = [{'process': process, 'thread': thread, **shares, **use}
            for process, use in sorted(found['processes'].items())
            for thread, shares in sorted(found['time_shares'].get(process, {'': {}}).items())]
    return '\n'.join([
        *report.table(('', 'agent steps/s', 'of the roofline'), [
            ('roofline', f'{found["roofline_steps_per_s"]:,.0f}', '1'),
            ('distributed', f'{found["steps_per_s"]:,.0f}', f'{found["efficiency"]:.2f}'),
            ('serial', f'{found["serial_steps_per_s"]:,.0f}',
             f'{found["serial_efficiency"]:.2f}')]),
        '',
        f'{found["env"]}, {found["num_actors"]} actors of {found["num_envs"]} environments, '
        f'T = {found["unroll_length"]}, {found["batch_size"]} trajectories an update, network '
        f'{found["network"]} ({found["parameters"]:,} parameters), {found["cores"]} cores: '
        f'distributed / serial {found["serial_ratio"]:.2f}.',
        f'One agent step alone on one core: step {found["t_step_us"]:.1f}, infer '
        f'{found["t_infer_us"]:.1f}, learn {found["t_learn_us"]:.1f} us. On the wire '
        f'{found["wire_bytes_per_step_in"]:,.0f} bytes to the learner and '
        f'{found["wire_bytes_per_step_out"]:,.0f} from it. Lost '
        f'{found["trajectories_lost"]}, rejected {found["trajectories_rejected"]}.',
        '',
        *report.columns(
            {'process': '{process}', 'thread': '{thread}',
             **{phase: f'{{{phase}:.1%}}' for phase in PHASES},
             'cores': '{cpu_cores:.2f}', 'MB': '{memory_mb:.0f}'}, rows)])
