"""The folder of a training run: settings, events, progress, checkpoint, summary and plot."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from torch.utils.tensorboard import SummaryWriter

from vdl_ros.common.run_files import ProgressTable, write_text
from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint

__all__ = ['RunFolder', 'RunFolderError', 'saved_settings']

_COLUMNS = ('agent_steps', 'wall_s', 'mean_return_100', 'mean_length_100', 'episodes',
            'steps_per_s', 'policy_lag_mean', 'trajectories_lost')
# Values of columns that runs of earlier versions do not have.
_DEFAULTS = {'mean_length_100': 'nan'}
# Settings of one start, which a resumed run does not keep: num_actors is how many start with it.
_SETTINGS_OF_A_START = ('run_dir', 'resume', 'device', 'num_actors', 'num_learners',
                        'learner_rank', 'group_address')


class RunFolderError(ValueError):
    """A folder that cannot hold this run; the message names it and what to do."""


class RunFolder:
    """
    The files of one run.

    ``config.yaml`` holds every setting as resolved; ``events.out.*`` is for TensorBoard;
    ``progress.csv`` has a row for each report; then ``checkpoint.pt``, and at the end
    ``summary.json`` and ``curve.png``.

    Attributes:
        path: the folder.
        restarted: whether this launch created the folder before.
    """

    def __init__(self, path: Path, *, launch_id: str = '', resume: bool = False) -> None:
        """
        Create the folder, or open one that this launch created before or that is resumed.

        Raises:
            RunFolderError: the folder holds another run, cannot be created, or has no checkpoint
                to resume.
        """
        self.path = path
        self._launch_file = path / '.launch_id'
        try:
            restarted = bool(launch_id) and self._launch_file.read_text() == launch_id
        except OSError:
            restarted = False
        self.restarted = restarted
        if resume and not restarted and not self.checkpoint.is_file():
            raise RunFolderError(f'resume: {path} holds no checkpoint.pt')
        if not resume and not restarted and path.is_dir() and any(path.iterdir()):
            raise RunFolderError(
                f'run_dir: {path} is not empty; name another, or resume this one')
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._launch_file.write_text(launch_id)
        except OSError as error:
            raise RunFolderError(f'run_dir: {path} cannot be written: {error.strerror}') from None
        self._events: SummaryWriter | None = None
        self._progress = ProgressTable(path / 'progress.csv', _COLUMNS, _DEFAULTS)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's file."""
        return self.path / 'checkpoint.pt'

    def load(self) -> dict[str, Any] | None:
        """Return the checkpoint to resume from, or None for a new run."""
        return load_checkpoint(self.checkpoint) if self.checkpoint.is_file() else None

    def open(self, config: Mapping[str, Any], agent_steps: int) -> None:
        """Write config.yaml; keep the events and progress up to ``agent_steps`` and open both."""
        write_text(self.path / 'config.yaml', yaml.safe_dump(dict(config), sort_keys=False))
        self._progress.truncate(agent_steps)
        # Discards all events after the checkpoint. The queue is long, so that the training does
        # not wait for the thread that writes them.
        self._events = SummaryWriter(str(self.path), purge_step=agent_steps + 1, max_queue=1000)

    def report(self, row: Mapping[str, float], scalars: Mapping[str, float]) -> None:
        """Add a row to progress.csv, and scalars to the events at the row's agent_steps."""
        assert self._events is not None
        self._progress.append(row)
        for name, value in scalars.items():
            self._events.add_scalar(name, value, int(row['agent_steps']))

    def save(self, **parts: dict[str, Any]) -> None:
        """Write the checkpoint; see :func:`save_checkpoint`."""
        save_checkpoint(self.checkpoint, **parts)

    def progress(self) -> list[dict[str, float]]:
        """Return the rows of progress.csv so far."""
        return self._progress.rows()

    def close(self, summary: Mapping[str, Any]) -> None:
        """Close the events; write summary.json and curve.png."""
        if self._events is not None:
            self._events.close()
        write_text(self.path / 'summary.json', json.dumps(_finite(summary), indent=2) + '\n')
        # Imported here because it takes a second.
        from vdl_ros.rl.plots.curve_plot import draw_curve
        draw_curve(self.progress(), self.path / 'curve.png', title=str(summary['env_id']))


def _finite(value: Any) -> Any:
    """Return ``value`` with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def saved_settings(folder: Path) -> dict[str, object]:
    """
    Return the settings of the run in ``folder``, without those of one start.

    Raises:
        RunFolderError: the folder has no readable config.yaml.
    """
    try:
        content = yaml.safe_load((folder / 'config.yaml').read_text())
    except (OSError, yaml.YAMLError):
        content = None
    if not isinstance(content, dict):
        raise RunFolderError(f'resume: {folder} holds no readable config.yaml')
    return {name: value for name, value in content.items() if name not in _SETTINGS_OF_A_START}
