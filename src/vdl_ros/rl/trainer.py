"""
The training loop: takes unrolls from a queue, learns, reports, saves, and says when it ends.

It knows nothing of how unrolls come or where policies go: topic callbacks fill the queue in the
learner's process, the actor itself in serial mode.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from vdl_ros.rl.checkpoint import CheckpointError
from vdl_ros.rl.episodes import EpisodeCounter
from vdl_ros.rl.flow import Ledger
from vdl_ros.rl.learner import Learner
from vdl_ros.rl.phases import TRAINING, Lap, Phases
from vdl_ros.rl.run_folder import RunFolder
from vdl_ros.rl.unroll import Unroll, UnrollError

__all__ = ['Inbox', 'Trainer', 'status_line']

# Processes whose episodes are followed at a time.
_MOST_ACTORS = 1024
# Counts of the ledger that go on over all starts of a run.
_TOTALS = ('received', 'lost', 'rejected', 'actor_restarts', 'bytes_in', 'bytes_out')


class Inbox(Protocol):
    """Where unrolls come from."""

    def get(self, timeout: float) -> Unroll:
        """
        Return the next unroll; its arrays must have passed :meth:`UnrollSchema.check`.

        Raises:
            queue.Empty: none came within ``timeout`` seconds.
        """


class Trainer:
    """
    One run from its first update to its summary.

    Attributes:
        ledger: the accounts of what came and what is missing; the inbox writes them too.
    """

    def __init__(
        self,
        learner: Learner,
        folder: RunFolder,
        settings: dict[str, Any],
        *,
        inbox: Inbox,
        ledger: Ledger,
        publish: Callable[[], None],
        say: Callable[[str], None],
        topics: Callable[[], Mapping[str, float]] = dict,
        clocks: Mapping[str, Phases] | None = None,
        checkpoint_period: float = 60.0,
        status_period: float = 2.0,
    ) -> None:
        """
        Prepare a run, or go on with the one in ``folder``.

        Args:
            learner: what learns.
            folder: where the run is written.
            settings: every setting as resolved, with ``env_id`` among them.
            inbox: where unrolls come from.
            ledger: accounts.
            publish: called after every ``publish_every`` updates, to send the weights out.
            say: called with each status line.
            topics: returns more scalars for the events, by tag: of how messages travel, since
                the last call.
            clocks: of the process's threads by name; the trainer's own is ``training``.
            checkpoint_period: seconds from one checkpoint to the next.
            status_period: seconds from one report to the next.

        Raises:
            CheckpointError: the folder's checkpoint cannot be read.
            ValueError: it is of another environment, algorithm or network.
        """
        self.learner, self.folder, self.settings = learner, folder, settings
        self.inbox, self.ledger = inbox, ledger
        self._publish, self._say, self._topics = publish, say, topics
        self._checkpoint_period, self._status_period = checkpoint_period, status_period
        self._returns: deque[float] = deque(maxlen=100)
        self._counters: dict[int, tuple[EpisodeCounter, int]] = {}
        self._ages_ms: deque[float] = deque(maxlen=100_000)
        self._episodes = 0
        self._wall_before = 0.0
        self._restarts = 0
        self._totals_before = dict.fromkeys(_TOTALS, 0)
        self._clocks = clocks or {TRAINING: Phases()}
        self._phases = self._clocks[TRAINING]
        self._run_laps, self._row_laps = (
            {name: Lap(clock) for name, clock in self._clocks.items()} for _ in range(2))
        self._started: float | None = None
        self._metrics: dict[str, float] = {}
        self._owed = False
        self._steps_in_row = self._steps_in_status = 0
        checkpoint = folder.load()
        if checkpoint is not None:
            self._resume(checkpoint)
        self._steps_in_row = self._steps_in_status = learner.agent_steps
        folder.open(settings, learner.agent_steps)

    def _resume(self, checkpoint: dict[str, Any]) -> None:
        for name in ('env_id', 'algorithm'):
            was, now = checkpoint['config'].get(name), self.settings[name]
            if was != now:
                raise ValueError(f'{self.folder.checkpoint}: {name} {was!r} is not {now!r}')
        self.learner.load_state(checkpoint['learner'])
        progress = checkpoint['progress']
        try:
            self._returns.extend(progress['returns'])
            self._episodes = progress['episodes']
            self._wall_before = progress['wall_s']
            self._restarts = progress['learner_restarts'] + int(self.folder.restarted)
            self._totals_before |= progress['received']
            self.ledger.lag_sum, self.ledger.lag_max, self.ledger.lag_count = progress['lag']
            self._ages_ms.extend(progress['ages_ms'])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f'{self.folder.checkpoint}: progress: {error}') from None

    def run(self, stop: threading.Event) -> str:
        """
        Learn until the run is over or ``stop`` is set; write the last checkpoint and the summary.

        Returns:
            Why it ended: 'total_steps', 'stop_at_return', 'interrupted' or 'not finite'.

        Raises:
            OSError: the folder cannot be written.
        """
        # At once, so that a full disk is known before the work, and a restart can be counted.
        self.save()
        self._publish()
        reason = self._reason_to_end()
        last_status = last_checkpoint = last_row = time.monotonic()
        try:
            while not reason:
                unrolls = self._collect(stop)
                if unrolls is None:
                    reason = 'interrupted'
                    break
                self._learn(unrolls)
                if self._owed or self.learner.version % self.learner.config.publish_every == 0:
                    with self._phases('publish'):
                        self._publish()
                    self._owed = False
                now = time.monotonic()
                reason = self._reason_to_end()
                # A row for each hundredth of the run so far: a long one has no more than a
                # thousand, a short one still makes a curve.
                if now - last_row >= max(0.1, 0.01 * self.wall_s) or reason:
                    self._report(now - last_row)
                    last_row = now
                if now - last_status >= self._status_period or reason:
                    self._say(self._status(now - last_status))
                    last_status = now
                if now - last_checkpoint >= self._checkpoint_period:
                    self.save()
                    last_checkpoint = now
        except FloatingPointError as error:
            # The last good checkpoint stays: what led here must not overwrite it.
            self._say(f'{error}; the run ends, {self.folder.checkpoint} is left as it was')
            reason = 'not finite'
        if reason != 'not finite':
            self.save()
        self.folder.close(self.summary(reason))
        return reason

    def _reason_to_end(self) -> str:
        config = self.learner.config
        if self.learner.agent_steps >= config.total_steps:
            return 'total_steps'
        if len(self._returns) == 100 and self.mean_return >= config.stop_at_return:
            return 'stop_at_return'
        return ''

    def _collect(self, stop: threading.Event) -> list[Unroll] | None:
        """Return one batch, or None if it is time to stop."""
        unrolls: list[Unroll] = []
        while len(unrolls) < self.learner.config.batch_size:
            if stop.is_set():
                return None
            try:
                unroll = self.inbox.get(0.1)
            except queue.Empty:
                continue
            if self._started is None:
                self._started = time.monotonic()
                for lap in (*self._run_laps.values(), *self._row_laps.values()):
                    lap.restart()
            unrolls.append(unroll)
            self._account(unroll)
        return unrolls

    def _account(self, unroll: Unroll) -> None:
        """Count ages, bytes and episodes of an unroll that arrived."""
        self._ages_ms.append(unroll.age_s * 1e3)
        self.ledger.bytes_in += unroll.num_bytes
        # Taken out and put back: the newest is last, and the dead ones are the first to go.
        counter, expected = self._counters.pop(unroll.incarnation, (None, 0))
        if counter is None or counter.num_envs != unroll.num_envs:
            counter = EpisodeCounter(unroll.num_envs)
        elif unroll.sequence != expected:
            counter.forget()
        arrays = unroll.arrays
        finished = counter.add(
            arrays['rewards'], arrays['terminated'],
            arrays['truncated'], arrays['is_reset'])
        self._counters[unroll.incarnation] = (counter, unroll.sequence + 1)
        if len(self._counters) > _MOST_ACTORS:
            del self._counters[next(iter(self._counters))]
        self._returns.extend(episode.episode_return for episode in finished)
        self._episodes += len(finished)

    def _learn(self, unrolls: list[Unroll]) -> None:
        version = self.learner.version
        try:
            self._metrics = self.learner.update(unrolls)
        except UnrollError as error:
            self.ledger.rejected += len(unrolls)
            self._say(f'a batch was left out: {error}')
            # The actors wait for their credit, whatever became of the batch.
            self._owed = True
        for unroll in unrolls:
            self.ledger.use(
                unroll.incarnation, unroll.sequence, version - unroll.policy_version)

    @property
    def mean_return(self) -> float:
        """Mean return of the last 100 episodes; NaN before the first."""
        return float(np.mean(self._returns)) if self._returns else float('nan')

    @property
    def wall_s(self) -> float:
        """Seconds since the first trajectory came, over all the starts of this run."""
        running = time.monotonic() - self._started if self._started is not None else 0.0
        return self._wall_before + running

    def _totals(self) -> dict[str, int]:
        return {name: self._totals_before[name] + getattr(self.ledger, name) for name in _TOTALS}

    def _status(self, seconds: float) -> str:
        rate = (self.learner.agent_steps - self._steps_in_status) / max(seconds, 1e-9)
        self._steps_in_status = self.learner.agent_steps
        return status_line(
            agent_steps=self.learner.agent_steps, total_steps=self.learner.config.total_steps,
            steps_per_s=rate, mean_return=self.mean_return, lag_mean=self.ledger.lag_mean,
            lag_max=self.ledger.lag_max, lost=self._totals()['lost'])

    def _report(self, seconds: float) -> None:
        """Write a row of progress over the last ``seconds``."""
        learner, ledger, totals = self.learner, self.ledger, self._totals()
        rate = (learner.agent_steps - self._steps_in_row) / max(seconds, 1e-9)
        self._steps_in_row = learner.agent_steps
        row = {'agent_steps': learner.agent_steps, 'wall_s': round(self.wall_s, 3),
               'mean_return_100': self.mean_return, 'episodes': self._episodes,
               'steps_per_s': round(rate, 1), 'policy_lag_mean': round(ledger.lag_mean, 3),
               'trajectories_lost': totals['lost']}
        self.folder.report(row, self._metrics | {
            'charts/episodic_return': self.mean_return, 'charts/SPS': rate,
            'flow/policy_lag_mean': ledger.lag_mean, 'flow/policy_lag_max': ledger.lag_max,
            'flow/trajectories_lost': totals['lost'],
            'flow/wire_bytes': totals['bytes_in'],
            **{f'time/{name}/{phase}': share for name, lap in self._row_laps.items()
               for phase, share in lap.take().items()},
            **self._topics()})

    def save(self) -> None:
        """Write the checkpoint."""
        ledger = self.ledger
        self.folder.save(config=self.settings, learner=self.learner.state(), progress={
            'returns': list(self._returns), 'episodes': self._episodes, 'wall_s': self.wall_s,
            'learner_restarts': self._restarts, 'received': self._totals(),
            'lag': [ledger.lag_sum, ledger.lag_max, ledger.lag_count],
            'ages_ms': [round(age, 3) for age in list(self._ages_ms)[-1000:]]})

    def summary(self, reason: str) -> dict[str, Any]:
        """Return what summary.json holds; see docs/runs.md."""
        learner, ledger, totals = self.learner, self.ledger, self._totals()
        ages = np.percentile(self._ages_ms, [50, 99]) if self._ages_ms else [float('nan')] * 2
        wall = self.wall_s
        return {
            'env_id': self.settings['env_id'],
            'algorithm': learner.config.algorithm,
            'ended_by': reason,
            'agent_steps': learner.agent_steps,
            'updates': learner.version,
            'wall_s': round(wall, 3),
            'steps_per_s': round(learner.agent_steps / wall, 1) if wall else 0.0,
            'mean_return_100': round(self.mean_return, 3) if self._returns else None,
            'episodes': self._episodes,
            'trajectories_received': totals['received'],
            'trajectories_lost': totals['lost'],
            'trajectories_rejected': totals['rejected'],
            'policy_lag': {'mean': round(ledger.lag_mean, 3), 'max': ledger.lag_max},
            'message_age_ms': {
                'p50': round(float(ages[0]), 3) if self._ages_ms else None,
                'p99': round(float(ages[1]), 3) if self._ages_ms else None},
            'wire_bytes': {'in': totals['bytes_in'], 'out': totals['bytes_out']},
            'time_shares': {
                name: {phase: round(share, 4) for phase, share in lap.shares().items()}
                for name, lap in self._run_laps.items()},
            'actor_restarts': totals['actor_restarts'],
            'learner_restarts': self._restarts,
        }


def status_line(
    *, agent_steps: int, total_steps: int, steps_per_s: float, mean_return: float,
    lag_mean: float, lag_max: int, lost: int,
) -> str:
    """Return one line of progress for a person."""
    shown = '-' if math.isnan(mean_return) else f'{mean_return:.1f}'
    return (f'steps {agent_steps:>9,} / {total_steps:,}   {steps_per_s:>7,.0f}/s   '
            f'return {shown:>7}   lag {lag_mean:.1f} (max {lag_max})   lost {lost}')
