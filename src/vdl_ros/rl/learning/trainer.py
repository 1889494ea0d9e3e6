"""
The training loop: takes unrolls from a queue, learns, reports, saves, and says when it ends.

It knows nothing of how unrolls come or where policies go: topic callbacks fill the queue in the
learner's process, the actor itself in serial mode. Several learners have one loop each, and each
turn of all begins with a sum, :meth:`Trainer._agree`: so all learn, publish and end in the same
turn. A learner whose actors are slow makes turns without learning meanwhile, so that nobody waits
long to hear of an end, or of a learner that died.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from vdl_ros.common.thread_timer import TRAINING, ThreadTimer, TimerWindow
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.unroll import Unroll, UnrollError
from vdl_ros.rl.device import describe
from vdl_ros.rl.distributed.collectives import GroupError
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Progress, status_line
from vdl_ros.rl.runs.checkpoint import CheckpointError
from vdl_ros.rl.runs.run_folder import RunFolder

__all__ = ['Inbox', 'Trainer']

# In the order in which they count.
_REASONS = ('total_steps', 'stop_at_return', 'interrupted')
# Longest wait for an unroll in one turn, s.
_TURN_S = 0.1


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
        flow_stats: the accounts of what came and what is missing; the inbox writes them too.
        progress: what the run has come to.
    """

    def __init__(
        self,
        learner: Learner,
        folder: RunFolder | None,
        settings: dict[str, Any],
        *,
        inbox: Inbox,
        flow_stats: FlowStats,
        publish: Callable[[], None],
        say: Callable[[str], None],
        topics: Callable[[], Mapping[str, float]] = dict,
        clocks: Mapping[str, ThreadTimer] | None = None,
        num_actors: int = 1,
        checkpoint_period: float = 60.0,
        status_period: float = 2.0,
    ) -> None:
        """
        Prepare a run, or go on with the one in ``folder``.

        Args:
            learner: what learns.
            folder: where the run is written; None for all learners but the first.
            settings: every setting as resolved, with ``env_id`` among them.
            inbox: where unrolls come from.
            flow_stats: accounts.
            publish: called after every ``publish_every`` updates, to send the weights out.
            say: called with each status line.
            topics: returns more scalars for the events, by tag: of how messages travel, since
                the last call.
            clocks: of the process's threads by name; the trainer's own is ``training``.
            num_actors: of this learner, that all wait for an update, if they are synchronous.
            checkpoint_period: seconds from one checkpoint to the next.
            status_period: seconds from one report to the next.

        Raises:
            CheckpointError: the folder's checkpoint cannot be read.
            ValueError: it is of another environment, algorithm or network.
        """
        self.learner, self.folder, self.settings = learner, folder, settings
        self.group, self.inbox, self.flow_stats = learner.group, inbox, flow_stats
        self.progress = Progress(flow_stats, tells=folder is None)
        self._publish, self._say, self._topics = publish, say, topics
        self._checkpoint_period, self._status_period = checkpoint_period, status_period
        config = learner.config
        self._needed = config.batch_size * (num_actors if config.synchronous else 1)
        self._unrolls: list[Unroll] = []
        self._batch: Batch | None = None
        self._clocks = clocks or {TRAINING: ThreadTimer()}
        self._phases = self._clocks[TRAINING]
        self._run_laps, self._row_laps = (
            {name: TimerWindow(clock) for name, clock in self._clocks.items()} for _ in range(2))
        self._metrics: dict[str, float] = {}
        self._owed = False
        self._last_status = self._last_row = self._last_checkpoint = time.monotonic()
        if folder is not None:
            checkpoint = folder.load()
            if checkpoint is not None:
                self._resume(folder, checkpoint)
            folder.open(settings, learner.agent_steps)
        self._steps_in_row = self._steps_in_status = learner.agent_steps

    def _resume(self, folder: RunFolder, checkpoint: dict[str, Any]) -> None:
        for name in ('env_id', 'algorithm'):
            was, now = checkpoint['config'].get(name), self.settings[name]
            if was != now:
                raise ValueError(f'{folder.checkpoint}: {name} {was!r} is not {now!r}')
        self.learner.load_state(checkpoint['learner'])
        try:
            self.progress.load_state(checkpoint['progress'])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f'{folder.checkpoint}: progress: {error}') from None
        self.progress.restarts += int(folder.restarted)

    def run(self, stop: threading.Event) -> str:
        """
        Learn until the run is over or ``stop`` is set; write the last checkpoint and the summary.

        Returns:
            Why it ended: 'total_steps', 'stop_at_return', 'interrupted' or 'not finite'.

        Raises:
            GroupError: another learner is gone; what was learned is saved.
            OSError: the folder cannot be written.
        """
        self.learner.broadcast_state()
        # At once, so that a full disk is known before the work, and a restart can be counted.
        self.save()
        self._share()
        self._publish()
        self._last_status = self._last_row = self._last_checkpoint = time.monotonic()
        try:
            reason = self._learn_until_over(stop)
            self._share()
        except FloatingPointError as error:
            # The last good checkpoint stays: what led here must not overwrite it.
            self._say(f'{error}; the run ends, its checkpoint is left as it was')
            reason = 'not finite'
            self._share()
        except GroupError:
            # The weights are whole: a step of the optimiser is made or it is not.
            self.save()
            raise
        if reason != 'not finite':
            self.save()
        if self.folder is not None:
            if reason != 'not finite':
                self._report_and_checkpoint(over=True)
            self.folder.close(self.summary(reason))
        # Who ends first ends the launch: not before the folder is whole.
        with contextlib.suppress(*(() if self.folder is None else (GroupError,))):
            self.group.sum(torch.zeros(1))
        return reason

    def _learn_until_over(self, stop: threading.Event) -> str:
        """Return why it is over."""
        config = self.learner.config
        while True:
            reason = self._reason_to_end()
            if not reason:
                self._collect(stop)
                if stop.is_set() and self._batch is None:
                    reason = 'interrupted'
            ready, owed, reason = self._agree(reason)
            if reason:
                return reason
            if ready:
                assert self._batch is not None
                self._learn(self._batch)
                owed = owed or self.learner.version % config.publish_every == 0
            if owed:
                self._share()
                with self._phases('publish'):
                    self._publish()
                self._owed = False
            if self.folder is not None:
                self._report_and_checkpoint()

    def _report_and_checkpoint(self, *, over: bool = False) -> None:
        """Report and save if it is time; report what is left if it is over."""
        now, steps = time.monotonic(), self.learner.agent_steps
        # A row for each hundredth of the run so far: a long one has no more than a thousand, a
        # short one still makes a curve.
        due = over or now - self._last_row >= max(0.1, 0.01 * self.progress.wall_s)
        if due and steps > self._steps_in_row:
            self._report(now)
        due = over or now - self._last_status >= self._status_period
        if due and steps > self._steps_in_status:
            self._say(self._status(now))
        if not over and now - self._last_checkpoint >= self._checkpoint_period:
            self.save()
            self._last_checkpoint = now

    def _reason_to_end(self) -> str:
        config = self.learner.config
        if self.learner.agent_steps >= config.total_steps:
            return 'total_steps'
        # The first learner knows the episodes of all.
        if self.folder is not None and self.progress.reaches(config.stop_at_return):
            return 'stop_at_return'
        return ''

    def _agree(self, reason: str) -> tuple[bool, bool, str]:
        """
        Return what all learners do in this turn.

        Args:
            reason: why the run is over for this one, or ''.

        Returns:
            Whether they learn, which is if each has a batch; whether they publish, which is if
            actors of any wait for credit; and why the run is over, if it is for any of them.
        """
        flags = [self._batch is not None, self._owed, *(reason == each for each in _REASONS)]
        with self._phases('wait'):
            ready, owed, *reasons = self.group.sum(
                torch.tensor(flags, dtype=torch.int64)).tolist()
        why = [each for each, count in zip(_REASONS, reasons, strict=True) if count]
        return ready == self.group.size, owed > 0, why[0] if why else ''

    def _collect(self, stop: threading.Event) -> None:
        """Make a batch; return once there is one, or the other learners must hear of something."""
        while self._batch is None and not (self._owed or stop.is_set()):
            try:
                unroll = self.inbox.get(_TURN_S)
            except queue.Empty:
                return
            if self.progress.begin():
                for lap in (*self._run_laps.values(), *self._row_laps.values()):
                    lap.restart()
            self.progress.account(unroll)
            lag = self.learner.version - unroll.policy_version
            if lag > self.learner.config.max_version_lag:
                # Nothing is learned from it, and its actor may wait for just this credit.
                self.flow_stats.stale += 1
                self.flow_stats.use(unroll.start_id, unroll.sequence, lag)
                self._owed = True
                continue
            self._unrolls.append(unroll)
            if len(self._unrolls) == self._needed:
                self._decode()

    def _decode(self) -> None:
        try:
            self._batch = self.learner.decode(self._unrolls)
        except UnrollError as error:
            self.flow_stats.rejected += len(self._unrolls)
            self._say(f'a batch was left out: {error}')
            # The actors wait for their credit, whatever became of the batch.
            self._owed = True
            self._use(self.learner.version)

    def _learn(self, batch: Batch) -> None:
        version = self.learner.version
        self._metrics = self.learner.learn(batch)
        self._use(version)

    def _use(self, version: int) -> None:
        """Note that the unrolls of the batch are done with, at this version of the policy."""
        for unroll in self._unrolls:
            self.flow_stats.use(
                unroll.start_id, unroll.sequence, version - unroll.policy_version)
        self._unrolls, self._batch = [], None

    def _share(self) -> None:
        """Let the first learner know what the others know."""
        if self.group.size == 1:
            return
        with self._phases('encode'):
            told = self.group.gather(self.progress.tell())
            if self.group.rank == 0:
                self.progress.hear(dict(list(enumerate(told))[1:]))

    def _status(self, now: float) -> str:
        learner, progress = self.learner, self.progress
        seconds, self._last_status = now - self._last_status, now
        rate = (learner.agent_steps - self._steps_in_status) / max(seconds, 1e-9)
        self._steps_in_status = learner.agent_steps
        return status_line(
            agent_steps=learner.agent_steps, total_steps=learner.config.total_steps,
            steps_per_s=rate, mean_return=progress.mean_return, lag_mean=progress.lag_mean,
            lag_max=progress.lag[1], lost=progress.totals['lost'])

    def _report(self, now: float) -> None:
        """Write a row of progress since the row before."""
        assert self.folder is not None
        learner, progress, totals = self.learner, self.progress, self.progress.totals
        seconds, self._last_row = now - self._last_row, now
        rate = (learner.agent_steps - self._steps_in_row) / max(seconds, 1e-9)
        self._steps_in_row = learner.agent_steps
        row = {'agent_steps': learner.agent_steps, 'wall_s': round(progress.wall_s, 3),
               'mean_return_100': progress.mean_return, 'mean_length_100': progress.mean_length,
               'episodes': progress.episodes, 'steps_per_s': round(rate, 1),
               'policy_lag_mean': round(progress.lag_mean, 3),
               'trajectories_lost': totals['lost']}
        self.folder.report(row, self._metrics | {
            'charts/episodic_return': progress.mean_return,
            'charts/episodic_length': progress.mean_length, 'charts/SPS': rate,
            'flow/policy_lag_mean': progress.lag_mean, 'flow/policy_lag_max': progress.lag[1],
            'flow/trajectories_lost': totals['lost'],
            'flow/trajectories_stale': totals['stale'],
            'flow/wire_bytes': totals['bytes_in'],
            **{f'time/{name}/{phase}': share for name, lap in self._row_laps.items()
               for phase, share in lap.take().items()},
            **self._topics()})

    def save(self) -> None:
        """Write the checkpoint, if this is the first learner."""
        if self.folder is not None:
            self.folder.save(config=self.settings, learner=self.learner.state(),
                             progress=self.progress.state())

    def summary(self, reason: str) -> dict[str, Any]:
        """Return what summary.json holds; see docs/runs.md."""
        learner, wall = self.learner, self.progress.wall_s
        return {
            'env_id': self.settings['env_id'],
            'algorithm': learner.config.algorithm,
            'ended_by': reason,
            'learners': self.group.size,
            'device': describe(learner.device),
            'agent_steps': learner.agent_steps,
            'updates': learner.version,
            'wall_s': round(wall, 3),
            'steps_per_s': round(learner.agent_steps / wall, 1) if wall else 0.0,
            **self.progress.summary(),
            'time_shares': {
                name: {phase: round(share, 4) for phase, share in lap.shares().items()}
                for name, lap in self._run_laps.items()},
        }
