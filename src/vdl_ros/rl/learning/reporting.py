"""What a run reports: rows, lines of progress, its summary, what limits its speed, an episode."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vdl_ros.common.files import EPISODE, EPISODES, ProgressTable, write_table
from vdl_ros.common.metrics import ThreadTimer, TimerWindow
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.episode_returns import FinishedEpisode, adversary_of
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.device import describe
from vdl_ros.rl.learning.bottleneck import Bottleneck
from vdl_ros.rl.learning.evaluations import Evaluations
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Callbacks, Progress, WriteErrors
from vdl_ros.rl.policy.distributions import Categorical
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder


class RateWindow:
    """How much counts grow from one call of :meth:`take` to the next; ``since`` is in s."""

    def __init__(
        self, counts: Callable[[], Mapping[str, float]],
        clock: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._counts, self._clock = counts, clock
        self.seconds = 0.0
        self.restart()

    def restart(self) -> None:
        self.since, self.before = self._clock(), dict(self._counts())

    def take(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the growth of each count, and that per second; start again."""
        since, before = self.since, self.before
        self.restart()
        grown = {name: count - before[name] for name, count in self.before.items()}
        self.seconds = max(self.since - since, 1e-9)
        return grown, {name: count / self.seconds for name, count in grown.items()}


#: Why a run ends whose last checkpoint or summary could not be written.
NOT_SAVED = 'a failed write'
# Longest time until a checkpoint that could not be written is tried again, s.
_RETRY_S = 30.0
# Steps of an episode, and time, after which a run without the end of one is told of time_limit.
_ENDLESS, _ENDLESS_S = 10_000, 60.0
# Longest time left that is shown, s: a robot that plays has no end.
_LONGEST_LEFT_S = 1000 * 86400.0
# Lines of progress whose mean rate gives the time that is left.
_RECENT_LINES = 30


def ended(reason: str, path: Path | None) -> str:
    """Return the last line of a run; without ``path`` learner 0 writes it."""
    if reason == NOT_SAVED and path:
        return f'ended; not all could be written to {path}, as said above'
    why = reason if reason == 'interrupted' else f'ended by {reason}'
    return f'{why}; written {f"to {path}" if path else "by learner 0"}'


