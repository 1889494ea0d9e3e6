"""A run's folder: resolved settings, events, progress, checkpoint, summary and curve."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import yaml
from torch.utils.tensorboard import SummaryWriter

from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint

__all__ = ['RunFolder', 'RunFolderError', 'saved_settings']

_COLUMNS = ('agent_steps', 'wall_s', 'mean_return_100', 'mean_length_100', 'episodes',
            'steps_per_s', 'policy_lag_mean', 'trajectories_lost')
# Columns that runs of an earlier version do not have, and what is written for them.
_LATER = {'mean_length_100': 'nan'}
# Settings of one start of a run, not of the run: num_actors is how many are started with it.
_OF_A_START = ('run_dir', 'resume', 'device', 'num_actors', 'num_learners', 'learner_rank',
               'group_address')


class RunFolderError(ValueError):
    """A folder that cannot hold this run; the message names it and what to do."""


class RunFolder:
    """
    The files of one run, and nothing else.

    ``config.yaml`` every setting as resolved; ``events.out.*`` TensorBoard; ``progress.csv`` a
    line for each report; ``checkpoint.pt``; at the end ``summary.json`` and ``curve.png``.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path, *, launch_id: str = '', resume: bool = False) -> None:
        """
        Make the folder, or take over one that this launch made before or that is resumed.

        Raises:
            RunFolderError: it holds another run, cannot be made, or there is nothing to resume.
        """
        self.path = path
        self._launch_file = path / '.launch_id'
        try:
            mine = bool(launch_id) and self._launch_file.read_text() == launch_id
        except OSError:
            mine = False
        self.restarted = mine
        if resume and not mine and not self.checkpoint.is_file():
            raise RunFolderError(f'resume: {path} holds no checkpoint.pt')
        if not resume and not mine and path.is_dir() and any(path.iterdir()):
            raise RunFolderError(
                f'run_dir: {path} is not empty; name another, or resume this one')
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._launch_file.write_text(launch_id)
        except OSError as error:
            raise RunFolderError(f'run_dir: {path} cannot be written: {error.strerror}') from None
        self._events: SummaryWriter | None = None
        self._progress: TextIO | None = None

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's file."""
        return self.path / 'checkpoint.pt'

    def load(self) -> dict[str, Any] | None:
        """Return the checkpoint to go on from, or None for a new run."""
        return load_checkpoint(self.checkpoint) if self.checkpoint.is_file() else None

    def open(self, config: Mapping[str, Any], agent_steps: int) -> None:
        """Write config.yaml and go on with the events and the progress from ``agent_steps``."""
        self._write('config.yaml', yaml.safe_dump(dict(config), sort_keys=False))
        kept = [line for row, line in self._lines() if row['agent_steps'] <= agent_steps]
        self._progress = (self.path / 'progress.csv').open('w', newline='')
        writer = csv.writer(self._progress)
        writer.writerow(_COLUMNS)
        writer.writerows([line[name] for name in _COLUMNS] for line in kept)
        self._progress.flush()
        # What is later than the checkpoint is not kept, be it all that there is. Room for many
        # rows: the training must not wait for the thread that writes them.
        self._events = SummaryWriter(
            str(self.path), purge_step=agent_steps + 1, max_queue=1000)

    def report(self, row: Mapping[str, float], scalars: Mapping[str, float]) -> None:
        """Add a line to progress.csv, and scalars to the events at the row's agent_steps."""
        assert self._progress is not None
        assert self._events is not None
        csv.writer(self._progress).writerow([row[name] for name in _COLUMNS])
        self._progress.flush()
        for name, value in scalars.items():
            self._events.add_scalar(
                name, value, int(row['agent_steps']))

    def save(self, **parts: dict[str, Any]) -> None:
        """Write the checkpoint; see :func:`save_checkpoint`."""
        save_checkpoint(self.checkpoint, **parts)

    def progress(self) -> list[dict[str, float]]:
        """Return the lines of progress.csv so far, as numbers."""
        return [row for row, _ in self._lines()]

    def _lines(self) -> list[tuple[dict[str, float], dict[str, str]]]:
        """Return each line as numbers and as text; one cut short by a crash is left out."""
        try:
            with (self.path / 'progress.csv').open(newline='') as stream:
                lines = list(csv.DictReader(stream))
        except FileNotFoundError:
            return []
        rows = []
        for line in lines:
            # Its own columns win: one that is there but cut short stays so.
            line = _LATER | line
            try:
                rows.append(({name: float(line[name]) for name in _COLUMNS}, line))
            except (KeyError, TypeError, ValueError):
                continue
        return rows

    def close(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json and curve.png, and close the rest."""
        if self._progress is not None:
            self._progress.close()
        if self._events is not None:
            self._events.close()
        self._write('summary.json', json.dumps(_finite(summary), indent=2) + '\n')
        # Imported late: it takes a second, which no start should wait for.
        from vdl_ros.rl.plots.curve_plot import draw_curve
        draw_curve(self.progress(), self.path / 'curve.png', title=str(summary['env_id']))

    def _write(self, name: str, text: str) -> None:
        partial = self.path / (name + '.partial')
        partial.write_text(text)
        os.replace(partial, self.path / name)


def _finite(value: Any) -> Any:
    """Return ``value`` with null for the numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def saved_settings(folder: Path) -> dict[str, object]:
    """
    Return the settings of the run in ``folder``, less what is of one start.

    Raises:
        RunFolderError: no config.yaml in the folder, or not a readable one.
    """
    try:
        content = yaml.safe_load((folder / 'config.yaml').read_text())
    except (OSError, yaml.YAMLError):
        content = None
    if not isinstance(content, dict):
        raise RunFolderError(f'resume: {folder} holds no readable config.yaml')
    return {name: value for name, value in content.items() if name not in _OF_A_START}
