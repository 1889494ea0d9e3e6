"""Results of a trial: its fitness, and the tables and graphs in its folder."""

from __future__ import annotations

import csv
import dataclasses
import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vdl_ros.attacks.grid.records import Episodes, read_episodes
from vdl_ros.common.run_files import atomic_file, write_text
from vdl_ros.common.settings import Scalar
from vdl_ros.experiments.results.fitness import (
    WINDOW,
    SessionFitness,
    mean_strength,
    session_fitness,
    strengths,
    trial_fitness,
)
from vdl_ros.experiments.running.trials import TrialRunner, trial_folder
from vdl_ros.experiments.specs.spec_config import ReferenceConfig
from vdl_ros.rl.runs.training_process import TrainingProcess

__all__ = ['deliver_trial', 'reproducing_command']

_COLUMNS = ('episode', 'agent_steps', 'return', 'strength', 'strength_ma')


def reproducing_command(session: TrainingProcess) -> str:
    """Return the command line that repeats a session from its start."""
    settings = {**session.settings, **session.start_settings}
    words = (word for name, value in settings.items() if name != 'record_episodes'
             for word in (f'--{name}', value))
    return shlex.join(['python3', '-m', 'vdl_ros.local_training', *words])


def deliver_trial(
    runner: TrialRunner, number: int, values: Mapping[str, Scalar],
    reference: ReferenceConfig | None,
) -> tuple[float, dict[str, Any]]:
    """
    Score a complete trial, and write its tables and graphs.

    Args:
        runner: what ran it.
        number: of the trial.
        values: of the settings that are searched.
        reference: None: the environment has no fitness.

    Returns:
        What a search maximises, which is the fitness, or without a reference the mean return of
        the last 100 episodes; and its parts by name.

    Raises:
        ValueError: a session has no episode, or its table is damaged.
    """
    # Imported here because matplotlib takes a second.
    from vdl_ros.experiments.results.graphs import draw_session, draw_trial

    folder = trial_folder(runner.folder, number)
    sessions = runner.sessions(number, values)
    found, fitnesses, finals = [], [], []
    for session in sessions:
        episodes = read_episodes(session.folder, session.folder.name)
        if not len(episodes.returns):
            raise ValueError(f'{session.folder}: no episode ended')
        final = float(episodes.returns[-WINDOW:].mean())
        finals.append(final)
        of_session: dict[str, Any] = {
            'folder': session.folder.name, 'seed': int(session.settings['seed']),
            'episodes': len(episodes.returns), 'final_return': final}
        if reference is not None:
            fitnesses.append(session_fitness(episodes.steps, episodes.returns, reference))
            of_session |= fitnesses[-1]._asdict()
        summary = session.summary() or {}
        of_session |= {name: summary.get(name) for name in ('agent_steps', 'wall_s', 'ended_by')}
        found.append(of_session | {'command': reproducing_command(session)})
        _write_session(session.folder / 'session_df.csv', episodes, reference)
        draw_session(session.folder, episodes)
    record: dict[str, Any] = {'final_return': statistics.fmean(finals)}
    if reference is not None:
        _write_fitness(folder / 'session_fitness_df.csv', sessions, fitnesses)
        record = trial_fitness(fitnesses)._asdict() | record
    draw_trial([session.folder for session in sessions], folder / 'trial_graph.png',
               title=f'{runner.spec.name}, trial {number}')
    write_text(folder / 'trial_data.json', json.dumps({
        'spec': runner.spec.name, 'trial': number, 'values': values, **record,
        'reference': None if reference is None else dataclasses.asdict(reference),
        'sessions': found}, indent=1) + '\n')
    return record.get('fitness', record['final_return']), record


def _write_session(path: Path, episodes: Episodes, reference: ReferenceConfig | None) -> None:
    """Write the episodes of a session, with their strength if there is a reference."""
    count = len(episodes.returns)
    strength = strengths(episodes.returns, reference) if reference else np.full(count, np.nan)
    with atomic_file(path) as partial, partial.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for row in zip(range(count), episodes.steps.astype(int).tolist(),
                       episodes.returns.tolist(), strength.round(6).tolist(),
                       mean_strength(strength).round(6).tolist(), strict=True):
            writer.writerow(row)


def _write_fitness(
    path: Path, sessions: Sequence[TrainingProcess], fitnesses: Sequence[SessionFitness],
) -> None:
    with atomic_file(path) as partial, partial.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('session', *SessionFitness._fields))
        writer.writerows((session.folder.name, *fitness)
                         for session, fitness in zip(sessions, fitnesses, strict=True))
