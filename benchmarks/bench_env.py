"""Frames a second, size of observations and memory of environments, one alone and many together.

As VDL's ``gym-fps.py`` and ``obs-stat.py``, with random actions sampled beforehand. Copies are
stepped by every back end that exists for the environment (``env_measure.py``). Each measurement
runs in a new process; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
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


def run(name: str, backend: str, num_envs: int, seconds: float) -> dict[str, Any]:
    """Return the JSON object of one measurement, or ``error``."""
    try:
        return run_module('benchmarks.env_measure', name, backend, str(num_envs), str(seconds),
                          limit=PATIENCE_S + 2.0 * seconds)
    except RuntimeError as error:
        return {'error': str(error).splitlines()[-1]}


def collect(
    names: Sequence[str], num_envs: int, seconds: float, rounds: int,
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the measurements by environment and back end; one that fails is not repeated."""
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in names}
    for number in range(rounds):
        for name in names:
            pending = ['single']
            while pending:
                backend = pending.pop(0)
                before = measured[name].setdefault(backend, [])
                if before and 'frames_per_s' not in before[-1]:
                    continue
                found = run(name, backend, num_envs, seconds)
                before.append(found)
                text = (f'{found["frames_per_s"]:.0f} frames/s' if 'frames_per_s' in found
                        else found.get('error') or f'not installed: {found["missing"]}')
                report.log(f'round {number + 1}: {name} {backend}: {text}')
                if backend == 'single':
                    pending += found.get('backends', [])
    return measured


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, with the names of the environments resolved."""
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
    for name in options.env:
        with contextlib.suppress(NotInstalledError):
            prepare(name)
    return options


def row(name: str, measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return one environment's figures.

    Args:
        measured: by back end what ``env_measure.py`` printed in each round; ``single`` is there.
    """
    found: dict[str, Any] = {'name': name, 'seed': dict(SEED[name]) if name in SEED else None}
    first = measured['single'][0]
    for key, form in (('missing', 'not installed: {}'), ('error', '{}')):
        if key in first:
            return found | {'problem': form.format(first[key])}
    figures = {backend: _figures(rounds) for backend, rounds in measured.items()}
    single = figures.pop('single')
    works = {backend: each['frames_per_s'] for backend, each in figures.items()
             if 'frames_per_s' in each}
    best = max(works, key=works.__getitem__, default=None)
    found |= {
        'observation': first['observation'],
        'observation_bytes': sum(leaf['bytes'] for leaf in first['observation']),
        'memory_first_bytes': first['memory_first_bytes'],
        'single': single, 'vectorised': figures, 'best': best,
    }
    if best is not None and 'frames_per_s' in single:
        found['best_over_single'] = works[best] / single['frames_per_s']
    if found['seed'] and 'frames_per_s' in single:
        seed = found['seed']['frames_per_s']
        found['single_over_seed'] = single['frames_per_s'] / seed
        found['best_over_seed'] = works[best] / seed if best is not None else None
    return found


def _figures(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return median, least and most over the rounds; a back end that failed once has failed."""
    for each in rounds:
        if 'error' in each:
            return {'problem': each['error']}
    speeds = [each['frames_per_s'] for each in rounds]
    return {'frames_per_s': statistics.median(speeds), 'frames_per_s_min': min(speeds),
            'frames_per_s_max': max(speeds),
            'memory_bytes': statistics.median(each['memory_bytes'] for each in rounds)}


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_env', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    measured = collect(options.env, options.num_envs, options.seconds, options.rounds)
    report.deliver('env', {
        'num_envs': options.num_envs, 'seconds': options.seconds, 'rounds': options.rounds,
        'rows': [row(name, measured[name]) for name in options.env]}, options, readable)


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
    if 'problem' in each:
        return [each['problem']]
    return [f'{backend}: {figures["problem"]}' for backend, figures in (
        ('single', each['single']), *each['vectorised'].items()) if 'problem' in figures]


def _cells(each: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with texts of shapes, memory and speeds."""
    cells = {**each, 'seed_mb': _megabytes((each['seed'] or {}).get('memory_bytes'))}
    if 'problem' in each:
        return cells | {'shapes': each['problem']}
    speeds = {'single': each['single'], **each['vectorised']}
    return cells | {
        name: f'{figures["frames_per_s"]:,.0f}' if 'frames_per_s' in figures else 'failed'
        for name, figures in speeds.items()} | {
        'shapes': ' + '.join(f'{leaf["dtype"]} {"x".join(map(str, leaf["shape"])) or "1"}'
                             for leaf in each['observation']),
        'first': _megabytes(each['memory_first_bytes']),
        'each': _megabytes(each['single'].get('memory_bytes'))}


def _megabytes(value: float | None) -> str | None:
    return None if value is None else f'{value / 1e6:.3g}'
