"""The training loop: collect, batch, learn, publish, report; see :meth:`Trainer.run`.

A step on its way from an environment to the gradient, file by file:

1. ``rl/acting/actor.py`` chooses actions and records an unroll (``rl/data/unroll.py``).
2. ``ros/training/actor.py`` sends it; ``ros/training/messages.py`` queues it at the
   learner. ``local_training.py`` replaces both by a call.
3. The loop here takes it from the inbox, and makes a batch of several (``rl/data/batch.py``).
4. ``rl/algorithms/<algorithm>.py`` computes the loss, ``optimizer.py`` there makes the step.
5. The loop publishes the new policy, which the actor loads before its next unroll.

With several learners each runs this loop, and every iteration contains one sum over all,
:meth:`Trainer._agree`, so all learn, publish and end in the same iteration. A learner whose actors
are slow iterates without learning, so that all notice within ``_COLLECT_S`` that the run is over
or that a learner has died.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any

import torch

from vdl_ros.common.metrics import TRAINING, ThreadTimer
from vdl_ros.common.settings import SettingError
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.unroll import EndOfBagError, Inbox, Unroll, UnrollError
from vdl_ros.rl.distributed.collectives import GroupError
from vdl_ros.rl.learning.episode_table import EpisodeTable
from vdl_ros.rl.learning.evaluations import Evaluations, Evaluator
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Progress
from vdl_ros.rl.learning.reporting import RunReporter
from vdl_ros.rl.runs.checkpoint import CheckpointError
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder

__all__ = ['NOT_FINITE', 'Trainer']

#: Why a run ends whose loss or gradient is not finite.
NOT_FINITE = 'not finite'

# Why a run ends; the first that applies to any learner counts.
_REASONS = ('total_steps', 'stop_at_return', 'eval_patience', 'end_of_bag', 'interrupted')
# Longest wait for an unroll in one iteration, s.
_COLLECT_S = 0.1
# Actors named in a warning.
_NAMED = 5


def verify_replay(learner: Learner) -> None:
    """Check that the replay of a learner can be saved.

    Raises:
        SettingError: it has none, or is one of several, of which each has one.
    """
    if not learner.algorithm.replay_arrays():
        raise SettingError('save_replay: true is not allowed with algorithm '
                           f'{learner.config.algorithm!r}: it has no replay')
    if learner.group.size > 1:
        raise SettingError('save_replay: true is not allowed with num_learners '
                           f'{learner.group.size}: one learner')


class Trainer:
    """One run, from its first update to its summary.

    Args:
        folder: folder of the run; None for all learners but learner 0.
        settings: every setting as resolved, including ``env_id``.
        publish: called after every ``publish_every`` updates, to publish the policy.
        log: called with each line of progress.
        warn: called with each warning; None: as ``log``.
        evaluator: evaluates the policy every ``eval_every`` steps; None: nothing does.
        extra_scalars: returns more scalars for TensorBoard, by tag, since the last call.
        timers: timers of the process's threads by name; ``training`` is the trainer's own.
        num_actors: actors of this learner; with ``synchronous`` all wait for an update.
        checkpoint_period: seconds between checkpoints.
        status_period: seconds between lines of progress.
        stall_timeout: seconds without an unroll until a warning names the actors that the
            run waits for; a synchronous run then goes on without them.
        clock: time for ``stall_timeout`` and the last evaluation, s.

    Attributes:
        flow_stats: counts of trajectories received and lost; the inbox updates them too.
        busy: whether it makes an update, and does not wait for unrolls; for other threads.

    Raises:
        CheckpointError: the folder's checkpoint cannot be read.
        OSError: the folder cannot be written.
        ValueError: the checkpoint is of another environment, algorithm or network.
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
        log: Callable[[str], None],
        warn: Callable[[str], None] | None = None,
        evaluator: Evaluator | None = None,
        extra_scalars: Callable[[], Mapping[str, float]] = dict,
        timers: Mapping[str, ThreadTimer] | None = None,
        num_actors: int = 1,
        checkpoint_period: float = RunConfig.checkpoint_period,
        status_period: float = RunConfig.status_period,
        stall_timeout: float = RunConfig.stall_timeout,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.learner, self.folder = learner, folder
        self.busy = False
        self.group, self.inbox, self.flow_stats = learner.group, inbox, flow_stats
        self.progress = Progress(flow_stats, reports=folder is None)
        self._publish_policy, self._log, self._warn = publish, log, warn or log
        config = learner.config
        self._actors_needed = num_actors if config.synchronous else 1
        # The actors that a synchronous run waits for, once it has gone on without others.
        self._present: set[str] | None = None
        self._stall_timeout, self._clock = stall_timeout, clock
        self._waiting_since = self._warned_at = clock()
        self._unrolls: list[Unroll] = []
        self._batch: Batch | None = None
        self._is_exhausted = False
        timers = timers or {TRAINING: ThreadTimer()}
        self._timer = timers[TRAINING]
        self._metrics: dict[str, float] = {}
        self._publish_due = False
        if folder is not None:
            if folder.config.save_replay:
                verify_replay(learner)
            self._resume(folder, settings)
        self._evaluations = None
        if folder is not None and evaluator is not None and config.eval_every:
            self._evaluations = Evaluations(
                learner, self.progress, folder, settings, evaluator, log=log, warn=self._warn,
                clock=clock)
        self.reporter = RunReporter(
            learner, self.progress, folder, settings, log=log, warn=self._warn,
            evaluations=self._evaluations, extra_scalars=extra_scalars, timers=timers,
            checkpoint_period=checkpoint_period, status_period=status_period)
        is_measured = settings.get('adversarial_mode', 'none') != 'none' or config.freeze
        self._episodes = EpisodeTable(folder.path, learner, warn or log, first=is_measured) \
            if folder is not None and (is_measured or config.record_episodes) else None
        # Now: a full disk shows early, and restarts can be counted.
        self.reporter.save()

    def _resume(self, folder: RunFolder, settings: Mapping[str, Any]) -> None:
        """Restore learner and progress from the folder's checkpoint, if there is one."""
        checkpoint = folder.load()
        if checkpoint is None:
            return
        for name in ('env_id', 'algorithm'):
            was, now = checkpoint['config'].get(name), settings[name]
            if was != now:
                raise ValueError(f'{folder.checkpoint}: {name} {was!r} is not {now!r}')
        self.learner.load_state(checkpoint['learner'])
        try:
            self.progress.load_state(checkpoint['progress'])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f'{folder.checkpoint}: progress: {error}') from None
        if folder.config.save_replay:
            self._load_replay(folder)
        self.progress.restarts += int(folder.restarted)
        restarts, starts = folder.load_actors()
        # The actors of another launch are other processes, though they have the same names.
        self.progress.restore_actors(restarts, starts if folder.restarted else {})

    def _load_replay(self, folder: RunFolder) -> None:
        arrays = folder.load_replay(self.learner.agent_steps)
        if arrays is None:
            self._warn(f'save_replay: {folder.path} holds no replay of its checkpoint: it is '
                       'filled anew')
            return
        try:
            self.learner.algorithm.load_replay_arrays(arrays)
        except ValueError as error:
            raise CheckpointError(f'{folder.path}: replay: {error}') from None

    def run(self, stop: threading.Event) -> str:
        """Learn until the run is over or ``stop`` is set; write last checkpoint and summary.

        Returns:
            Why it ended: NOT_FINITE, or one of ``_REASONS``.

        Raises:
            GroupError: another learner is gone; the checkpoint is saved before.
            OSError: the folder cannot be written.
        """
        iterations = self.iterations(stop)
        while True:
            try:
                next(iterations)
            except StopIteration as end:
                return str(end.value)

    def iterations(self, stop: threading.Event) -> Generator[None, None, str]:
        """Yield after each iteration of :meth:`run`, and return what it returns.

        So that one thread can run several trainings in turn.
        """
        self.learner.broadcast_state()
        self._publish()
        self.reporter.start()
        try:
            reason = yield from self._train(stop)
            self._merge_progress()
        except FloatingPointError as error:
            # The last good checkpoint is not overwritten.
            self._log(f'{error}; the run ends, its checkpoint is left as it was')
            reason = NOT_FINITE
            self._merge_progress()
        except GroupError:
            # The weights are consistent: an optimizer step happens completely or not at all.
            self.reporter.save()
            raise
        if reason != NOT_FINITE:
            self.reporter.save()
            self.reporter.report(self._metrics, over=True)
            self._evaluate_last(reason, stop)
        self.reporter.close(reason)
        # The first learner to end shuts the launch down: not before the folder is complete.
        with contextlib.suppress(*(() if self.folder is None else (GroupError,))):
            self.group.all_reduce_sum(torch.zeros(1))
        return reason

    def _train(self, stop: threading.Event) -> Generator[None, None, str]:
        """Repeat the steps of the loop until the run is over; return why it ended."""
        while True:
            reason = self._reason_to_end()
            if not reason:
                self._collect(stop)
                self._make_batch()
            learn, reason = self._agree(reason, stop)
            if reason:
                return reason
            if learn:
                self._learn()
            if self._publish_due:
                self._publish()
            self.busy = False
            if self._evaluations is not None:
                self._evaluations.update()
            self.reporter.report(self._metrics)
            yield

    def _evaluate_last(self, reason: str, stop: threading.Event) -> None:
        """Wait for the evaluation of the last policy, all learners together, unless stopped."""
        if not self.learner.config.eval_every or reason == 'interrupted':
            return
        # Actors are to wait too.
        self.busy = True
        if self._evaluations is not None:
            self._evaluations.start_last()
        waits = True
        while waits:
            mine = self._evaluations is not None and not stop.is_set() \
                and self._evaluations.waits()
            waits = bool(self.group.all_reduce_sum(torch.tensor([int(mine)])))
            if waits:
                stop.wait(_COLLECT_S)

    def _reason_to_end(self) -> str:
        """Return why the run is over, or ''."""
        config = self.learner.config
        if self.learner.agent_steps >= config.total_steps:
            return 'total_steps'
        # Only learner 0 counts the episodes of all.
        if self.folder is not None and not config.freeze \
                and self.progress.reaches(config.stop_at_return):
            return 'stop_at_return'
        if self._evaluations is not None and self._evaluations.is_over:
            return 'eval_patience'
        return 'end_of_bag' if self._is_exhausted else ''

    def _collect(self, stop: threading.Event) -> None:
        """Take unrolls until there are enough, none arrives, or the policy must be published."""
        while len(self._unrolls) < self._needed and not (self._publish_due or stop.is_set()):
            try:
                unroll = self.inbox.get(_COLLECT_S)
            except EndOfBagError:
                self._is_exhausted = True
                return
            except queue.Empty:
                self._check_stall()
                return
            self._waiting_since = self._warned_at = self._clock()
            if self.flow_stats.credit_due:
                # Its actor may have no credit for another one, and be the only actor.
                self.flow_stats.credit_due, self._publish_due = False, True
            if self._present is not None:
                self._present.add(unroll.actor_id)
            if self.progress.start_clock():
                self.reporter.restart_windows()
            finished = self.progress.record(unroll)
            if self._episodes is not None:
                self._episodes.add(unroll, finished)
            lag = self.learner.version - unroll.policy_version
            if lag <= self.learner.config.max_version_lag:
                self._unrolls.append(unroll)
            else:
                # Not learned from; publish, because its actor may wait for this credit.
                self.flow_stats.stale += 1
                self.flow_stats.use(unroll.start_id, lag)
                self._publish_due = True

    @property
    def _needed(self) -> int:
        """Unrolls that an update takes."""
        actors = self._actors_needed
        if self._present is not None:
            actors = min(actors, len(self._present))
        return self.learner.config.batch_size * actors

    def _check_stall(self) -> None:
        """Warn of silent actors after ``stall_timeout``; if synchronous, go on without them."""
        now, batch_size = self._clock(), self.learner.config.batch_size
        if now - self._warned_at < self._stall_timeout:
            return
        self._warned_at = now
        counts = Counter(unroll.actor_id for unroll in self._unrolls)
        known = {record.actor_id for record in self.flow_stats.actor_records.values()}
        missing = sorted(each for each in known if counts[each] < batch_size)
        names = ', '.join(f'{each[:80]!r}' for each in missing[:_NAMED]) or 'its actors'
        more = f' and {len(missing) - _NAMED} more' if len(missing) > _NAMED else ''
        end = ''
        if batch_size <= len(self._unrolls) < self._needed:
            end = '; it goes on without those that are silent, until they send again'
            self._present = {each for each, count in counts.items() if count >= batch_size} or (
                set(counts))
        self._warn(f'stalled for {now - self._waiting_since:.0f} s, waiting for {names}{more}'
                   f'{end}')

    def _make_batch(self) -> None:
        """Make a batch once there are enough unrolls."""
        if self._batch is not None or len(self._unrolls) < self._needed:
            return
        try:
            self._batch = self.learner.make_batch(self._unrolls)
        except UnrollError as error:
            self.flow_stats.rejected += len(self._unrolls)
            self._log(f'a batch was left out: {error}')
            # The actors wait for their credit nevertheless.
            self._publish_due = True
            self._release_unrolls(self.learner.version)

    def _agree(self, reason: str, stop: threading.Event) -> tuple[bool, str]:
        """Return whether all learners learn in this iteration, and why the run is over.

        They learn if each has a batch, publish if any of them has to, and end if any of them ends.

        Args:
            reason: why the run is over for this learner, or ''.
            stop: the run is interrupted once it is set and no batch is left.
        """
        if not reason and stop.is_set() and self._batch is None:
            reason = 'interrupted'
        flags = [self._batch is not None, self._publish_due,
                 *(reason == each for each in _REASONS)]
        with self._timer('wait'):
            ready, publish, *reasons = self.group.all_reduce_sum(
                torch.tensor(flags, dtype=torch.int64)).tolist()
        self._publish_due = publish > 0
        found = [each for each, count in zip(_REASONS, reasons, strict=True) if count]
        return ready == self.group.size, found[0] if found else ''

    def _learn(self) -> None:
        """Make one update from the batch."""
        assert self._batch is not None
        self.busy = True
        version = self.learner.version
        self._metrics = self.learner.learn(self._batch)
        self._release_unrolls(version)
        config = self.learner.config
        # A frozen policy stays as it is, but actors wait for credit.
        if config.freeze or self.learner.version % config.publish_every == 0:
            self._publish_due = True

    def _release_unrolls(self, version: int) -> None:
        """Drop the unrolls of the batch and credit their actors; ``version`` learned from them."""
        for unroll in self._unrolls:
            self.flow_stats.use(unroll.start_id, version - unroll.policy_version)
        self._unrolls, self._batch = [], None

    def _publish(self) -> None:
        """Publish the policy with the credits of all learners' actors."""
        self._merge_progress()
        with self._timer('publish'):
            self._publish_policy()
        self._publish_due = False
        self._waiting_since = self._warned_at = self._clock()

    def _merge_progress(self) -> None:
        """Send the other learners' progress to learner 0."""
        if self.group.size == 1:
            return
        with self._timer('encode'):
            reports = self.group.all_gather(self.progress.drain_report())
            if self.group.rank == 0:
                self.progress.merge_reports(dict(list(enumerate(reports))[1:]))
