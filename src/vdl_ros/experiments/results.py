"""Results of a trial: its fitness, and the tables and graphs in its folder."""

from __future__ import annotations

import csv
import dataclasses
import json
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vdl_ros.attacks.grid import Episodes, read_episodes
from vdl_ros.common.files import atomic_file, write_text
from vdl_ros.common.settings import Scalar
from vdl_ros.experiments.fitness import (
    WINDOW,
    SessionFitness,
    mean_strength,
    session_fitness,
    strengths,
    trial_fitness,
)
from vdl_ros.experiments.spec import ReferenceConfig
from vdl_ros.experiments.trials import AgentsProcess, TrialRunner, trial_folder
from vdl_ros.rl.runs.training_process import TrainingProcess

__all__ = ['deliver_trial', 'reproducing_command', 'runs_by_agent']


_COLUMNS = ('episode', 'agent_steps', 'return', 'strength', 'strength_ma')


def agent_of(run: TrainingProcess, session: TrainingProcess) -> str:
    """Return the agent whose run this is, '' in a session of a single one."""
    return '' if run.folder == session.folder else run.folder.name


def runs_by_agent(sessions: Sequence[TrainingProcess]) -> dict[str, list[Path]]:
    """Return the folders of the runs of each agent."""
    found: dict[str, list[Path]] = {}
    for session in sessions:
        for run in session.runs:
            found.setdefault(agent_of(run, session), []).append(run.folder)
    return found


def reproducing_command(session: TrainingProcess) -> str:
    """Return the command line that repeats a session from its start."""
    if isinstance(session, AgentsProcess):
        again = dataclasses.replace(session, folder=session.folder.with_name(
            f'{session.folder.name}-again'))
        return shlex.join(['python3', *again.command(session.file)[1:]])
    settings = {**session.settings, **session.start_settings}
    words = (word for name, value in settings.items() if name != 'record_episodes'
             for word in (f'--{name}', value))
    return shlex.join(['python3', '-m', 'vdl_ros.local_training', *words])


def deliver_trial(
    runner: TrialRunner, number: int, values: Mapping[str, Scalar],
    reference: ReferenceConfig | None,
) -> tuple[float, dict[str, Any]]:
    """Score a complete trial, and write its tables and graphs.

    Args:
        reference: None: the environment has no fitness.

    Returns:
        What a search maximises, which is the fitness, or without a reference the mean return of
        the last 100 episodes; and its parts by name.

    Raises:
        ValueError: a session has no episode, or its table is damaged.
    """
    # Imported here because matplotlib takes a second.
    from vdl_ros.experiments.graphs import draw_session, draw_trial

    folder = trial_folder(runner.folder, number)
    sessions = runner.sessions(number, values)
    found, finals = [], []
    # By agent: each is compared with itself in other sessions.
    fitnesses: dict[str, dict[str, SessionFitness]] = {}
    for session in sessions:
        for run in session.runs:
            name = str(run.folder.relative_to(folder))
            episodes = read_episodes(run.folder, name)
            if not len(episodes.returns):
                raise ValueError(f'{run.folder}: no episode ended')
            final = float(episodes.returns[-WINDOW:].mean())
            finals.append(final)
            of_session: dict[str, Any] = {
                'folder': name, 'seed': int(session.settings['seed']),
                'episodes': len(episodes.returns), 'final_return': final}
            if reference is not None:
                fitness = session_fitness(episodes.steps, episodes.returns, reference)
                fitnesses.setdefault(agent_of(run, session), {})[name] = fitness
                of_session |= fitness._asdict()
            summary = run.summary() or {}
            of_session |= {each: summary.get(each)
                           for each in ('agent_steps', 'wall_s', 'ended_by')}
            found.append(of_session | {'command': reproducing_command(session)})
            _write_session(run.folder / 'session_df.csv', episodes, reference)
            draw_session(run.folder, episodes)
    record: dict[str, Any] = {'final_return': statistics.fmean(finals)}
    if reference is not None:
        _write_fitness(folder / 'session_fitness_df.csv', fitnesses.values())
        # The mean over agents, as SLM-Lab's over bodies.
        scores = [trial_fitness(list(each.values()))._asdict() for each in fitnesses.values()]
        record = {part: statistics.fmean(each[part] for each in scores)
                  for part in scores[0]} | record
    draw_trial(runs_by_agent(sessions), folder / 'trial_graph.png',
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


def _write_fitness(path: Path, fitnesses: Iterable[Mapping[str, SessionFitness]]) -> None:
    """Write a row for each run, by agent and folder."""
    with atomic_file(path) as partial, partial.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('session', *SessionFitness._fields))
        writer.writerows((name, *fitness) for each in fitnesses for name, fitness in each.items())