class RunReporter:
    """Writes the reports and checkpoints of a run when they are due; without a folder, nothing.

    ``scalars`` are of the last row or line of progress, by tag; replaced as a whole, so other
    threads may read them.
    """

    def __init__(
        self, learner: Learner, progress: Progress, folder: RunFolder | None,
        settings: dict[str, Any], run: RunConfig, calls: Callbacks,
        timers: Mapping[str, ThreadTimer], evaluations: Evaluations | None = None,
    ) -> None:
        self._learner, self._progress, self._folder = learner, progress, folder
        self._settings, self._run, self._calls = settings, run, calls
        self._evaluations = evaluations
        self._run_windows, self._row_windows = (
            {name: TimerWindow(timer) for name, timer in timers.items()} for _ in range(2))
        self._hinted = False
        self._told_of_errors = WriteErrors(calls.warn)
        self.bottleneck = Bottleneck(settings, on_gpu=learner.device.type != 'cpu')
        self.scalars: Mapping[str, float] = {}
        if folder is not None:
            folder.open(settings, learner.agent_steps, calls.warn)
        self._row_rates, self._status_rates = (RateWindow(self._counts) for _ in range(2))
        # Time, s, and agent steps at the last lines of progress.
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT_LINES)
        self.start()

    def start(self) -> None:
        now = time.monotonic()
        self._checkpoint_due = now + self._run.checkpoint_period
        self._row_rates.restart()
        self._status_rates.restart()
        self._recent.clear()
        self._recent.append((now, self._learner.agent_steps))

    def _counts(self) -> dict[str, float]:
        totals = self._progress.totals
        return {'steps': self._learner.agent_steps, 'updates': self._learner.version,
                'bytes': totals['bytes_in'], 'rewards': totals['rewards'],
                'late': totals['late_actions'], 'actions': self._progress.reaction_time.count}

    def restart_windows(self) -> None:
        for window in (*self._run_windows.values(), *self._row_windows.values()):
            window.take()
        # Shares of them weigh as the time that they cover.
        self._row_rates.restart()

    def report(self, metrics: dict[str, float], *, over: bool = False) -> None:
        """Write progress, status and checkpoint when due; what is left if the run is ``over``.

        What cannot be written is a warning: a full disk must not end a run.
        """
        if self._folder is None:
            return
        now, steps = time.monotonic(), self._learner.agent_steps
        # A row for each hundredth of the run so far: at most about a thousand of a long run, yet
        # enough of a short one for a curve.
        rows, lines = self._row_rates, self._status_rates
        due = over or now - rows.since >= max(0.1, 0.01 * self._progress.wall_s)
        if due and steps > rows.before['steps']:
            with self._told_of_errors('progress'):
                self._write_row(self._folder, metrics)
        due = over or now - lines.since >= self._run.status_period
        if due and steps > lines.before['steps']:
            self._calls.log(self._status(now))
        self._hint_at_endless_episodes(over)
        if not over and now >= self._checkpoint_due:
            self._checkpoint_due = now + min(self._run.checkpoint_period, _RETRY_S)
            with self._told_of_errors('checkpoint'):
                self.save()
                self._checkpoint_due = now + self._run.checkpoint_period

    def _hint_at_endless_episodes(self, over: bool) -> None:
        progress = self._progress
        steps, is_long = progress.longest, progress.wall_s >= _ENDLESS_S
        if not progress.episodes and steps and not self._hinted and (
                over or is_long or steps >= _ENDLESS):
            self._hinted = True
            self._calls.warn(f'no episode has ended, the longest has {steps:,} steps; if they '
                             'never end, time_limit:=STEPS truncates them')

    def _write_row(self, folder: RunFolder, metrics: dict[str, float]) -> None:
        learner, progress, totals = self._learner, self._progress, self._progress.totals
        grown, rates = self._row_rates.take()
        reaction = progress.reaction_time.summary()
        row = {'agent_steps': learner.agent_steps, 'wall_s': round(progress.wall_s, 3),
               'mean_return_100': progress.mean_return, 'mean_length_100': progress.mean_length,
               'success_rate_100': progress.success_rate, 'episodes': progress.episodes,
               'steps_per_s': round(rates['steps'], 1),
               'policy_lag_mean': round(progress.lag_mean, 3), 'trajectories_lost': totals['lost']}
        scalars = metrics | {
            'charts/episodic_return': progress.mean_return,
            'charts/episodic_length': progress.mean_length,
            **({} if math.isnan(progress.success_rate)
               else {'charts/success_rate': progress.success_rate}),
            'charts/SPS': rates['steps'],
            **{f'charts/{name}_per_s': rates[name] for name in ('updates', 'bytes', 'rewards')},
            **{f'reaction_time/{name}_ms': value for name, value in reaction.items()},
            **({'reaction_time/late_share': _late_share(grown)} if reaction else {}),
            **{f'adversary/{name}': value for name, value in progress.adversary.items()},
            **{f'takeovers/{name}': value for name, value in progress.takeovers.items()},
            'flow/policy_lag_mean': progress.lag_mean, 'flow/policy_lag_max': progress.lag[1],
            'flow/trajectories_lost': totals['lost'],
            'flow/trajectories_stale': totals['stale'], 'flow/wire_bytes': totals['bytes_in'],
            **{f'time/{name}/{phase}': share for name, window in self._row_windows.items()
               for phase, share in window.take().items()},
            **self._calls.extra_scalars()}
        self.scalars = {'agent_steps': learner.agent_steps, **scalars}
        self.bottleneck.add(scalars, self._row_rates.seconds)
        folder.report(row, scalars)

    def _status(self, now: float) -> str:
        learner, progress = self._learner, self._progress
        grown, rates = self._status_rates.take()
        # The next row may come much later.
        self.scalars = {
            **self.scalars, 'agent_steps': learner.agent_steps, 'charts/SPS': rates['steps'],
            'charts/episodic_return': progress.mean_return}
        steps, total_steps = learner.agent_steps, learner.config.total_steps
        left_s, mean_return, success = self._left(now), progress.mean_return, progress.success_rate
        left = '' if not left_s < _LONGEST_LEFT_S else f', {_duration(left_s)} left'
        shown = '-' if math.isnan(mean_return) else f'{mean_return:.1f}'
        told = (f'return {shown:>7}   '
                f'{"" if math.isnan(success) else f"success {success:>4.0%}   "}'
                f'{_takeovers(progress.takeovers)}lag {progress.lag_mean:.1f}')
        if learner.config.algorithm == 'bc':
            # Nobody acts.
            loss = self.scalars.get('losses/loss')
            told = 'loss -' if loss is None else f'loss {loss:.4f}'
        # The last batch may go beyond.
        share = min(1.0, steps / total_steps)
        line = (f'steps {steps:>9,} / {total_steps:,} ({share:.0%}{left})   '
                f'{_rate(rates["steps"]):>7}/s   {told}'
                f'{self._evaluations.text if self._evaluations else ""}')
        if reaction := progress.reaction_time.summary():
            line += (f'   reaction {reaction["mean"]:.0f} ms (p99 {reaction["p99"]:.0f})   '
                     f'late {_late_share(grown):.1%}')
        if lost := progress.totals['lost']:
            line += f'   lost trajectories {lost:,}'
        return line

    def _left(self, now: float) -> float:
        """Return the time to total_steps at the rate of the last lines, s; NaN if unknown."""
        learner, recent = self._learner, self._recent
        recent.append((now, learner.agent_steps))
        (since, before), left = recent[0], learner.config.total_steps - learner.agent_steps
        grown = learner.agent_steps - before
        return max(left, 0) * (now - since) / grown if grown else math.nan

    def save(self) -> None:
        if self._folder is not None:
            # Somebody may have removed it.
            self._folder.path.mkdir(exist_ok=True)
            replay = self._learner.algorithm.replay_arrays() \
                if self._folder.config.save_replay else None
            self._folder.save(
                config=self._settings, learner=self._learner.state(),
                progress=self._progress.state(), **({'replay': replay} if replay else {}))

    def summary(self, reason: str) -> dict[str, Any]:
        learner, wall = self._learner, self._progress.wall_s
        rates = {f'{name}_per_s': round(self._counts()[name] / wall, 3) if wall else 0.0
                 for name in ('updates', 'bytes', 'rewards')}
        return {
            'env_id': self._settings['env_id'], 'algorithm': learner.config.algorithm,
            'ended_by': reason, 'learners': learner.group.size, 'device': describe(learner.device),
            'learner_threads': self.bottleneck.learner_threads,
            'agent_steps': learner.agent_steps, 'updates': learner.version,
            'wall_s': round(wall, 3),
            'steps_per_s': round(learner.agent_steps / wall, 1) if wall else 0.0,
            **rates, **self._progress.summary(),
            'evaluation': self._evaluations.summary() if self._evaluations else None,
            'time_shares': {
                name: {phase: round(share, 4) for phase, share in window.shares().items()}
                for name, window in self._run_windows.items()},
            'bottleneck': self.bottleneck.overall()}

    @property
    def lost(self) -> str:
        """What is lost with a file of the end of the run that could not be written."""
        if self._folder is not None and not self._folder.checkpoint.is_file():
            return 'what was learned is lost, its checkpoint is gone'
        saved, now = (self._folder.saved_steps if self._folder else 0), self._learner.agent_steps
        return (f'what was learned after {saved:,} agent steps is lost, their checkpoint is whole'
                if saved < now else f'the checkpoint of {now:,} agent steps is whole')

    def close(self, reason: str) -> None:
        if self._folder is not None and reason == NOT_SAVED:
            self._folder.close(None)
        elif self._folder is not None:
            if limit := self.bottleneck.overall():
                self._calls.log(limit)
            self._folder.close(self.summary(reason))


