"""Frames a second, size of observations and memory of environments, one alone and many together.

As VDL's ``gym-fps.py`` and ``obs-stat.py``, with random actions sampled beforehand. Copies are
stepped by every back end that exists for the environment (``env_measure.py``). Each measurement
runs in a new process; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.graph import run_module

# Environments measured by default. `:84x84x4` is Atari with the actors' preprocessing: grey,
# shrunk, four frames. Dummies: VDL's groups of 1000 float64 at four rates, and a stack of
# Atari frames at full speed.
GROUPS = {
    'gym': ('CartPole-v1', 'ALE/Breakout-v5', 'ALE/Breakout-v5:84x84x4', 'Hopper-v5',
            'Humanoid-v5', 'VizdoomDeathmatch'),
    'dummy': ('dummy/OBS8000-FPS500-v0', 'dummy/OBS8000-FPS600-v0', 'dummy/OBS8000-FPS6000-v0',
              'dummy/OBS8000-FPS60000-v0', 'dummy/OBS28224-v0'),
}
# VDL's figures of 2017: FPS from its JSON files (Doom: middle of its log), memory from its slides.
# The machine is not stated. It counted elements of an observation, not bytes.
SEED: Mapping[str, Mapping[str, Any]] = {
    'CartPole-v1': {
        'env_id': 'CartPole-v0', 'elements': 4, 'frames_per_s': 134426.0, 'memory_bytes': 560e3},
    'ALE/Breakout-v5': {'env_id': 'Breakout-v0', 'elements': 100800, 'frames_per_s': 1760.0},
    'Hopper-v5': {'env_id': 'Hopper-v1', 'elements': 11, 'frames_per_s': 5357.0},
    'Humanoid-v5': {
        'env_id': 'Humanoid-v1', 'elements': 376, 'frames_per_s': 1675.0, 'memory_bytes': 81e6},
    'VizdoomDeathmatch': {
        'env_id': 'ppaquette/DoomDeathmatch-v0', 'elements': 921600, 'frames_per_s': 540.0},
}
# For slow machines, where sixteen processes import a simulator each, s.
PATIENCE_S = 120.0
_BACKENDS = ('sync', 'async', 'own', 'actors')

#: An environment and a back end.
Cell = tuple[str, str]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, with the names of the environments, and ``missing``, reasons by name."""
    from benchmarks.env_measure import NotInstalledError, prepare

    parser = report.Parser('bench_env', __doc__)
    parser.add_argument(
        '--env', nargs='+', default=list(GROUPS), metavar='NAME',
        help='Gymnasium ids, dummy/OBS<n>-FPS<f>-v0, or the groups gym and dummy (default)')
    parser.number('--num-envs', int, 'copies together', (16, 8), (1, 1024))
    parser.number('--seconds', float, 'of each measurement', (3.0, 0.2), (0.01, 600))
    parser.number('--rounds', int, 'measurements of each', (5, 1), (1, 1000))
    options = parser.complete(words)
    groups = dict(GROUPS)
    if options.quick:
        groups['dummy'] = (groups['dummy'][0], groups['dummy'][-1])
    options.env = list(dict.fromkeys(
        name for word in options.env for name in groups.get(word, (word,))))
    options.missing = {}
    for name in options.env:
        try:
            prepare(name)
        except NotInstalledError as error:
            options.missing[name] = f'not installed: {error}'
    return options


def measure(options: argparse.Namespace) -> tuple[dict[Cell, list[dict[str, Any]]],
                                                  dict[Cell, str]]:
    """Return the measurements, and why some failed."""
    from benchmarks.env_measure import backends

    def one(cell: Cell, number: int) -> dict[str, Any]:
        found = run_module(
            'benchmarks.env_measure', *cell, str(options.num_envs), str(options.seconds),
            limit=PATIENCE_S + 2.0 * options.seconds)
        report.log(f'round {number + 1}: {" ".join(cell)}: {found["frames_per_s"]:.0f} frames/s')
        return found

    return report.collect([
        (name, backend) for name in options.env if name not in options.missing
        for backend in ('single', *backends(name))], options.rounds, one)


