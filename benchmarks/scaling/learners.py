"""Figures of bench_scaling for several learners: speed-up, efficiency, table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.scaling.table import Run, common, common_cells
from vdl_ros.common.metrics import TRAINING

__all__ = ['SEED_LEARNERS', 'learner_row', 'learners_text', 'with_efficiencies']

# impala_horovod_gym, Pong, each learner with a GPU and 45 actors of its own, an actor is one
# machine of 4 cores, gradients averaged by Horovod: agent steps/s of all by learners.
SEED_LEARNERS: Mapping[int, float] = {
    1: 5800.0, 2: 10800.0, 3: 15600.0, 4: 18800.0, 5: 21000.0, 6: 21600.0, 7: 21700.0, 8: 21600.0}


def learner_row(learners: int, actors: int, runs: Sequence[Run], kind: str) -> dict[str, Any]:
    """Return the figures of so many learners, medians over the rounds.

    ``learner_waits`` and ``learner_learns`` are shares of the training threads' time, the mean of
    all learners; ``update_s`` is the time of an update, with the sums over all learners.

    Args:
        runs: of each round, as ``run_graph`` returns them.
        kind: of environments: asleep or computing.
    """
    def median(figure: Callable[[Run], float]) -> float:
        return statistics.median(figure(run) for run in runs)

    return {
        'learners': learners, 'actors': actors, 'environments': kind,
        'steps_per_s': median(lambda run: float(run['steps_per_s'])),
        'steps_per_s_rounds': [run['steps_per_s'] for run in runs],
        'learner_waits': median(lambda run: _share(run, 'wait')),
        'learner_learns': median(lambda run: _share(run, 'learn')),
        'updates_per_s': median(_updates_per_s),
        'update_s': median(lambda run: _share(run, 'learn') / _updates_per_s(run)),
        **common(runs)}


def _share(run: Run, phase: str) -> float:
    """Return the share of a phase, the mean of all training threads."""
    return statistics.mean(
        threads[TRAINING].get(phase, 0.0)
        for threads in run['time_shares'].values() if TRAINING in threads)


def _updates_per_s(run: Run) -> float:
    """Return the updates of the weights, which are common to all learners."""
    summary = run['summary']
    return float(run['steps_per_s'] * summary['updates'] / summary['agent_steps'])


def with_efficiencies(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the learners' rows with seed and speed-up over the row of one learner.

    ``efficiency`` is the speed-up over the number of learners.
    """
    one = next(row for row in rows if row['learners'] == 1)['steps_per_s']

    def gains(learners: int, speed: float, base: float) -> dict[str, float]:
        return {'speedup': speed / base, 'efficiency': speed / base / learners}

    def seed(learners: int) -> dict[str, float] | None:
        speed = SEED_LEARNERS.get(learners)
        return None if speed is None else {
            'steps_per_s': speed, **gains(learners, speed, SEED_LEARNERS[1])}

    return [{**row, **gains(row['learners'], row['steps_per_s'], one),
             'seed': seed(row['learners'])} for row in rows]


def learners_text(found: Mapping[str, Any]) -> str:
    """Return the learners' table for a page, in Markdown."""
    shape = found['settings']['learners']
    return '\n'.join([
        f'Learners: {found["learner_env"]} ({found["learners"][0]["environments"]}), '
        f'{found["actors_each"]} actors for each learner, {shape["num_envs"]} environments an '
        'actor, agent steps/s of all; in brackets impala_horovod_gym\'s (computing, 45 actors for '
        'each learner). Speed-up is over one learner, efficiency is the speed-up over the number '
        'of learners. "waits" and "learns" are shares of a learner\'s thread, "update" is how '
        'long it learns for one, sums over all learners included.',
        '',
        *report.table(('learners', 'actors', 'environments', 'steps/s', 'speed-up', 'efficiency',
                'waits', 'learns', 'updates/s', 'update, ms', 'lag', 'lost', 'cores',
                'other cores'), map(_cells, found['learners'])),
        '',
        f'{found["cores"]} cores, rounds: {found["rounds"]}, of {found["seconds"]:g} s each.'])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    def beside(name: str) -> str:
        text = f'{row[name]:.2f}'
        return text if row['seed'] is None else f'{text} ({row["seed"][name]:.2f})'

    return (f'{row["learners"]}', f'{row["actors"]}', row['environments'],
            f'{row["steps_per_s"]:,.0f}', beside('speedup'), beside('efficiency'),
            f'{row["learner_waits"]:.0%}', f'{row["learner_learns"]:.0%}',
            f'{row["updates_per_s"]:.2f}', f'{row["update_s"] * 1e3:.0f}', *common_cells(row))
