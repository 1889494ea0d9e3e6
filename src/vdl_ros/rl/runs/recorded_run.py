"""Reads a recorded run from its folder: settings, progress and TensorBoard scalars."""

import csv
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.plain_yaml import YamlError, read_yaml
from vdl_ros.common.quoting import quoted
from vdl_ros.rl.plots.curves import Series, tidy

Array = NDArray[np.float64]

# Columns of progress.csv by short name.
X_AXES = {'steps': 'agent_steps', 'time': 'wall_s', 'episodes': 'episodes'}
QUANTITIES = {'return': 'mean_return_100', 'length': 'mean_length_100',
              'success': 'success_rate_100'}


class RunReadError(ValueError):
    """A run that cannot be read or lacks a quantity; the message is one line."""


class RecordedRun:
    """One run as it was recorded.

    ``settings`` are of config.yaml, by name, {} without one; ``columns`` of progress.csv, [N]
    each, by name, N > 0. RunReadError: the path does not exist, cannot be read, or has no progress
    yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not path.exists():
                raise RunReadError(f'{path}: no such folder or file')
            progress = path / 'progress.csv' if path.is_dir() else path
            if progress.suffix != '.csv' or not progress.exists():
                raise RunReadError(f'{path}: not a run: no progress.csv')
            self.file = progress.resolve()
            self._folder = progress.parent
            self.columns = _read_progress(progress)
            config = self._folder / 'config.yaml'
            self.settings = _read_settings(config) if config.exists() else {}
        except OSError as error:
            raise RunReadError(
                f'{error.filename or path}: cannot be read: {error.strerror}') from None

    def series(self, x: str, y: str) -> Series:
        """Return quantity ``y`` as a function of ``x``, a name of :data:`X_AXES`.

        ``y`` is a name of :data:`QUANTITIES`, a column of progress.csv, or a TensorBoard tag,
        whose time and episodes are interpolated from progress.csv. RunReadError: the run lacks it.
        """
        axis, name = X_AXES[x], QUANTITIES.get(y, y)
        needed = {'agent_steps', axis} - self.columns.keys()
        if needed:
            raise RunReadError(f'{self.path}: progress.csv has no {min(needed)}; '
                               f'there is {", ".join(self.columns)}')
        if name in self.columns:
            at, values = self.columns[axis], self.columns[name]
        elif name in self._scalars:
            steps, values = self._scalars[name]
            at = steps if x == 'steps' else np.interp(
                steps, self.columns['agent_steps'], self.columns[axis])
        else:
            raise RunReadError(f'{self.path}: has no {name}; there is {", ".join(self.names())}')
        try:
            return tidy(at, values)
        except ValueError as error:
            raise RunReadError(f'{self.path}: {name} against {axis}: {error}') from None

    def names(self) -> list[str]:
        short = [name for name, column in QUANTITIES.items() if column in self.columns]
        return [*short, *self.columns, *sorted(self._scalars)]

    @staticmethod
    def at(path: Path) -> 'list[RecordedRun]':
        """Return the run of a folder, or those of folders in it, as the sessions of a trial."""
        beneath = sorted(path.glob('**/progress.csv'))
        return [RecordedRun(each.parent) for each in beneath] or [RecordedRun(path)]

    @cached_property
    def _scalars(self) -> dict[str, tuple[Array, Array]]:
        # Imported here because it takes a second, and most plots use only progress.csv.
        from tensorboard.backend.event_processing.event_accumulator import (
            SCALARS,
            EventAccumulator,
        )
        try:
            # 0: all events; by default it keeps a random sample.
            events = EventAccumulator(str(self._folder), size_guidance={SCALARS: 0})
            events.Reload()
            return {tag: (np.array([event.step for event in found], np.float64),
                          np.array([event.value for event in found], np.float64))
                    for tag in events.Tags()[SCALARS] for found in (events.Scalars(tag),)}
        except Exception as error:
            # A damaged file may raise many kinds of errors.
            raise RunReadError(
                f'{self._folder}: events cannot be read: {type(error).__name__}') from None


def _read_progress(path: Path) -> dict[str, Array]:
    """Return the columns of a progress.csv.

    A last line without a line end is skipped: it is being written, or was cut short by a crash.
    """
    try:
        text = path.read_text()
        whole = text[:text.rfind('\n') + 1]
        header, *lines = csv.reader(whole.splitlines())
    except (UnicodeDecodeError, csv.Error):
        raise RunReadError(f'{path}: not a table of numbers') from None
    except ValueError:
        raise RunReadError(f'{path}: empty: the run has no progress yet') from None
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            values = [float(field) for field in line]
        except ValueError:
            values = []
        if len(values) != len(header):
            raise RunReadError(f'{path}: line {number} is damaged: {",".join(line)[:60]!r}')
        for name in X_AXES.values():
            if name in header and not math.isfinite(values[header.index(name)]):
                raise RunReadError(f'{path}: line {number} is damaged: {name} is not finite')
        rows.append(values)
    if not rows:
        raise RunReadError(f'{path}: no rows: the run has no progress yet')
    return dict(zip(header, np.array(rows, np.float64).T, strict=True))


def _read_settings(path: Path) -> dict[str, object]:
    try:
        content = read_yaml(path)
    except YamlError as error:
        raise RunReadError(f'{path}: {error}') from None
    if not isinstance(content, dict):
        raise RunReadError(f'{path}: not a mapping of settings')
    return {str(name): value for name, value in content.items()}


# Settings that identify an experiment; labels show their value without the name.
_IDENTITY = ('env_id', 'algorithm')
# Settings that do not describe the experiment.
_IGNORED = frozenset({
    'seed', 'run_dir', 'resume', 'launch_id', 'checkpoint_period', 'keep_checkpoints',
    'save_replay', 'tracker', 'tracker_project', 'eval_every', 'eval_episodes'})
# Settings of the length of a run; labels use them only if no other setting differs.
_LENGTH = ('total_steps', 'stop_at_return')


def check_group(runs: Sequence[RecordedRun]) -> None:
    """Raise a RunReadError if a run is given twice, or environments or algorithms differ."""
    first, *others = runs
    for index, run in enumerate(others, 1):
        if run.file in {each.file for each in runs[:index]}:
            raise RunReadError(f'{run.path}: given twice in one group')
        for name in _IDENTITY:
            one, other = first.settings.get(name), run.settings.get(name)
            if None not in (one, other) and one != other:
                raise RunReadError(
                    f'{run.path}: {name} {quoted(other)} is not {quoted(one)} as in {first.path}; '
                    f'runs of one group are averaged; use --compare {run.path} for another group')


def environments(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    found = (run.settings.get('env_id') for group in groups for run in group)
    return list(dict.fromkeys(str(env_id) for env_id in found if env_id is not None))


def group_labels(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """Return a distinct label for each group.

    A label has the environment and the algorithm if groups differ in them, then those settings
    that distinguish most groups, until all labels differ; if they do not, the folder. A single
    group is labelled with its algorithm.
    """
    shared = [_shared_settings(group) for group in groups]
    if len(groups) == 1:
        return [str(shared[0].get('algorithm', groups[0][0].path))]
    common = [name for name in shared[0] if all(name in each for each in shared)]
    differing = [name for name in common if len({repr(each[name]) for each in shared}) > 1]
    chosen = [name for name in _IDENTITY if name in differing]

    def num_distinct(names: Sequence[str]) -> int:
        return len({tuple(repr(each[name]) for name in names) for each in shared})

    while num_distinct(chosen) < len(groups):
        # Of equally good settings, the first in config.yaml.
        best = max(differing, default='', key=lambda name: (
            num_distinct([*chosen, name]) > num_distinct(chosen), name not in _LENGTH,
            num_distinct([*chosen, name])))
        if not best or num_distinct([*chosen, best]) == num_distinct(chosen):
            break
        chosen.append(best)
    labels = [', '.join(str(each[name]) if name in _IDENTITY else f'{name} {each[name]}'
                        for name in chosen) for each in shared]
    return [label if label and labels.count(label) == 1
            else ', '.join(filter(None, [label, _folders(group)]))
            for label, group in zip(labels, groups, strict=True)]


def _shared_settings(group: Sequence[RecordedRun]) -> dict[str, object]:
    first, *others = (run.settings for run in group)
    return {name: value for name, value in first.items() if name not in _IGNORED
            and all(repr(other.get(name)) == repr(value) for other in others)}


def _folders(group: Sequence[RecordedRun]) -> str:
    more = f' and {len(group) - 1} more' if len(group) > 1 else ''
    return f'{group[0].path}{more}'
