"""One table of the best trials of all specs of a file: ``benchmark.md`` and ``benchmark.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.run_files import write_text
from vdl_ros.experiments.results.experiment_results import read_summary

__all__ = ['deliver_benchmark']

_HEAD = ('environment', 'algorithm', 'best', 'trials', 'return by seed',
         'steps to the standard return', 'fitness')


def deliver_benchmark(folder: Path) -> str:
    """
    Write the table of the specs with results in a folder, and return it, Markdown.

    A row has the best trial of a spec: its values, the mean return of the last 100 episodes of
    each session, and the agent steps after which such a mean first reached the standard return.

    Args:
        folder: of a file of specs, with ``SPEC/MODE/experiment.json``.
    """
    rows = [row for path in sorted(folder.glob('*/*'))
            if path.name in ('search', 'train') and (row := _row(path)) is not None]
    rows.sort(key=lambda row: (row['environment'], -(row['fitness'] or 0.0), row['spec']))
    write_text(folder / 'benchmark.json', json.dumps(rows, indent=1) + '\n')
    lines = [_line(_HEAD), _line(['---'] * len(_HEAD))]
    lines += [_line((
        row['environment'], f'`{row["algorithm"]}`',
        ', '.join(f'{name} {_number(value)}' for name, value in row['values'].items()),
        str(row['trials']), ', '.join(_number(each) for each in row['returns']),
        ', '.join('–' if each is None else f'{each:,}' for each in row['steps']),
        '' if row['fitness'] is None else f'{row["fitness"]:.2f}')) for row in rows]
    text = '\n'.join(lines) + '\n'
    write_text(folder / 'benchmark.md', text)
    return text


def _row(folder: Path) -> dict[str, Any] | None:
    """Return the row of a spec; None if its best trial is not here, or no trial is complete."""
    summary = read_summary(folder)
    best = summary.get('best')
    if not best:
        return None
    try:
        trial = json.loads((folder / f'trial-{best["trial"]}' / 'trial_data.json').read_text())
    except (OSError, ValueError):
        # Of another host that searches too, or removed.
        return None
    spec = yaml.safe_load((folder / 'spec.yaml').read_text())[summary['spec']]
    agents, envs = (each if isinstance(each, list) else [each]
                    for each in (spec['agent'], spec['env']))
    standard = (trial.get('reference') or {}).get('standard_steps', 0)
    return {
        'spec': summary['spec'],
        'environment': ', '.join(str(each['env_id']) for each in envs),
        'algorithm': ', '.join(str(each.get('algorithm', '')) for each in agents),
        'values': best['values'], 'trials': sum(summary['trials'].values()),
        'complete': summary['complete'],
        'returns': [each['final_return'] for each in trial['sessions']],
        'agent_steps': [each['agent_steps'] for each in trial['sessions']],
        'steps': [round(standard / each['speed']) if each.get('speed') else None
                  for each in trial['sessions']],
        'fitness': trial.get('fitness')}


def _number(value: object) -> str:
    """Return a number as people read it."""
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def _line(cells: Sequence[str]) -> str:
    return f'| {" | ".join(cells)} |'
