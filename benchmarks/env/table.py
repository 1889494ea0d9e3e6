"""Figures of bench_env beside those of VDL: medians, best back end, table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report

__all__ = ['SEED', 'row', 'summary', 'table']

# VDL's figures of 2017: FPS from its JSON files (Doom: middle of its log), memory from its slides.
# The machine is not stated. It counted elements of an observation, not bytes.
SEED: Mapping[str, Mapping[str, Any]] = {
    'CartPole-v1': {
        'env_id': 'CartPole-v0', 'elements': 4, 'frames_per_s': 134426.0, 'memory_bytes': 560e3},
    'ALE/Breakout-v5': {
        'env_id': 'Breakout-v0', 'elements': 100800, 'frames_per_s': 1760.0},
    'Hopper-v5': {'env_id': 'Hopper-v1', 'elements': 11, 'frames_per_s': 5357.0},
    'Humanoid-v5': {
        'env_id': 'Humanoid-v1', 'elements': 376, 'frames_per_s': 1675.0, 'memory_bytes': 81e6},
    'VizdoomDeathmatch': {
        'env_id': 'ppaquette/DoomDeathmatch-v0', 'elements': 921600, 'frames_per_s': 540.0},
}
_BACKENDS = ('sync', 'async', 'own', 'own-threads', 'actors')
_COLUMNS = ('environment', 'observation', 'bytes', 'MB first', 'MB each', 'single', *_BACKENDS,
            'best/single', 'seed', 'seed MB', 'single/seed', 'best/seed')


def row(name: str, measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return one environment's figures.

    Args:
        measured: by back end what ``env/measure.py`` printed in each round; ``single`` is there.
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
    return {
        'frames_per_s': statistics.median(speeds), 'frames_per_s_min': min(speeds),
        'frames_per_s_max': max(speeds),
        'memory_bytes': statistics.median(each['memory_bytes'] for each in rounds),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a Markdown table; speeds in frames/s."""
    lines = []
    for each in rows:
        seed = each['seed']['frames_per_s'] if each['seed'] else None
        if 'problem' in each:
            cells = [each['name'], each['problem'], *[''] * 10, _number(seed),
                     _megabytes(each['seed']), '', '']
        else:
            shapes = ' + '.join(
                f'{leaf["dtype"]} {"x".join(map(str, leaf["shape"])) or "1"}'
                for leaf in each['observation'])
            cells = [
                each['name'], shapes, str(each['observation_bytes']),
                _number(each['memory_first_bytes'] / 1e6), _megabytes(each['single']),
                _speed(each['single'])]
            for backend in _BACKENDS:
                text = _speed(each['vectorised'].get(backend))
                cells.append(f'**{text}**' if backend == each['best'] else text)
            cells += [
                _number(each.get('best_over_single')), _number(seed), _megabytes(each['seed']),
                _number(each.get('single_over_seed')), _number(each.get('best_over_seed'))]
        lines.append(cells)
    return '\n'.join(report.table(_COLUMNS, lines))


def summary(found: Mapping[str, Any]) -> str:
    """Return one row in one line: which back end won, and by how much."""
    if 'problem' in found:
        return f'{found["name"]}: {found["problem"]}'
    text = (f'{found["name"]}: single {_speed(found["single"])} frames/s, '
            f'{_megabytes(found["single"])} MB each')
    if found['best'] is not None:
        text += (f'; best {found["best"]} {_speed(found["vectorised"][found["best"]])} frames/s, '
                 f'{_number(found.get("best_over_single"))} times single, '
                 f'{_megabytes(found["vectorised"][found["best"]])} MB each')
    failed = [f'{backend} failed: {each["problem"]}'
              for backend, each in found['vectorised'].items() if 'problem' in each]
    return '; '.join([text, *failed])


def _speed(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return ''
    return _number(figures['frames_per_s']) if 'frames_per_s' in figures else 'failed'


def _megabytes(figures: Mapping[str, Any] | None) -> str:
    memory = None if figures is None else figures.get('memory_bytes')
    return '' if memory is None else _number(memory / 1e6)


def _number(value: float | None) -> str:
    """Return three significant digits, and all digits of what is larger."""
    if value is None:
        return ''
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f'{value:,.{digits}f}'
