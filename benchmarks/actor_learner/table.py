"""Figures of bench_actor_learner: ratios, shares of time, break-even size, tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import report

__all__ = [
    'SEED', 'SEED_BREAK_EVEN', 'cell', 'crossing', 'curve', 'episode_seconds', 'figures',
    'markdown', 'split']

# VDL 0.0.3 of 2017, seconds for 200 episodes of at most 100 steps: one process; two actors on the
# learner's machine; two on other machines of a cluster. Machines are not stated.
SEED: Mapping[str, Mapping[str, Any]] = {
    'CartPole-v1': {'env_id': 'CartPole-v0', 'one': 0.115, 'local': 0.088, 'remote': 0.115},
    'ALE/Breakout-v5': {'env_id': 'Breakout-v0', 'one': 21.40, 'local': 21.70, 'remote': 24.35},
    'Hopper-v5': {'env_id': 'Hopper-v1', 'one': 1.81, 'local': 0.80, 'remote': 1.30},
    'Humanoid-v5': {'env_id': 'Humanoid-v1', 'one': 4.88, 'local': 2.21, 'remote': 3.14},
}
# Bytes per ms of environment time, from its plot: two actors, three machines, 1 Gbit/s.
SEED_BREAK_EVEN = 100e3
EPISODES, LONGEST = 200, 100

SERIAL = 'serial'
_HEADS = {SERIAL: 'one process', 'actor': 'two actors, local', 'learner': 'two actors, central'}
_COMPUTATION = ('step', 'infer', 'learn')
_COMMUNICATION = ('encode', 'publish', 'receive', 'decode')
_PARTS = ('computation', 'communication', 'wait', 'other')
_LEADING = 'training'


def split(threads: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return a process's shares of time as VDL's Timer split them.

    Args:
        threads: shares by thread and phase, as of ``common/metrics.py``.

    Returns:
        ``computation`` and ``communication``, summed over the threads; ``wait`` and ``other`` of
        the training thread, or of the only one: a learner's other threads nearly always wait.
    """
    leading = threads.get(_LEADING) or next(iter(threads.values()))
    return {
        'computation': _sum(threads.values(), _COMPUTATION),
        'communication': _sum(threads.values(), _COMMUNICATION),
        'wait': leading.get('wait', 0.0), 'other': leading.get('other', 0.0)}


def _sum(threads: Iterable[Mapping[str, float]], phases: Sequence[str]) -> float:
    return sum(shares.get(phase, 0.0) for shares in threads for phase in phases)


def figures(run: Mapping[str, Any], num_actors: int) -> dict[str, Any]:
    """Return the figures of one run.

    Args:
        num_actors: receivers of what the learner sends; 0 in serial mode.
    """
    summary = run['summary']
    steps = max(summary['agent_steps'], 1)
    by_kind: dict[str, list[dict[str, float]]] = {}
    for node, threads in run['time_shares'].items():
        if threads:
            by_kind.setdefault(node.partition('_')[0], []).append(split(threads))
    wire = summary['wire_bytes']
    return {
        'steps_per_s': run['steps_per_s'], 'agent_steps': summary['agent_steps'],
        'episodes': summary['episodes'], 'trajectories_lost': summary['trajectories_lost'],
        'trajectories_rejected': summary['trajectories_rejected'],
        'wire_bytes_per_step': (wire['in'] + wire['out'] * num_actors) / steps,
        'foreign_cores': run['foreign_cores'],
        'time': {kind: report.mean(found) for kind, found in sorted(by_kind.items())}}


