"""Results of a trial: its fitness, as in SLM-Lab's first version, and files in its folder.

Of that version (January 2018) is the norm, L2, and that strength 1 must be reached; later versions
have L1 and reach 0.95. An episode's strength is max(0, R - R_random) / (R_standard - R_random).

* strength: the largest mean strength of 100 consecutive episodes.
* speed: the standard's steps / the steps at which that mean first reaches 1; 0 if it never does.
* stability: the share of episodes after that whose strength is at most 0.05 below that of the
  episode before.
* consistency, of a trial: the share of its sessions that are no outliers by the median absolute
  deviation; of two sessions 1 if their vectors differ by at most 0.05, else 0.
* fitness: the norm of the vector / the norm of (1, 1, 1, 1).
"""

import dataclasses
import json
import math
import shlex
import statistics
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from vdl_ros.attacks.grid import read_episodes
from vdl_ros.common.files import write_text
from vdl_ros.common.settings import Scalar
from vdl_ros.experiments.search import Outcome
from vdl_ros.experiments.spec import PARTS, WINDOW, ReferenceConfig
from vdl_ros.experiments.trials import AgentsProcess, TrialRunner
from vdl_ros.rl.plots.curve_plot import save_figure
from vdl_ros.rl.plots.curves import Curve, make_curve
from vdl_ros.rl.runs.recorded_run import RecordedRun
from vdl_ros.rl.runs.training_process import TrainingProcess, options

Array = NDArray[np.float64]

# Differences that are noise.
_NOISE = 0.05
# Outliers have a modified z-score above this (Iglewicz and Hoaglin 1993); 0.6745 is the third
# quartile of the normal distribution.
_Z, _QUARTILE = 3.5, 0.6745


class SessionFitness(NamedTuple):
    """Parts of the fitness of one session, all 0 with fewer than 100 episodes."""

    strength: float = 0.0
    speed: float = 0.0
    stability: float = 0.0


class TrialFitness(NamedTuple):
    """Fitness of a trial and its parts: means over sessions, and their consistency."""

    fitness: float
    strength: float
    speed: float
    stability: float
    consistency: float


def strengths(returns: Array, reference: ReferenceConfig) -> Array:
    span = reference.standard_return - reference.random_return
    return np.maximum(0.0, returns - reference.random_return) / span


def moving_mean(values: Array) -> Array:
    """Return the mean over the last 100 episodes, NaN for the first 99, [N]."""
    found = np.full(len(values), math.nan)
    if len(values) >= WINDOW:
        total = np.concatenate([[0.0], np.cumsum(values)])
        found[WINDOW - 1:] = (total[WINDOW:] - total[:-WINDOW]) / WINDOW
    return found


def session_fitness(steps: Array, returns: Array, reference: ReferenceConfig) -> SessionFitness:
    """Return the fitness of a session, of agent steps at the end and returns of episodes, [N]."""
    if len(returns) < WINDOW:
        return SessionFitness()
    strength = strengths(returns, reference)
    mean = moving_mean(strength)
    # Sums of 100 equal numbers are not exact.
    reached = np.flatnonzero(mean >= 1.0 - 1e-9)
    if not len(reached):
        return SessionFitness(float(np.nanmax(mean)))
    first = int(reached[0])
    after = np.diff(strength[first:])
    stability = float((after >= -_NOISE).mean()) if len(after) else 1.0
    speed = reference.standard_steps / max(float(steps[first]), 1.0)
    return SessionFitness(float(np.nanmax(mean)), speed, stability)


def trial_fitness(sessions: Sequence[SessionFitness]) -> TrialFitness:
    vectors = np.array(sessions, np.float64)
    strength, speed, stability = vectors.mean(0).tolist()
    consistency = _consistency(vectors)
    vector = np.array([strength, speed, stability, consistency])
    fitness = float(np.linalg.norm(vector) / np.linalg.norm(np.ones(4)))
    return TrialFitness(fitness, strength, speed, stability, consistency)


def _consistency(vectors: Array) -> float:
    """Return the consistency of sessions, of vectors [R, 3]; 0 if none has any strength."""
    if not vectors[:, 0].any():
        return 0.0
    if len(vectors) == 2:
        return float(np.linalg.norm(vectors[0] - vectors[1]) <= _NOISE)
    distances = np.linalg.norm(vectors - np.median(vectors, axis=0), axis=1)
    # If most are equal the deviation is 0, and noise would be an outlier.
    is_outlier = (_QUARTILE * distances > _Z * np.median(distances)) & (distances > _NOISE)
    return float(1.0 - is_outlier.mean())


def agent_of(run: TrainingProcess, session: TrainingProcess) -> str:
    """Return the agent whose run this is, '' in a session of a single one."""
    return '' if run.folder == session.folder else run.folder.name


