"""Folder of a training run: settings, TensorBoard, progress, checkpoint, model, curve."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from vdl_ros.common.run_files import ProgressTable, atomic_file, write_text

__all__ = ['PoseRun', 'RunError']

COLUMNS = ('step', 'epoch', 'samples', 'minutes', 'samples_per_s', 'lr', 'loss', 'joint_accuracy',
           'joint_error_deg', 'azimuth_accuracy', 'azimuth_error_deg', 'confident')


class RunError(ValueError):
    """A folder that cannot hold this training; the message names it and what to do."""


class PoseRun:
    """
    The files of one training.

    ``config.json``: settings. ``events.out.*``: TensorBoard. ``progress.csv``: a line per
    validation. ``checkpoint.pt``: to resume from. ``model.pt``: the best model so far.
    ``curve.png``.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        """
        Make the folder, or open the one to resume.

        Raises:
            RunError: it holds another training, cannot be made, or there is nothing to resume.
        """
        self.path = path
        self.checkpoint, self.model = path / 'checkpoint.pt', path / 'model.pt'
        if resume and not self.checkpoint.is_file():
            raise RunError(f'--resume: {path} holds no checkpoint.pt')
        if not resume and path.is_dir() and any(path.iterdir()):
            raise RunError(f'--output: {path} is not empty; name another folder, or --resume')
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f'--output: {path} cannot be made: {error.strerror}') from None
        self._events: SummaryWriter | None = None
        self._progress = ProgressTable(path / 'progress.csv', COLUMNS)

    def open(self, config: Mapping[str, Any], step: int) -> None:
        """Write the settings; continue events and progress from ``step``."""
        write_text(self.path / 'config.json', json.dumps(dict(config), indent=2) + '\n')
        self._progress.truncate(step)
        self._events = SummaryWriter(
            str(self.path), purge_step=step + 1 if self.progress() else None)

    def report(self, row: Mapping[str, float], scalars: Mapping[str, float]) -> None:
        """Append to progress.csv and the events, and draw the curve."""
        assert self._events is not None
        self._progress.append({name: f'{row[name]:.6g}' for name in COLUMNS})
        for name, value in {**row, **scalars}.items():
            if name != 'step':
                self._events.add_scalar(name, value, int(row['step']))
        self._events.flush()
        self._draw()

    def progress(self) -> list[dict[str, float]]:
        """Return the lines of progress.csv; one truncated by a crash is left out."""
        return self._progress.rows()

    def close(self) -> None:
        """Close the events."""
        if self._events is not None:
            self._events.close()

    def _draw(self) -> None:
        """Draw accuracy and error against samples seen."""
        # Imported late: it takes a second.
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
        rows = self.progress()
        samples = [row['samples'] for row in rows]
        figure = Figure(figsize=(7.2, 3.6), dpi=120, layout='constrained')
        left, right = figure.subplots(1, 2)
        for axes, kind, label in ((left, 'accuracy', 'share within 10°'),
                                  (right, 'error_deg', 'mean absolute error, degrees')):
            for name, color in (('joint', '#1f6feb'), ('azimuth', '#d29922')):
                values = [row[f'{name}_{kind}'] for row in rows]
                axes.plot(samples, values, color=color, linewidth=2,
                          label=f'{"joints" if name == "joint" else name} {values[-1]:.3g}')
            axes.set_xlabel('frames seen')
            axes.set_title(label, loc='left', fontsize=10)
            axes.xaxis.set_major_formatter(EngFormatter())
            axes.grid(alpha=0.25)
            axes.spines[['top', 'right']].set_visible(False)
            axes.legend(frameon=False)
        right.set_yscale('log')
        with atomic_file(self.path / 'curve.png') as partial:
            figure.savefig(partial, format='png')
