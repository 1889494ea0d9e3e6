"""The folder of a run: its files, and the lock that keeps other processes out of it."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common import files
from vdl_ros.common.event_file import EventFile
from vdl_ros.common.memory import check_archive
from vdl_ros.common.quoting import cause
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from vdl_ros.rl.runs.run_config import NONE, RunFolderConfig, save_settings
from vdl_ros.rl.runs.trackers import Tracker, verify_tracker


def save_array_file(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file beside ``path``, uncompressed, then rename it."""
    with files.atomic_file(path) as partial, partial.open('wb') as file:
        np.savez(file, **dict[str, Any](arrays))


def load_array_file(path: Path, kind: str) -> dict[str, NDArray[Any]]:
    """Return what :func:`save_array_file` wrote; CheckpointError: missing or damaged."""
    try:
        check_archive(path)
        # Also checks the checksums.
        with np.load(path, allow_pickle=False) as found:
            return dict(found)
    # What numpy and zipfile raise at damaged files is of any kind.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise CheckpointError(f'{path}: not a readable {kind}: {reason}') from None


_COLUMNS = ('agent_steps', 'wall_s', 'mean_return_100', 'mean_length_100', 'success_rate_100',
            'episodes', 'steps_per_s', 'policy_lag_mean', 'trajectories_lost')
# Names of checkpoints that are kept, and of replays; while they are written with an ending.
_NUMBERED = re.compile(r'(checkpoint-\d+\.pt|replay-\d+\.npz)(\.partial)?')


class RunFolderError(ValueError):
    """A folder that cannot hold this run; the message names it and what to do."""