def cell(rounds: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the figures over the rounds by mode.

    Speeds and bytes are medians, shares of time means, losses sums. ``ratio`` is the median of
    the ratios to serial mode within each round; ``ratio_min`` and ``ratio_max`` are its spread.

    Args:
        rounds: of each round, :func:`figures` by mode, 'serial' among them.
    """
    found: dict[str, dict[str, Any]] = {}
    for mode in rounds[0]:
        runs = [each[mode] for each in rounds]
        found[mode] = {
            'steps_per_s': statistics.median(each['steps_per_s'] for each in runs),
            **{name: sum(each[name] for each in runs) for name in (
                'agent_steps', 'episodes', 'trajectories_lost', 'trajectories_rejected')},
            'wire_bytes_per_step': statistics.median(
                each['wire_bytes_per_step'] for each in runs),
            'foreign_cores': statistics.mean(each['foreign_cores'] for each in runs),
            'time': report.mean([each['time'] for each in runs]),
            'rounds_steps_per_s': [each['steps_per_s'] for each in runs]}
        if mode != SERIAL:
            ratios = [each[mode]['steps_per_s'] / each[SERIAL]['steps_per_s'] for each in rounds]
            found[mode] |= {'ratio': statistics.median(ratios), 'ratio_min': min(ratios),
                           'ratio_max': max(ratios)}
    return found


def episode_seconds(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds for ``EPISODES`` episodes by mode.

    Episodes have the mean length over all modes, so that chance makes none look faster;
    ``LONGEST`` where none has ended.
    """
    steps, episodes = (sum(each[name] for each in found.values())
                       for name in ('agent_steps', 'episodes'))
    length = min(steps / episodes, LONGEST) if episodes else LONGEST
    return {mode: EPISODES * length / each['steps_per_s'] for mode, each in found.items()}


def crossing(points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return where the ratio first falls below 1, between two points on a straight line of logs.

    Args:
        points: (size in bytes, ratio), both above 0, of growing size; at least one.

    Returns:
        ``bytes``: the size or None; ``says``: 'crossed', 'not crossed' (two actors pay at every
        size) or 'never paid' (not even at the smallest); ``pays_again``: whether they pay at a
        larger size, which hints at noise.
    """
    at, says = None, 'not crossed'
    below = next((place for place, (_, ratio) in enumerate(points) if ratio < 1.0), None)
    if below == 0:
        says = 'never paid'
    elif below is not None:
        says = 'crossed'
        (small, high), (large, low) = points[below - 1:below + 1]
        at = small * (large / small) ** (math.log(high) / math.log(high / low))
    again = below is not None and any(ratio >= 1.0 for _, ratio in points[below:])
    return {'bytes': at, 'says': says, 'pays_again': again}


def curve(step_ms: float, cells: Mapping[int, Mapping[str, Any]], mode: str) -> dict[str, Any]:
    """Return the ratio by observation size at one environment time, and its break-even."""
    points = [{'bytes': size, 'cell': found, **{
        name: found[mode][name] for name in ('ratio', 'ratio_min', 'ratio_max')}}
        for size, found in sorted(cells.items())]
    even = crossing([(each['bytes'], each['ratio']) for each in points])
    return {'step_ms': step_ms, 'points': points, 'break_even': even | {
        'bytes_per_ms': None if even['bytes'] is None else even['bytes'] / step_ms}}


def markdown(found: Mapping[str, Any]) -> str:
    """Return the result as tables for a page."""
    lines = [*_environments(found), *_sweep(found), *_times(found)]
    lines += [
        f'Environments of a process: {found["num_envs"]}; T = {found["unroll_length"]}; '
        f'trajectories of an update: {found["batch_size"]}; rounds: {found["rounds"]}, of '
        f'{found["seconds"]:g} s each; cores: {found["cores"]}; transport: {found["transport"]}.',
        *(f'{name}: {problem}' for name, problem in found['problems'].items())]
    return '\n'.join(lines)


def _environments(found: Mapping[str, Any]) -> list[str]:
    if not found['environments']:
        return []
    modes = [mode for mode in _HEADS if mode in next(iter(found['environments'].values()))['cell']]
    rows = []
    for name, each in found['environments'].items():
        seed = SEED.get(name)
        others = [mode for mode in modes if mode != SERIAL]
        rows.append([
            name, *(f'{each["seconds"][mode]:.3g}' for mode in modes),
            *(_ratio(each['cell'][mode]) for mode in others),
            *(['', '', ''] if seed is None else [
                f'{seed["one"]:g} / {seed["local"]:g} / {seed["remote"]:g}',
                f'{seed["one"] / seed["local"]:.2f}', f'{seed["one"] / seed["remote"]:.2f}'])])
    heads = [f'{_HEADS[mode]}, s' for mode in modes] + [
        f'ratio {_HEADS[mode].rpartition(" ")[2]}' for mode in modes if mode != SERIAL]
    return [
        *report.table(['environment', *heads, 'VDL s: one / two here / two remote',
                       'VDL ratio here', 'VDL ratio remote'], rows),
        '', f'Seconds for {EPISODES} episodes of at most {LONGEST} steps at the speed measured; '
        'ratio above 1: two actors are faster.', '']


def _ratio(each: Mapping[str, Any]) -> str:
    return f'{each["ratio"]:.2f} ({each["ratio_min"]:.2f} to {each["ratio_max"]:.2f})'


def _sweep(found: Mapping[str, Any]) -> list[str]:
    curves = found['break_even']
    if not curves:
        return []
    sizes = sorted({point['bytes'] for each in curves for point in each['points']})
    rows = []
    for size in sizes:
        points = [next((point for point in each['points'] if point['bytes'] == size), None)
                  for each in curves]
        rows.append([f'{size:,}', *('' if each is None else _ratio(each) for each in points)])
    how = 'computing' if found['busy'] else 'asleep'
    return [
        *report.table(
            ['bytes', *(f'ratio at {each["step_ms"]:g} ms {how}' for each in curves)], rows),
        '', *map(_verdict, curves),
        f'VDL, three machines on 1 Gbit/s: about {SEED_BREAK_EVEN:,.0f} bytes per ms.', '']


def _verdict(each: Mapping[str, Any]) -> str:
    even, sizes = each['break_even'], [point['bytes'] for point in each['points']]
    texts = {
        'crossed': lambda: f'two actors stop paying at {even["bytes"]:,.0f} bytes, '
                           f'{even["bytes_per_ms"]:,.0f} per ms',
        'not crossed': lambda: f'not crossed up to {sizes[-1]:,} bytes',
        'never paid': lambda: f'two actors do not pay at {sizes[0]:,} bytes already'}
    text = f'{each["step_ms"]:g} ms: {texts[even["says"]]()}'
    return text + ('; they pay again at a larger size' if even['pays_again'] else '') + '.'


def _times(found: Mapping[str, Any]) -> list[str]:
    """Return where the time of each kind of process goes, in percent of the wall's."""
    cells = {name: each['cell'] for name, each in found['environments'].items()} | {
        f'{point["bytes"]:,} bytes, {each["step_ms"]:g} ms': point['cell']
        for each in found['break_even'] for point in each['points']}
    rows = []
    for name, modes in cells.items():
        for mode, each in modes.items():
            rows += [[
                name, _HEADS[mode], kind,
                *(report.percent(shares[part]) for part in _PARTS),
                f'{each["wire_bytes_per_step"]:,.0f}' if mode != SERIAL else '',
                f'{each["steps_per_s"]:,.0f}'] for kind, shares in each['time'].items()]
    if not rows:
        return []
    return [*report.table(['', 'run', 'process', *(f'{part} %' for part in _PARTS),
                           'wire bytes/step', 'steps/s'], rows),
            '', 'Actors are a mean. Computation and communication of a learner are added up over '
            'its threads, waiting is of the one that trains.', '']

