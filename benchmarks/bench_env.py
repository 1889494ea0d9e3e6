"""Frames a second of environments of which many copies are stepped together.

Random actions are sampled beforehand, as in VDL's ``gym-fps.py``. Copies are stepped by every back
end that exists for the environment (``env_measure.py``). Each measurement runs in a new process;
figures are medians over the rounds.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.graph import run_module

ENVIRONMENTS = ('CartPole-v1', 'ALE/Breakout-v5', 'Hopper-v5', 'Humanoid-v5', 'VizdoomDeathmatch')
# VDL's frames/s of one environment, of 2017, from its JSON files (Doom: middle of its log). The
# machine is not stated.
SEED = {'CartPole-v1': 134426.0, 'ALE/Breakout-v5': 1760.0, 'Hopper-v5': 5357.0,
        'Humanoid-v5': 1675.0, 'VizdoomDeathmatch': 540.0}
# For slow machines, where sixteen processes import a simulator each, s.
PATIENCE_S = 120.0
BACKENDS = ('sync', 'async', 'own', 'actors')

#: An environment and a back end.
Cell = tuple[str, str]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, with the names of the environments, and ``missing``, reasons by name."""
    from benchmarks.env_measure import NotInstalledError, prepare

    parser = report.Parser('bench_env', __doc__)
    parser.add_argument('--env', nargs='+', default=ENVIRONMENTS, metavar='NAME',
                        help='Gymnasium ids, or dummy/OBS<n>-FPS<f>-v0')
    parser.number('--num-envs', int, 'copies together', (16, 8), (1, 1024))
    parser.number('--seconds', float, 'of each measurement', (3.0, 0.2), (0.01, 600))
    parser.number('--rounds', int, 'measurements of each', (5, 1), (1, 1000))
    options = parser.complete(words)
    options.env = list(dict.fromkeys(options.env))
    options.missing = {}
    for name in options.env:
        try:
            prepare(name)
        except NotInstalledError as error:
            options.missing[name] = f'not installed: {error}'
    return options


def measure(options: argparse.Namespace) -> tuple[dict[Cell, list[dict[str, Any]]],
                                                  dict[Cell, str]]:
    from benchmarks.env_measure import backends

    def one(cell: Cell, number: int) -> dict[str, Any]:
        found = run_module(
            'benchmarks.env_measure', *cell, str(options.num_envs), str(options.seconds),
            limit=PATIENCE_S + 2.0 * options.seconds)
        report.log(f'round {number + 1}: {" ".join(cell)}: {found["frames_per_s"]:.0f} frames/s')
        return found

    return report.collect([
        (name, backend) for name in options.env if name not in options.missing
        for backend in backends(name)], options.rounds, one)


def row(
    name: str, measured: Mapping[str, Sequence[Mapping[str, Any]]], problems: Mapping[str, str],
) -> dict[str, Any]:
    """Return one environment's figures, medians.

    Args:
        measured: by back end what ``env_measure.py`` printed in each round.
        problems: by back end why it failed, or by ``all`` why nothing is installed.
    """
    return {'name': name, 'seed': SEED.get(name), 'problems': dict(problems), 'frames_per_s': {
        backend: statistics.median(each['frames_per_s'] for each in rounds)
        for backend, rounds in measured.items()}}


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_env', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    measured, problems = measure(options)
    problems |= {(name, 'all'): text for name, text in options.missing.items()}

    def of(name: str, found: Mapping[Cell, Any]) -> dict[str, Any]:
        return {backend: each for (other, backend), each in found.items() if other == name}

    report.deliver('env', {
        'num_envs': options.num_envs, 'seconds': options.seconds, 'rounds': options.rounds,
        'rows': [row(name, of(name, measured), of(name, problems)) for name in options.env]},
        options, readable)


def readable(found: Mapping[str, Any]) -> str:
    """Return the table, speeds in frames/s, and a line for each problem."""
    columns = {
        'environment': '{name}', **{name: f'{{frames_per_s[{name}]:,.0f}}' for name in BACKENDS},
        'seed': '{seed:,.0f}'}
    return '\n'.join([
        *report.columns(columns, found['rows']),
        f'\nframes/s, medians of {found["rounds"]}; {found["num_envs"]} copies, seed: one\n',
        *(f'{each["name"]}: {backend}: {problem}' for each in found['rows']
          for backend, problem in each['problems'].items())])