def _takeovers(found: Mapping[str, float]) -> str:
    return (f'alone {found["success_alone"]:>4.0%}   taken over {found["share"]:>4.0%}   '
            if found else '')


def _late_share(grown: Mapping[str, float]) -> float:
    return grown['late'] / max(grown['late'] + grown['actions'], 1.0)


def _rate(steps: float) -> str:
    return f'{steps:,.0f}' if steps >= 10.0 else f'{steps:.2g}'


def _duration(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f'{hours / 24:.0f} days'
    return f'{hours}:{minutes:02}:{rest:02}' if hours else f'{minutes}:{rest:02}'


class EpisodeRecord:
    """The first whole episode, or game, of a run, of the first environment of the first actor.

    A row is a step: its number from 0, return up to and with it, value and parameters of the
    action distribution (logits of discrete actions) for the observation as the policy saw it,
    and size and presence of its perturbation. Value and parameters are computed here, with the
    weights of the learner, which are those of the actor if the policy is frozen.
    """

    def __init__(self, path: Path, learner: Learner, warn: Callable[[str], None]) -> None:
        self._path, self._learner, self._warn = path, learner, warn
        self._over = path.exists()
        self._expected: tuple[int, int] | None = None
        # None: it waits for the start of an episode.
        self._rows: list[list[float]] | None = None
        # Whether the next episode is a life of the game of the last one.
        self._goes_on = False

    @torch.no_grad()
    def add(self, unroll: Unroll) -> None:
        if self._over or (self._expected is not None and unroll.start_id != self._expected[0]):
            return
        if (unroll.start_id, unroll.sequence) != self._expected:
            # The first one, or one after a lost one.
            self._rows, self._goes_on = None, unroll.sequence > 0
        self._expected = unroll.start_id, unroll.sequence + 1
        learner = self._learner
        batch = make_batch([unroll], learner.schema).columns(torch.tensor([0]))
        device = learner.device
        observations, is_reset, state, actions, rewards = (
            each.to(device) for each in (batch.observations, batch.is_reset, batch.state,
                                         batch.actions, batch.rewards))
        parameters, values, _ = learner.policy(observations, is_reset, state, actions, rewards)
        steps = len(rewards)
        sizes, injects = adversary_of(unroll.arrays) or (np.zeros((steps, 1)),) * 2
        life_lost = unroll.arrays.get('life_lost', np.zeros((steps, 1), np.bool_))
        self._goes_on &= 'life_lost' in unroll.arrays
        for t in range(steps):
            is_end = bool(batch.terminated[t, 0] or batch.truncated[t, 0])
            if is_reset[t + 1, 0]:
                # The environment ignored this action.
                if is_end:
                    # A game ended in the reset step of a life.
                    self._rows, self._goes_on = None, False
                continue
            if is_reset[t, 0]:
                self._rows = self._rows if self._goes_on else []
                self._goes_on = False
            if is_end:
                self._goes_on = bool(life_lost[t, 0])
            if self._rows is None:
                continue
            total = (self._rows[-1][1] if self._rows else 0.0) + float(rewards[t, 0])
            self._rows.append([
                len(self._rows), total, float(values[t, 0]), float(sizes[t, 0]),
                int(injects[t, 0]), *parameters[t, 0].tolist()])
            if is_end and not self._goes_on:
                self._write(self._rows)
                return

    def _write(self, rows: list[list[float]]) -> None:
        self._over = True
        name = 'logit' if isinstance(self._learner.policy.distribution, Categorical) \
            else 'parameter'
        header = ['step', 'return', 'value', 'adversary_l2', 'adversary_injects',
                  *(f'{name}_{index}' for index in range(len(rows[0]) - 5))]
        try:
            write_table(self._path, header, *rows)
        except OSError as error:
            self._warn(f'{self._path.name} not written: {error}; the run goes on')


_COLUMNS = ('agent_steps', 'return', 'length', 'adversary_l2', 'adversary_injects')


class EpisodeTable:
    """``episodes.csv`` with a row for each episode; ``episode.csv`` (:class:`EpisodeRecord`).

    A row has the agent steps of the run when the episode arrived, the episode's return and
    length, and mean size and number of the perturbations of its observations, 0 without an attack.
    ``first``: whether to record the first episode step by step.
    """

    def __init__(
        self, folder: Path, learner: Learner, warn: Callable[[str], None], *, first: bool = True,
    ) -> None:
        self._learner, self._told_of_errors = learner, WriteErrors(warn)
        self._record = EpisodeRecord(folder / EPISODE, learner, warn) if first else None
        self._table = ProgressTable(folder / EPISODES, _COLUMNS)
        self._table.truncate(learner.agent_steps)

    def add(self, unroll: Unroll, finished: Iterable[FinishedEpisode]) -> None:
        """Add an unroll and the episodes that ended in it; a full disk must not end the run."""
        if self._record is not None:
            self._record.add(unroll)
        with self._told_of_errors(EPISODES):
            for episode in finished:
                self._table.append({
                    'agent_steps': self._learner.agent_steps,
                    'return': round(episode.episode_return, 6), 'length': episode.length,
                    'adversary_l2': round(episode.adversary_l2 or 0.0, 9),
                    'adversary_injects': episode.adversary_injects})