class RunFolder:
    """The files of one run, see docs/runs.md.

    One process at a time may write a folder: a lock is held until :meth:`close`, or until the
    process ends. ``restarted``: this launch created the folder before. ``saved_steps``: agent
    steps of the checkpoint. RunFolderError: the folder holds another run, is in use by another
    process, cannot be created, or has no checkpoint to resume. SettingError: the tracker is not
    installed.
    """

    def __init__(
        self, path: Path, *, launch_id: str = '', resume: bool = False,
        config: RunFolderConfig | None = None,
    ) -> None:
        self.path, self.config = path, config or RunFolderConfig()
        self.checkpoint, self.best = path / files.CHECKPOINT, path / files.BEST
        self._launch_file = path / files.LAUNCH_FILE
        verify_tracker(self.config.tracker)
        # Before a file is made in it, because the folder may be somebody else's.
        self._check(launch_id, resume)
        try:
            # The only reference: the lock ends with this object, or with the process.
            self._lock = files.lock_folder(path, files.LAUNCH_FILE)
            self._claim(launch_id, resume)
        except files.InUseError as error:
            raise RunFolderError(f'{"resume" if resume else "run_dir"}: {error}') from None
        except OSError as error:
            raise RunFolderError(f'run_dir: {path} cannot be written: {error.strerror}') from error
        self.saved_steps = 0
        self._events: EventFile | None = None
        self._tracker: Tracker | None = None
        self._progress = files.ProgressTable(path / 'progress.csv', _COLUMNS)

    def _check(self, launch_id: str, resume: bool) -> None:
        """Find out whether this launch made the folder; refuse one that holds another run.

        One that could not start leaves its lock only.
        """
        path = self.path
        files.refuse_links(path)
        try:
            self.restarted = bool(launch_id) and self._launch_file.read_text() == launch_id
        except OSError:
            self.restarted = False
        if resume and not self.restarted and not self.checkpoint.is_file():
            raise RunFolderError(f'resume: {path} holds no checkpoint.pt')
        if not resume and not self.restarted and path.is_dir() and any(
                each != self._launch_file for each in path.iterdir()):
            advice = ', or resume this one' if self.checkpoint.is_file() else ''
            raise RunFolderError(f'run_dir: {path} is not empty; name another{advice}')

    def _claim(self, launch_id: str, resume: bool) -> None:
        # Another process may have used the folder since the first check.
        self._check(launch_id, resume)
        if not self.restarted:
            self._lock.truncate(0)
            self._lock.write(launch_id)
            self._lock.flush()

    def load(self) -> dict[str, Any] | None:
        return load_checkpoint(self.checkpoint) if self.checkpoint.is_file() else None

    def open(
        self, config: Mapping[str, Any], agent_steps: int, warn: Callable[[str], None] = print,
    ) -> None:
        """Write config.yaml; keep the events and progress up to ``agent_steps``.

        ``warn`` is called with a line if the curve is not drawn, and, from another thread, if
        the tracker fails.
        """
        for each in self._numbered('*.partial'):  # of a process that was killed
            each.unlink()
        saved, self._warn = save_settings(self.path, config), warn
        self._progress.truncate(agent_steps)
        self._events = EventFile(self.path, agent_steps + 1)
        if self.config.tracker != NONE:
            self._tracker = Tracker(
                self.config.tracker, self.path, self.config.tracker_project, saved, warn)

    def report(self, row: Mapping[str, float], scalars: Mapping[str, float]) -> None:
        """Add a row to progress.csv, and scalars to the events at the row's agent_steps.

        After an OSError, as of a full disk, the next call writes again.
        """
        self._progress.append(row)
        self.write_scalars(scalars, int(row['agent_steps']))

    def write_scalars(self, scalars: Mapping[str, float], agent_steps: int) -> None:
        """Add scalars to the events, and to the tracker; on an OSError as :meth:`report`."""
        if self._tracker is not None:
            self._tracker.log(scalars, agent_steps)
        if self._events is not None:
            self._events.add(scalars, agent_steps)

    def save(
        self, replay: Mapping[str, NDArray[Any]] | None = None, **parts: dict[str, Any],
    ) -> None:
        """Write the checkpoint, see :func:`save_checkpoint`; before it the replay, if given.

        A replay that finds no room is an OSError too, but not before the checkpoint is written.
        """
        agent_steps = int(parts['learner']['agent_steps'])
        failure = None
        if replay is not None:
            try:
                save_array_file(self._replay_file(agent_steps), replay)
            except OSError as error:
                failure = error
        save_checkpoint(self.checkpoint, **parts)
        self.saved_steps = agent_steps
        if replay is not None:
            # That of the checkpoint before is not needed any more.
            for each in self._numbered('replay-*.npz'):
                if each != self._replay_file(agent_steps):
                    each.unlink()
        if self.config.keep_checkpoints:
            self._keep(agent_steps)
        if failure is not None:
            raise failure

    def _numbered(self, pattern: str) -> list[Path]:
        return [each for each in self.path.glob(pattern) if _NUMBERED.fullmatch(each.name)]

    def _replay_file(self, agent_steps: int) -> Path:
        return self.path / f'replay-{agent_steps}.npz'

    def load_replay(self, agent_steps: int) -> dict[str, NDArray[Any]] | None:
        """Return the replay saved with the checkpoint of these steps; None without one."""
        file = self._replay_file(agent_steps)
        return load_array_file(file, 'replay') if file.is_file() else None

    def _kept_file(self, agent_steps: int) -> Path:
        return self.path / f'checkpoint-{agent_steps}.pt'

    def _keep(self, agent_steps: int) -> None:
        kept = self._kept_file(agent_steps)
        kept.unlink(missing_ok=True)
        try:
            # The next checkpoint replaces the name, not the file.
            kept.hardlink_to(self.checkpoint)
        except OSError:
            # Some file systems have no links.
            with files.atomic_file(kept) as partial:
                shutil.copyfile(self.checkpoint, partial)
        # Oldest first: those of more steps are of a time before the run was set back.
        steps = sorted((int(each.stem.split('-')[1]) for each in self._numbered(
            'checkpoint-*.pt')), key=lambda each: (each <= agent_steps, each))
        for each in steps[:-self.config.keep_checkpoints]:
            self._kept_file(each).unlink()

    def progress(self) -> list[dict[str, float]]:
        return self._progress.rows()

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Write summary.json and curve.png; let other processes resume.

        Without a summary, of a run that was not saved to its end, neither file is written.
        """
        if self._tracker is not None:
            self._tracker.close()
        if summary is None:
            self._lock.close()
            return
        # NaN and infinity, which JSON does not have, become null.
        text = msgspec.json.format(msgspec.json.encode(summary, enc_hook=float)).decode()
        files.write_text(self.path / 'summary.json', f'{text}\n')
        try:
            # Imported here because it takes a second.
            from vdl_ros.rl.plots.curve_plot import draw_curve
            draw_curve(self.progress(), self.path / 'curve.png', title=str(summary['env_id']))
        except OSError:
            raise
        except Exception as error:  # of Matplotlib, of which an environment may change anything
            self._warn(f"{self.path / 'curve.png'} is not drawn: {cause(error)}")
        self._lock.close()
