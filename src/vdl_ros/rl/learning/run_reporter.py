"""Reports of a run: progress.csv, TensorBoard scalars, status lines, checkpoints, summary.json."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vdl_ros.common.reaction_time import in_ms
from vdl_ros.common.thread_timer import ThreadTimer, TimerWindow
from vdl_ros.rl.device import describe
from vdl_ros.rl.learning.bottleneck import Bottleneck
from vdl_ros.rl.learning.evaluations import Evaluations
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Progress, realtime_text, status_line
from vdl_ros.rl.learning.rates import RateWindow
from vdl_ros.rl.runs.run_folder import RunFolder

__all__ = ['RunReporter']

# Longest time until a checkpoint that could not be written is tried again, s.
_RETRY_S = 30.0
# Shortest time between two records of the actors' restarts, s.
_ACTORS_S = 1.0
# Lines of progress whose mean rate gives the time that is left.
_RECENT_LINES = 30


class RunReporter:
    """
    Writes the reports and checkpoints of a run when they are due; without a folder, nothing.

    Attributes:
        bottleneck: what limits the speed of the run.
        scalars: of the last row or line of progress, by tag; replaced as a whole, so other
            threads may read it.
    """

    def __init__(
        self, learner: Learner, progress: Progress, folder: RunFolder | None,
        settings: dict[str, Any], *, log: Callable[[str], None], warn: Callable[[str], None],
        extra_scalars: Callable[[], Mapping[str, float]], timers: Mapping[str, ThreadTimer],
        checkpoint_period: float, status_period: float, evaluations: Evaluations | None = None,
    ) -> None:
        """Open the folder, and continue its reports after ``learner.agent_steps``."""
        self._learner, self._progress, self._folder = learner, progress, folder
        self._settings, self._log, self._warn = settings, log, warn
        self._extra_scalars, self._evaluations = extra_scalars, evaluations
        self._checkpoint_period, self._status_period = checkpoint_period, status_period
        self._run_windows, self._row_windows = (
            {name: TimerWindow(timer) for name, timer in timers.items()} for _ in range(2))
        self._saved_actors = progress.totals['actor_restarts'], progress.actor_starts()
        self._actors_due = 0.0
        self.bottleneck = Bottleneck(settings, on_gpu=learner.device.type != 'cpu')
        self.scalars: Mapping[str, float] = {}
        if folder is not None:
            folder.open(settings, learner.agent_steps, warn)
        self._row_rates, self._status_rates = RateWindow(self._counts), RateWindow(self._counts)
        self._steps_in_row = self._steps_in_status = learner.agent_steps
        # Time, s, and agent steps at the last lines of progress.
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT_LINES)
        self.start()

    def start(self) -> None:
        """Count the periods of reports and checkpoints from now."""
        self._last_status = self._last_row = time.monotonic()
        self._checkpoint_due = self._last_row + self._checkpoint_period
        self._row_rates.restart()
        self._status_rates.restart()
        self._recent.clear()
        self._recent.append((self._last_row, self._learner.agent_steps))

    def _counts(self) -> dict[str, float]:
        """Return what rates are of."""
        totals = self._progress.totals
        return {'updates': self._learner.version, 'bytes': totals['bytes_in'],
                'rewards': totals['rewards'], 'late': totals['late_actions'],
                'actions': self._progress.reaction_time.count}

    def restart_windows(self) -> None:
        """Count the shares of the threads' time from now."""
        for window in (*self._run_windows.values(), *self._row_windows.values()):
            window.restart()

    def report(self, metrics: dict[str, float], *, over: bool = False) -> None:
        """
        Write progress, status and checkpoint when due; what is left if the run is ``over``.

        What cannot be written is a warning: a full disk must not end a run.
        """
        if self._folder is None:
            return
        now, steps = time.monotonic(), self._learner.agent_steps
        # A row for each hundredth of the run so far: at most about a thousand of a long run, yet
        # enough of a short one for a curve.
        due = over or now - self._last_row >= max(0.1, 0.01 * self._progress.wall_s)
        if due and steps > self._steps_in_row:
            with self._warned_of_errors('progress'):
                self._write_row(self._folder, metrics, now)
        due = over or now - self._last_status >= self._status_period
        if due and steps > self._steps_in_status:
            self._log(self._status(now))
        if not over and now >= self._checkpoint_due:
            self._checkpoint_due = now + min(self._checkpoint_period, _RETRY_S)
            with self._warned_of_errors('checkpoint'):
                self.save()
                self._checkpoint_due = now + self._checkpoint_period
        if now >= self._actors_due:
            self._actors_due = now + _ACTORS_S
            with self._warned_of_errors('restarts of actors'):
                self._save_actors(self._folder)

    def _save_actors(self, folder: RunFolder) -> None:
        """Write the restarts of actors if there are new ones, for a restart of the learner."""
        found = self._progress.totals['actor_restarts'], self._progress.actor_starts()
        if found != self._saved_actors:
            folder.save_actors(*found)
            self._saved_actors = found

    @contextlib.contextmanager
    def _warned_of_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._warn(f'{what} not written: {error}; the run goes on')

    def _write_row(self, folder: RunFolder, metrics: dict[str, float], now: float) -> None:
        """Write a row of progress.csv and the scalars for TensorBoard."""
        learner, progress, totals = self._learner, self._progress, self._progress.totals
        seconds, self._last_row = now - self._last_row, now
        rate = (learner.agent_steps - self._steps_in_row) / max(seconds, 1e-9)
        self._steps_in_row = learner.agent_steps
        grown, rates = self._row_rates.take()
        reaction = in_ms(progress.reaction_time.summary())
        row = {'agent_steps': learner.agent_steps, 'wall_s': round(progress.wall_s, 3),
               'mean_return_100': progress.mean_return, 'mean_length_100': progress.mean_length,
               'success_rate_100': progress.success_rate, 'episodes': progress.episodes,
               'steps_per_s': round(rate, 1),
               'policy_lag_mean': round(progress.lag_mean, 3),
               'trajectories_lost': totals['lost']}
        scalars = metrics | {
            'charts/episodic_return': progress.mean_return,
            'charts/episodic_length': progress.mean_length,
            **({} if math.isnan(progress.success_rate)
               else {'charts/success_rate': progress.success_rate}),
            'charts/SPS': rate,
            **{f'charts/{name}_per_s': rates[name] for name in ('updates', 'bytes', 'rewards')},
            **{f'reaction_time/{name}_ms': value for name, value in reaction.items()},
            **({'reaction_time/late_share': _late_share(grown)} if reaction else {}),
            **{f'adversary/{name}': value for name, value in progress.adversary.items()},
            'flow/policy_lag_mean': progress.lag_mean, 'flow/policy_lag_max': progress.lag[1],
            'flow/trajectories_lost': totals['lost'],
            'flow/trajectories_stale': totals['stale'],
            'flow/wire_bytes': totals['bytes_in'],
            **{f'time/{name}/{phase}': share for name, window in self._row_windows.items()
               for phase, share in window.take().items()},
            **self._extra_scalars()}
        self.scalars = {'agent_steps': learner.agent_steps, **scalars}
        self.bottleneck.add(scalars, seconds)
        folder.report(row, scalars)

    def _status(self, now: float) -> str:
        """Return the line of progress since the line before."""
        learner, progress = self._learner, self._progress
        seconds, self._last_status = now - self._last_status, now
        rate = (learner.agent_steps - self._steps_in_status) / max(seconds, 1e-9)
        self._steps_in_status = learner.agent_steps
        # The next row may come much later.
        self.scalars = {
            **self.scalars, 'agent_steps': learner.agent_steps, 'charts/SPS': rate,
            'charts/episodic_return': progress.mean_return}
        grown, rates = self._status_rates.take()
        reaction = in_ms(progress.reaction_time.summary())
        return status_line(
            agent_steps=learner.agent_steps, total_steps=learner.config.total_steps,
            steps_per_s=rate, mean_return=progress.mean_return, lag_mean=progress.lag_mean,
            lag_max=progress.lag[1], lost=progress.totals['lost'],
            success_rate=progress.success_rate, left_s=self._left(now),
            more=(self._evaluations.text if self._evaluations else '') + (
                realtime_text(rates, reaction, _late_share(grown)) if reaction else ''))

    def _left(self, now: float) -> float:
        """Return the time to total_steps at the rate of the last lines, s; NaN if unknown."""
        learner, recent = self._learner, self._recent
        recent.append((now, learner.agent_steps))
        (since, before), left = recent[0], learner.config.total_steps - learner.agent_steps
        grown = learner.agent_steps - before
        return max(left, 0) * (now - since) / grown if grown else math.nan

    def save(self) -> None:
        """Write the checkpoint, if this is learner 0."""
        if self._folder is not None:
            # First: a restart that the checkpoint has must not be counted again.
            self._save_actors(self._folder)
            replay = self._learner.algorithm.replay_arrays() \
                if self._folder.config.save_replay else None
            self._folder.save(
                config=self._settings, learner=self._learner.state(),
                progress=self._progress.state(), **({'replay': replay} if replay else {}))

    def summary(self, reason: str) -> dict[str, Any]:
        """Return the content of summary.json; see docs/runs.md."""
        learner, wall = self._learner, self._progress.wall_s
        rates = {f'{name}_per_s': round(self._counts()[name] / wall, 3) if wall else 0.0
                 for name in ('updates', 'bytes', 'rewards')}
        return {
            'env_id': self._settings['env_id'],
            'algorithm': learner.config.algorithm,
            'ended_by': reason,
            'learners': learner.group.size,
            'device': describe(learner.device),
            'learner_threads': self.bottleneck.learner_threads,
            'agent_steps': learner.agent_steps,
            'updates': learner.version,
            'wall_s': round(wall, 3),
            'steps_per_s': round(learner.agent_steps / wall, 1) if wall else 0.0,
            **rates,
            **self._progress.summary(),
            'evaluation': self._evaluations.summary() if self._evaluations else None,
            'time_shares': {
                name: {phase: round(share, 4) for phase, share in window.shares().items()}
                for name, window in self._run_windows.items()},
            'bottleneck': self.bottleneck.overall(),
        }

    def close(self, reason: str) -> None:
        """Write summary.json and the learning curve, log the bottleneck, and close the folder."""
        if self._folder is not None:
            if limit := self.bottleneck.overall():
                self._log(limit)
            self._folder.close(self.summary(reason))


def _late_share(grown: Mapping[str, float]) -> float:
    """Return the share of the environments' steps that held the last action."""
    return grown['late'] / max(grown['late'] + grown['actions'], 1.0)