def row(
    name: str, measured: Mapping[str, Sequence[Mapping[str, Any]]], problems: Mapping[str, str],
) -> dict[str, Any]:
    """Return one environment's figures.

    Args:
        measured: by back end what ``env_measure.py`` printed in each round.
        problems: by back end why it failed; ``single`` also if nothing is installed.
    """
    found: dict[str, Any] = {'name': name, 'seed': dict(SEED[name]) if name in SEED else None}
    if 'single' in problems:
        return found | {'problem': problems['single']}
    figures = {backend: _figures(rounds) for backend, rounds in measured.items()}
    first, single = measured['single'][0], figures.pop('single')
    best = max(figures, key=lambda backend: figures[backend]['frames_per_s'], default=None)
    found |= {
        'observation': first['observation'],
        'observation_bytes': sum(leaf['bytes'] for leaf in first['observation']),
        'memory_first_bytes': first['memory_first_bytes'], 'single': single,
        'vectorised': figures | {
            backend: {'problem': problem} for backend, problem in problems.items()},
        'best': best}
    seed = found['seed'] and found['seed']['frames_per_s']
    if best is not None:
        found['best_over_single'] = figures[best]['frames_per_s'] / single['frames_per_s']
    if seed:
        found['single_over_seed'] = single['frames_per_s'] / seed
        found['best_over_seed'] = best and figures[best]['frames_per_s'] / seed
    return found


def _figures(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return median, least and most over the rounds."""
    speeds = [each['frames_per_s'] for each in rounds]
    return {'frames_per_s': statistics.median(speeds), 'frames_per_s_min': min(speeds),
            'frames_per_s_max': max(speeds),
            'memory_bytes': statistics.median(each['memory_bytes'] for each in rounds)}


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_env', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    measured, problems = measure(options)
    problems |= {(name, 'single'): text for name, text in options.missing.items()}

    def of(name: str, found: Mapping[Cell, Any]) -> dict[str, Any]:
        return {backend: each for (other, backend), each in found.items() if other == name}

    report.deliver('env', {
        'num_envs': options.num_envs, 'seconds': options.seconds, 'rounds': options.rounds,
        'rows': [row(name, of(name, measured), of(name, problems)) for name in options.env]},
        options, readable)


def readable(found: Mapping[str, Any]) -> str:
    """Return the table, speeds in frames/s, and a line for each environment with a problem."""
    columns = {
        'environment': '{name}', 'observation': '{shapes}', 'bytes': '{observation_bytes}',
        'MB first': '{first}', 'MB each': '{each}', 'single': '{single}',
        **{name: f'{{{name}}}' for name in _BACKENDS},
        'best/single': '{best_over_single:.2f}', 'seed': '{seed[frames_per_s]:,.0f}',
        'seed MB': '{seed_mb}', 'single/seed': '{single_over_seed:.2f}',
        'best/seed': '{best_over_seed:.2f}'}
    return '\n'.join([
        *report.columns(columns, map(_cells, found['rows'])),
        f'\nframes/s, medians of {found["rounds"]}; {found["num_envs"]} copies together\n',
        *(f'{each["name"]}: {text}' for each in found['rows'] for text in _problems(each))])


def _problems(each: Mapping[str, Any]) -> list[str]:
    return [each['problem']] if 'problem' in each else [
        f'{backend}: {figures["problem"]}' for backend, figures in each['vectorised'].items()
        if 'problem' in figures]


def _cells(each: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with texts of shapes, memory and speeds."""
    cells = {**each, 'seed_mb': _megabytes((each['seed'] or {}).get('memory_bytes'))}
    if 'problem' in each:
        return cells | {'shapes': each['problem']}
    return cells | {
        name: f'{figures["frames_per_s"]:,.0f}' if 'frames_per_s' in figures else 'failed'
        for name, figures in {'single': each['single'], **each['vectorised']}.items()} | {
        'shapes': ' + '.join(f'{leaf["dtype"]} {"x".join(map(str, leaf["shape"])) or "1"}'
                             for leaf in each['observation']),
        'first': _megabytes(each['memory_first_bytes']),
        'each': _megabytes(each['single']['memory_bytes'])}


def _megabytes(value: float | None) -> str | None:
    return None if value is None else f'{value / 1e6:.3g}'
