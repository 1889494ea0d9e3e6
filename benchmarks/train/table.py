"""Figures of bench_train: steady rate of a run, roofline, medians over rounds, tables."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report
from vdl_ros.common.metrics import PHASES

__all__ = ['TooFewRowsError', 'markdown', 'progress_rows', 'result', 'roofline', 'steady_rate']

_PARTS = ('step', 'infer', 'learn')


class TooFewRowsError(ValueError):
    """Progress of a run is too short to measure its speed."""


def progress_rows(text: str) -> list[tuple[float, float]]:
    """Return (wall time in s, agent steps) of each whole line of a progress.csv."""
    rows = []
    for line in csv.DictReader(io.StringIO(text[:text.rfind('\n') + 1])):
        try:
            rows.append((float(line['wall_s']), float(line['agent_steps'])))
        except (KeyError, TypeError, ValueError):
            continue
    return rows


def steady_rate(
    rows: Sequence[tuple[float, float]], start: float, stop: float = float('inf'),
) -> tuple[float, float, float]:
    """Return agent steps per second between the rows within ``start`` and ``stop``.

    Args:
        rows: (wall time in s, agent steps), each written at the end of an update.
        start: s; what was before is warm-up.
        stop: s.

    Returns:
        The rate, and the wall times of these two rows.

    Raises:
        TooFewRowsError: there are no two such rows.
    """
    kept = [row for row in rows if start <= row[0] <= stop]
    if len(kept) < 2 or kept[-1][0] <= kept[0][0]:
        raise TooFewRowsError(f'{len(kept)} rows of progress after {start:g} s are too few')
    (first, before), (last, after) = kept[0], kept[-1]
    return (after - before) / (last - first), first, last


def roofline(cores: int, t_step: float, t_infer: float, t_learn: float) -> float:
    """Return the agent steps per second of ``cores`` that do nothing else; times in s per step."""
    return cores / (t_step + t_infer + t_learn)


def result(rounds: Sequence[Mapping[str, Any]], cores: int, num_actors: int) -> dict[str, Any]:
    """Return the figures over all rounds.

    Speeds and times are medians; roofline, efficiency and ratio are of these medians, and beside
    them stand those of each round. Shares and processor use are means, losses sums.

    Args:
        rounds: each with ``graph`` and ``serial`` as of train/runs.py, and by part what
            train/parts.py printed.
        num_actors: receivers of each policy.
    """
    graphs, serials = ([each[name] for each in rounds] for name in ('graph', 'serial'))
    times = {part: statistics.median(each[part]['seconds_per_step'] for each in rounds)
             for part in _PARTS}
    speed = statistics.median(each['steps_per_s'] for each in graphs)
    serial = statistics.median(each['steps_per_s'] for each in serials)
    roof = roofline(cores, *times.values())
    steps = sum(each['summary']['agent_steps'] for each in graphs)
    wire = {way: sum(each['summary']['wire_bytes'][way] for each in graphs)
            for way in ('in', 'out')}
    # A policy crosses the wire once for each actor.
    per_step = {'in': wire['in'] / steps, 'out': wire['out'] * num_actors / steps}
    lags = [each['summary']['policy_lag'] for each in graphs]
    ages = [each['summary']['message_age_ms'] for each in graphs]
    return {
        'steps_per_s': speed, 'serial_steps_per_s': serial, 'roofline_steps_per_s': roof,
        'efficiency': speed / roof, 'serial_efficiency': serial / roof,
        'serial_ratio': speed / serial,
        **{f't_{part}_us': time * 1e6 for part, time in times.items()},
        'wire_bytes_per_step': sum(per_step.values()),
        'wire_bytes_per_step_in': per_step['in'], 'wire_bytes_per_step_out': per_step['out'],
        'policy_lag': {'mean': statistics.mean(each['mean'] for each in lags),
                       'max': max(each['max'] for each in lags)},
        'message_age_ms': {
            name: report.median(each[name] for each in ages) for name in ('p50', 'p99')},
        'trajectories_lost': sum(each['summary']['trajectories_lost'] for each in graphs),
        'trajectories_rejected': sum(each['summary']['trajectories_rejected'] for each in graphs),
        'parameters': rounds[0]['infer']['parameters'],
        'time_shares': report.mean([each['time_shares'] for each in graphs + serials]),
        'processes': report.mean([each['processes'] for each in graphs + serials]),
        'foreign_cores': statistics.mean(each['foreign_cores'] for each in graphs + serials),
        'rounds': [_round(each, cores) for each in rounds],
    }


def _round(found: Mapping[str, Any], cores: int) -> dict[str, float]:
    times = [found[part]['seconds_per_step'] for part in _PARTS]
    speed, serial = found['graph']['steps_per_s'], found['serial']['steps_per_s']
    roof = roofline(cores, *times)
    return {'steps_per_s': speed, 'serial_steps_per_s': serial, 'roofline_steps_per_s': roof,
            'efficiency': speed / roof, 'serial_ratio': speed / serial,
            **{f't_{part}_us': time * 1e6 for part, time in zip(_PARTS, times, strict=True)}}



def markdown(found: Mapping[str, Any]) -> str:
    """Return the result as tables for a page."""
    spread = [each['efficiency'] for each in found['rounds']]
    lines = [
        *report.table(('', 'agent steps/s', 'of the roofline'), [
            ('roofline', f'{found["roofline_steps_per_s"]:,.0f}', '1'),
            ('distributed', f'{found["steps_per_s"]:,.0f}', f'{found["efficiency"]:.2f}'),
            ('serial', f'{found["serial_steps_per_s"]:,.0f}',
             f'{found["serial_efficiency"]:.2f}')]),
        '',
        f'{found["env"]}, {found["num_actors"]} actors of {found["num_envs"]} environments, '
        f'T = {found["unroll_length"]}, {found["batch_size"]} trajectories an update, network '
        f'{found["network"]} ({found["parameters"]:,} parameters), {found["cores"]} cores, '
        f'{len(spread)} rounds: distributed / serial {found["serial_ratio"]:.2f}, efficiency '
        f'{min(spread):.2f} to {max(spread):.2f}.',
        f'One agent step alone on one core: step {found["t_step_us"]:.1f}, infer '
        f'{found["t_infer_us"]:.1f}, learn {found["t_learn_us"]:.1f} us. On the wire '
        f'{found["wire_bytes_per_step_in"]:,.0f} bytes to the learner and '
        f'{found["wire_bytes_per_step_out"]:,.0f} from it. Policy lag '
        f'{found["policy_lag"]["mean"]:.2f} (max {found["policy_lag"]["max"]}), lost '
        f'{found["trajectories_lost"]}, rejected {found["trajectories_rejected"]}. Other '
        f'processes used {found["foreign_cores"]:.2f} cores.',
        '',
        *_shares_table(found)]
    return '\n'.join(lines)


def _shares_table(found: Mapping[str, Any]) -> list[str]:
    """Return where the time of each thread goes, in percent, and what its process uses."""
    rows = []
    for process in sorted(found['processes']):
        use = found['processes'][process]
        threads = found['time_shares'].get(process, {})
        for number, (thread, shares) in enumerate(sorted(threads.items()) or [('', {})]):
            figures = (f'{use["cpu_cores"]:.2f}', f'{use["memory_mb"]:.0f}')
            rows.append((process, thread, *(report.percent(shares.get(name)) for name in PHASES),
                         *(figures if not number else ('', ''))))
    return report.table(
        ('process', 'thread', *(f'{name} %' for name in PHASES), 'cores', 'MB'), rows)
