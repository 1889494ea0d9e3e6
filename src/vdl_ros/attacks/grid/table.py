"""The grid's table: return of each phase, its interval over seeds, and what the attack cost."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vdl_ros.attacks.grid.phases import BASELINE, CLEAN, Phase

__all__ = ['figures', 'markdown']

#: Two-sided 95 % quantiles of Student's t distribution by degrees of freedom; beyond them 1.96.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
_HEAD = ('policy', 'attack', 'epsilon', 'attacked', 'seeds', 'return', '95 %', 'episodes', 'lost')


def figures(
    phases: Iterable[Phase], summaries: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """
    Return the figures of each phase that at least one seed has completed.

    Args:
        phases: in the order of the table.
        summaries: of each phase by name, what summary.json of each seed has.

    Returns:
        The phase's attributes, its name as ``phase``; ``returns`` of the last 100 episodes at
        most, one for each seed; their ``mean``, and ``interval``, half the width of its 95 %
        confidence interval over seeds, None with one seed; ``episodes`` of all seeds;
        ``inject_share``, the share of observations that were perturbed.
    """
    found = []
    for phase in phases:
        of_seeds = [each for each in summaries.get(phase.name, ())
                    if each['mean_return_100'] is not None]
        if not of_seeds:
            continue
        returns = [float(each['mean_return_100']) for each in of_seeds]
        found.append({
            'phase': phase.name,
            **{name: value for name, value in dataclasses.asdict(phase).items()
               if name != 'name'},
            'returns': returns, 'mean': statistics.fmean(returns),
            'interval': _interval(returns),
            'episodes': sum(each['episodes'] for each in of_seeds),
            'inject_share': statistics.fmean(
                (each.get('adversary') or {}).get('inject_share', 0.0) for each in of_seeds)})
    return found


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as a Markdown table; what is lost is less than the baseline's return."""
    baseline = next((each['mean'] for each in found if each['phase'] == BASELINE), None)
    rows = []
    for each in found:
        interval = each['interval']
        rows.append((
            _policy(each), each['mode'], '' if each['mode'] == CLEAN else f'{each["epsilon"]:g}',
            '' if each['mode'] == CLEAN else f'{each["inject_share"]:.0%}',
            str(len(each['returns'])), f'{each["mean"]:.1f}',
            '' if interval is None else f'± {interval:.1f}', str(each['episodes']),
            '' if baseline is None else f'{baseline - each["mean"]:.1f}'))
    return '\n'.join(
        '| ' + ' | '.join(cells) + ' |' for cells in (_HEAD, ('---',) * len(_HEAD), *rows))


def _policy(found: Mapping[str, Any]) -> str:
    """Return what says whose policy it is."""
    if not found['freeze']:
        return 'learns under it'
    after = found['after']
    return 'baseline' if after in ('', BASELINE) else str(after).replace('learned-', 'learned on ')


def _interval(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % confidence interval of the mean; None for one value."""
    if len(values) < 2:
        return None
    degrees = len(values) - 1
    quantile = _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else 1.96
    return quantile * statistics.stdev(values) / math.sqrt(len(values))
