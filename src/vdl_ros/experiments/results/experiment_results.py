"""Results of an experiment: table, graph and page in its folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vdl_ros.common.run_files import atomic_file, write_text
from vdl_ros.experiments.results.fitness import PARTS
from vdl_ros.experiments.results.page import Page, write_page
from vdl_ros.experiments.running.search import Outcome
from vdl_ros.experiments.running.trials import TrialRunner

__all__ = ['SUMMARY', 'by_value', 'deliver_experiment', 'read_summary']

#: What an experiment came to; ``complete`` says whether all its trials have ended.
SUMMARY = 'experiment.json'


def by_value(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return trials with the best first, and those that are not complete at the end."""
    return sorted(outcomes, key=lambda each: (
        each.value is None, -(each.value or 0.0), each.number))


def read_summary(folder: Path) -> dict[str, Any]:
    """Return what :data:`SUMMARY` has in a folder; {} without one that can be read."""
    try:
        found = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def deliver_experiment(
    runner: TrialRunner, outcomes: Sequence[Outcome], importance: Mapping[str, float],
    mode: str, *, complete: bool,
) -> list[Outcome]:
    """
    Write ``experiment_df.csv``, ``experiment_graph.png``, ``index.html`` and ``experiment.json``.

    Args:
        runner: what ran the trials.
        outcomes: of the trials that ended.
        importance: share of each setting in the spread of results; may be empty.
        mode: train, search or dev.
        complete: whether all trials have ended.

    Returns:
        The outcomes, the best first.
    """
    folder, spec = runner.folder, runner.spec
    ranked = by_value(outcomes)
    names = list(spec.search.spaces) if spec.search and mode != 'train' else []
    _write_table(folder / 'experiment_df.csv', ranked, names)
    graph = folder / 'experiment_graph.png'
    if names and any(each.value is not None for each in ranked):
        from vdl_ros.experiments.results.graphs import draw_experiment
        draw_experiment(ranked, names, graph)
    write_page(Page(runner, ranked, names, dict(importance), mode, complete), graph)
    best = ranked[0] if ranked and ranked[0].value is not None else None
    counts = {state: sum(each.state == state for each in ranked)
              for state in ('complete', 'pruned', 'failed')}
    write_text(folder / SUMMARY, json.dumps({
        'spec': spec.name, 'mode': mode, 'complete': complete, 'trials': counts,
        'best': None if best is None else {
            'trial': best.number, 'values': best.values, **best.record},
        'importance': importance}, indent=1) + '\n')
    return ranked


def _write_table(path: Path, ranked: Sequence[Outcome], names: Sequence[str]) -> None:
    """Write a row for each trial, the best first."""
    scored = ('fitness', *PARTS, 'final_return')
    with atomic_file(path) as partial, partial.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('trial', 'state', *scored, *names))
        for each in ranked:
            writer.writerow((each.number, each.state, *(each.record.get(part, '')
                             for part in scored), *(each.values.get(name, '') for name in names)))