def runs_by_agent(sessions: Sequence[TrainingProcess]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for session in sessions:
        for run in session.runs:
            found.setdefault(agent_of(run, session), []).append(run.folder)
    return found


def reproducing_command(session: TrainingProcess) -> str:
    if isinstance(session, AgentsProcess):
        again = dataclasses.replace(session, folder=session.folder.with_name(
            f'{session.folder.name}-again'))
        return shlex.join(['python3', *again.command(session.file)[1:]])
    settings = {**session.settings, **session.start_settings}
    settings.pop('record_episodes', None)
    return shlex.join(['python3', '-m', 'vdl_ros.local_training', *options(settings)])


def deliver_trial(
    runner: TrialRunner, number: int, values: Mapping[str, Scalar],
    reference: ReferenceConfig | None,
) -> tuple[float, dict[str, Any]]:
    """Score a complete trial, and write ``trial_data.json``.

    Return what a search maximises, which is the fitness, or without a reference the mean return of
    the last 100 episodes; and its parts by name. ValueError: a session has no episode, or its
    table is damaged.
    """
    folder = runner.folder / f'trial-{number}'
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
    record: dict[str, Any] = {'final_return': statistics.fmean(finals)}
    if reference is not None:
        # The mean over agents, as SLM-Lab's over bodies.
        scores = [trial_fitness(list(each.values()))._asdict() for each in fitnesses.values()]
        record = {part: statistics.fmean(each[part] for each in scores)
                  for part in scores[0]} | record
    write_text(folder / 'trial_data.json', json.dumps({
        'spec': runner.spec.name, 'trial': number, 'values': values, **record,
        'reference': None if reference is None else dataclasses.asdict(reference),
        'sessions': found}, indent=1) + '\n')
    return record.get('fitness', record['final_return']), record


_SMOOTH = 0.02
# Least span of the axis of fitness and its parts, to each side.
_SPAN = 0.1
# The circle around the best trial.
_BEST = '#d1242f'


def curve_of(label: str, sessions: Sequence[Path]) -> Curve | None:
    """Return the curve of the sessions of a trial; None if they have nothing in common yet."""
    try:
        return make_curve(label, [RecordedRun(each).series('steps', 'return')
                                  for each in sessions], _SMOOTH, 'iqm')
    except ValueError:
        return None


def draw_experiment(
    outcomes: Sequence[Outcome], names: Sequence[str], path: Path,
    logarithmic: Container[str] = (),
) -> None:
    """Draw a dot for each complete trial: a row for what it scored, a column for each setting.

    The best, which is the first, has a circle. What is the same in all trials is no row.
    """
    complete = [each for each in outcomes if each.value is not None]
    has_fitness = all('fitness' in each.record for each in complete)
    rows = ['fitness', *(part for part in PARTS if len({
        each.record[part] for each in complete}) > 1)] if has_fitness else ['final_return']
    size = (1.2 + 2.4 * len(names), 0.8 + (1.5 if has_fitness else 2.6) * len(rows))
    figure = Figure(figsize=size, dpi=110, layout='constrained')
    grid = figure.subplots(len(rows), len(names), squeeze=False, sharex='col', sharey='row')
    colors = [each.value for each in complete]
    for column, name in enumerate(names):
        x = _positions(grid[-1, column], name, [each.values[name] for each in complete],
                       name in logarithmic)
        for row, part in enumerate(rows):
            axes = grid[row, column]
            y = [each.record[part] for each in complete]
            axes.scatter(x, y, c=colors, cmap='viridis', s=28, edgecolors='white', linewidths=0.5)
            axes.scatter(x[:1], y[:1], s=110, facecolors='none', edgecolors=_BEST, linewidths=1.5)
            axes.grid(alpha=0.25)
            if column == 0:
                axes.set_ylabel(part.replace('_', ' '))
                axes.ticklabel_format(axis='y', useOffset=False)
                # Noise must not look like a difference.
                if has_fitness and max(y) - min(y) < _SPAN:
                    middle = (max(y) + min(y)) / 2
                    axes.set_ylim(middle - _SPAN, middle + _SPAN)
    save_figure(figure, path)


def _positions(
    axes: Axes, name: str, values: Sequence[object], logarithmic: bool,
) -> list[float]:
    axes.set_xlabel(name)
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        numbers = [float(each) for each in values]  # type: ignore[arg-type]
        if min(numbers) > 0 and (logarithmic or max(numbers) >= 20 * min(numbers)):
            axes.set_xscale('log')
        else:
            axes.xaxis.set_major_locator(MaxNLocator(3))
        return numbers
    kinds = sorted({str(each) for each in values})
    axes.set_xticks(range(len(kinds)), kinds, rotation=30, ha='right')
    return [float(kinds.index(str(each))) for each in values]
