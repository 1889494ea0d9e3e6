"""What was recorded of a run, read from its folder: settings, progress, TensorBoard's scalars."""

from __future__ import annotations

import csv
import math
from functools import cached_property
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from vdl_ros.rl.plots.curves import Series, tidy

__all__ = ['QUANTITIES', 'X_AXES', 'RecordedRun', 'RunReadError']

Array = NDArray[np.float64]

# Short names, and the columns of progress.csv that they stand for.
X_AXES = {'steps': 'agent_steps', 'time': 'wall_s', 'episodes': 'episodes'}
QUANTITIES = {'return': 'mean_return_100', 'length': 'mean_length_100'}


# Tags of earlier versions, and the tags that replaced them.
_RENAMED_TAGS = {
    'losses/total': 'losses/loss', 'losses/policy': 'losses/policy_loss',
    'losses/value': 'losses/value_loss', 'losses/kl': 'losses/approx_kl',
    'losses/clipped': 'losses/clipfrac', 'losses/mean_q': 'losses/q_values'}


class RunReadError(ValueError):
    """A run that cannot be read, or has not what was asked for; one line that names it."""


class RecordedRun:
    """
    One run as it was written.

    Attributes:
        path: as the user named it.
        file: its progress.csv, an absolute path.
        settings: of config.yaml, by name; empty where there is none beside a progress.csv.
        columns: of progress.csv, [N] each, by name; N > 0.
    """

    def __init__(self, path: Path) -> None:
        """
        Read a folder, or a progress.csv and what lies beside it.

        Raises:
            RunReadError: it is not there, cannot be read, or has no progress yet.
        """
        self.path = path
        try:
            if not path.exists():
                raise RunReadError(f'{path}: there is no such folder or file')
            is_folder = path.is_dir()
            progress = path / 'progress.csv' if is_folder else path
            if not progress.exists():
                raise RunReadError(f'{path}: holds no progress.csv, so it is no run')
            self.file = progress.resolve()
            self._folder = progress.parent
            self.columns = _read_progress(progress)
            config = self._folder / 'config.yaml'
            self.settings = _read_settings(config) if config.exists() else {}
        except OSError as error:
            raise RunReadError(
                f'{error.filename or path}: cannot be read: {error.strerror}') from None

    def series(self, x: str, y: str) -> Series:
        """
        Return one quantity against another.

        Args:
            x: of :data:`X_AXES`.
            y: of :data:`QUANTITIES`, a column of progress.csv, or a tag of the events; a tag's
                time and episodes are those of progress.csv at the same agent steps.

        Raises:
            RunReadError: the run has not got it; the line lists what it has.
        """
        name = QUANTITIES.get(y, y)
        axis, name = X_AXES[x], _RENAMED_TAGS.get(name, name)
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
        """Return what :meth:`series` can be asked for."""
        short = [name for name, column in QUANTITIES.items() if column in self.columns]
        return [*short, *self.columns, *sorted(self._scalars)]

    @cached_property
    def _scalars(self) -> dict[str, tuple[Array, Array]]:
        """Steps and values of each tag of the events."""
        # Imported late: it takes a second, and most plots are of progress.csv.
        from tensorboard.backend.event_processing.event_accumulator import (
            SCALARS,
            EventAccumulator,
        )
        try:
            # All of them: by default it would keep some at random.
            events = EventAccumulator(str(self._folder), size_guidance={SCALARS: 0})
            events.Reload()
            points: dict[str, list[tuple[int, float]]] = {}
            # A resumed run of an earlier version has both tags: first the old one, then the new.
            for tag in sorted(events.Tags()[SCALARS], key=lambda each: each not in _RENAMED_TAGS):
                points.setdefault(_RENAMED_TAGS.get(tag, tag), []).extend(
                    (event.step, event.value) for event in events.Scalars(tag))
            return {tag: (np.array([step for step, _ in found], np.float64),
                          np.array([value for _, value in found], np.float64))
                    for tag, found in points.items()}
        except Exception as error:
            # A damaged file ends in one of many errors of the libraries below.
            raise RunReadError(
                f'{self._folder}: events cannot be read: {type(error).__name__}') from None


def _read_progress(path: Path) -> dict[str, Array]:
    """
    Return the columns of a progress.csv.

    A last line without its end is left out: the run is writing it, or died while it did.

    Raises:
        RunReadError: no row yet, or a line that is none.
    """
    try:
        text = path.read_text()
        whole = text[:text.rfind('\n') + 1]
        header, *lines = csv.reader(whole.splitlines())
    except (UnicodeDecodeError, csv.Error):
        raise RunReadError(f'{path}: is no table of numbers') from None
    except ValueError:
        raise RunReadError(f'{path}: is empty: the run has no progress yet') from None
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
        raise RunReadError(f'{path}: no row: the run has no progress yet')
    return dict(zip(header, np.array(rows, np.float64).T, strict=True))


def _read_settings(path: Path) -> dict[str, object]:
    try:
        content = yaml.safe_load(path.read_text())
    except (UnicodeDecodeError, yaml.YAMLError):
        content = None
    if not isinstance(content, dict):
        raise RunReadError(f'{path}: is no list of settings')
    return {str(name): value for name, value in content.items()}
