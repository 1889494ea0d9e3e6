"""The training loop: collect, batch, learn, publish, report; see :meth:`Trainer.run`.

A step on its way from an environment to the gradient, file by file:
1. ``rl/acting/actor.py`` chooses actions and records an unroll (``rl/data/unroll.py``).
2. ``ros/training/actor.py`` sends it; ``ros/training/messages.py`` queues it at the
   learner. ``local_training.py`` replaces both by a call.
3. :class:`Collector` takes it from the inbox, and makes a batch of several (``rl/data/batch.py``).
4. ``rl/algorithms/<algorithm>.py`` computes the loss, ``algorithm.py`` there makes the step.
5. The loop publishes the new policy, which the actor loads before its next unroll.

With several learners each runs this loop, and every iteration contains one sum over all,
:meth:`Trainer._agree`, so all learn, publish and end in the same iteration. A learner whose actors
are slow iterates without learning, so that all notice within ``COLLECT_S`` that the run is over
or that a learner has died.
"""

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any

import torch

from vdl_ros.common.metrics import TRAINING, ThreadTimer
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.unroll import EndOfBagError, Inbox, Unroll
from vdl_ros.rl.distributed.collectives import GroupError
from vdl_ros.rl.learning.evaluations import Evaluations, Evaluator
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Callbacks, Progress
from vdl_ros.rl.learning.reporting import NOT_SAVED, EpisodeTable, RunReporter
from vdl_ros.rl.policy.numpy_policy import BoxActions
from vdl_ros.rl.runs.checkpoint import CheckpointError, settings_of_actions
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.settings import NO_THRESHOLD

#: Longest wait for an unroll, s.
COLLECT_S = 0.1
# Actors named in a warning.
_NAMED = 5


class Collector:
    """The unrolls of the next batch; ``record`` is called with each that is taken.

    An asynchronous training takes ``batch_size`` unrolls of any actors, a synchronous one so many
    of each, and keeps more of one for the next batch. Without an unroll for ``stall_timeout``
    seconds, nor ``progress`` of one, a warning names the actors that the run waits for; a
    synchronous run then goes on without them, until they send again.
    """

    def __init__(
        self, learner: Learner, inbox: Inbox, flow_stats: FlowStats,
        record: Callable[[Unroll], None], calls: Callbacks, *, num_actors: int,
        stall_timeout: float, clock: Callable[[], float],
    ) -> None:
        self.inbox, self.is_exhausted = inbox, False
        self._learner, self._flow_stats = learner, flow_stats
        self._record, self._calls = record, calls
        self._stall_timeout, self._clock = stall_timeout, clock
        self._num_actors = num_actors if learner.config.synchronous else 1
        # The actors that a synchronous run waits for, once it has gone on without others.
        self._present: set[str] | None = None
        self._unrolls: list[Unroll] = []
        self._counts: Counter[str] = Counter()  # of these, by actor
        self._later: list[Unroll] = []
        self._batch: Batch | None = None
        self.restart_clock()

    def restart_clock(self) -> None:
        """Count ``stall_timeout`` from now."""
        self._waiting_since = self._warned_at = self._clock()

    @property
    def _needed(self) -> int:
        present = self._num_actors if self._present is None else len(self._present)
        return self._learner.config.batch_size * min(self._num_actors, present)

    @property
    def share(self) -> str:
        """How many unrolls of a batch there are, and what is done once these are all."""
        share = f'{len(self._unrolls)} of {self._needed} are here'
        if len(self._unrolls) < self._needed:
            missing = self._learner.config.synchronous and self._unrolls and self._missing
            return f'{share}, not of {missing}' if missing else share
        return f'{share}, and ' + ('are made a batch' if self._batch is None else
                                   'it waits for the other learners')

    @property
    def _missing(self) -> str:
        """The names of known actors of whom the batch needs unrolls; any thread may call it."""
        known = {record.actor_id for record in list(self._flow_stats.actor_records.values())}
        missing = sorted(each for each in known
                         if self._counts[each] < self._learner.config.batch_size)
        names = ', '.join(f'{each[:80]!r}' for each in missing[:_NAMED])
        return names + (f' and {len(missing) - _NAMED} more' if len(missing) > _NAMED else '')

    def collect(self, stop: threading.Event) -> Batch | None:
        """Return a batch once there are enough unrolls, the same until :meth:`release`.

        Until then it takes unrolls, and returns None if none arrives, the policy must be
        published, or ``stop`` is set.
        """
        while len(self._unrolls) < self._needed and not (
                self._flow_stats.credit_due or stop.is_set()):
            try:
                unroll = self.inbox.get(COLLECT_S)
            except EndOfBagError:
                self.is_exhausted = True
                break
            except queue.Empty:
                if not stop.is_set() and not self._calls.progress():
                    self._check_stall()
                break
            self._add(unroll)
        if self._batch is None and len(self._unrolls) >= self._needed:
            self._batch = self._learner.make_batch(self._unrolls)
        return self._batch

    def _add(self, unroll: Unroll) -> None:
        if self._present is not None:
            self._present.add(unroll.actor_id)
        self._record(unroll)
        self._sort(unroll)

    def _sort(self, unroll: Unroll) -> None:
        """Put it into the batch, or aside: its actor gave one up, or has started again."""
        config, lag = self._learner.config, self._learner.version - unroll.policy_version
        is_extra = config.synchronous and self._counts[unroll.actor_id] >= config.batch_size
        if lag > config.max_version_lag or (is_extra and len(self._later) >= self._needed):
            # Not learned from; publish, because its actor may wait for this credit.
            self._flow_stats.stale += 1
            self._flow_stats.use(unroll.start_id, lag)
            self._flow_stats.credit_due = True
        elif is_extra:
            self._later.append(unroll)
        else:
            self._unrolls.append(unroll)
            self._counts[unroll.actor_id] += 1
        if not is_extra:
            self.restart_clock()

    def release(self, version: int) -> None:
        """Drop the unrolls of the batch and credit their actors; ``version`` learned from them."""
        for unroll in self._unrolls:
            self._flow_stats.use(unroll.start_id, version - unroll.policy_version)
        self._unrolls, self._batch = [], None
        self._counts.clear()
        later, self._later = self._later, []
        for unroll in later:
            self._sort(unroll)

    def _check_stall(self) -> None:
        """Warn of silent actors after ``stall_timeout``; if synchronous, go on without them."""
        now, batch_size = self._clock(), self._learner.config.batch_size
        if now - self._warned_at < self._stall_timeout:
            return
        self._warned_at = now
        missing, end = self._missing or 'its actors', ''
        if batch_size <= len(self._unrolls) < self._needed:
            end = '; it goes on without those that are silent, until they send again'
            self._present = {each for each, count in self._counts.items()
                             if count >= batch_size} or set(self._counts)
        self._calls.warn(f'stalled for {now - self._waiting_since:.0f} s, waiting for '
                         f'{missing}{end}')


#: Why a run ends whose loss or gradient is not finite.
NOT_FINITE = 'not finite'
# Longest time without a line while an update lasts, or while the next one waits for its
# trajectories; time between looks at whether one is due, s.
_SILENT_S, _LOOK_S = 7.0, 1.0
# Time until the same is said again while it waits for a robot, which may wait for a person, s.
_ROBOT_AGAIN_S = 60.0
# Why a run ends; the first that applies to any learner counts.
_REASONS = ('total_steps', 'stop_at_return', 'eval_patience', 'end_of_bag', 'interrupted')


class Trainer:
    """One run, from its first update to its summary.

    Args:
        folder: folder of the run; None for all learners but learner 0.
        settings: every setting as resolved, including ``env_id``.
        evaluator: evaluates the policy every ``eval_every`` steps; None: nothing does.
        timers: timers of the process's threads by name; ``training`` is the trainer's own.
        clock: time for ``stall_timeout`` and the last evaluation, s.

    Attributes:
        busy: whether it makes an update, or saves it, and does not wait for unrolls; for other
            threads.

    Raises:
        ValueError: the checkpoint cannot be read, or is of another environment or network.
        OSError: the folder cannot be written.
    """

    def __init__(
        self, learner: Learner, inbox: Inbox, flow_stats: FlowStats, folder: RunFolder | None,
        settings: dict[str, Any], run: RunConfig, calls: Callbacks, *,
        evaluator: Evaluator | None = None, timers: Mapping[str, ThreadTimer] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.learner, self.folder, self.group = learner, folder, learner.group
        self.flow_stats, self.progress = flow_stats, Progress(flow_stats, reports=folder is None)
        self.busy, self._of_robot = False, str(settings.get('env_id')).startswith('robot/')
        # Number and begin, s, of the update under way, and the optimizer steps before it.
        self._update: tuple[int, float, int] | None = None
        self._calls, config = calls, learner.config
        timers = timers or {TRAINING: ThreadTimer()}
        self._timer = timers[TRAINING]
        self._metrics: dict[str, float] = {}
        # Held while the learner is not whole, and from the end of the run on.
        self._turn = threading.Lock()
        self._evaluations = self._episodes = None
        if folder is not None:
            self._resume(folder, settings)
            if evaluator is not None and config.eval_every:
                self._evaluations = Evaluations(
                    learner, self.progress, folder, settings, evaluator, calls, clock)
            is_measured = settings.get('adversarial_mode', 'none') != 'none' or config.freeze
            if is_measured or config.record_episodes:
                self._episodes = EpisodeTable(folder.path, learner, calls.warn, first=is_measured)
        self.reporter = RunReporter(
            learner, self.progress, folder, settings, run, calls, timers, self._evaluations)
        self.collector = Collector(
            learner, inbox, flow_stats, self._record, calls, num_actors=run.own_actors,
            stall_timeout=run.stall_timeout, clock=clock)
        # Now: a full disk shows early, and restarts can be counted.
        self.reporter.save()

    def _resume(self, folder: RunFolder, settings: Mapping[str, Any]) -> None:
        learner, save_replay = self.learner, folder.config.save_replay
        for name, value, reason in (
                ('algorithm', learner.config.algorithm, not learner.algorithm.replay_arrays()
                 and 'it has no replay'),
                ('num_learners', self.group.size, self.group.size > 1 and 'one learner')):
            if save_replay and reason:
                raise SettingError(
                    f'save_replay: true is not allowed with {name} {value!r}: {reason}')
        checkpoint = folder.load()
        if checkpoint is None:
            return
        for name in ('env_id', 'algorithm',
                     *settings_of_actions(learner.policy, learner.config)):
            was, now = checkpoint['config'].get(name), settings[name]
            if was != now:
                raise ValueError(f'{folder.checkpoint}: {name} {quoted(was)} is not {now!r}')
        learner.load_state(checkpoint['learner'])
        try:
            self.progress.load_state(checkpoint['progress'])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f'{folder.checkpoint}: progress: {error}') from None
        arrays = folder.load_replay(learner.agent_steps) if save_replay else None
        rows = folder.progress()
        lost = int(rows[-1]['agent_steps']) - learner.agent_steps if rows else 0
        self._calls.log(f'goes on after {learner.agent_steps:,} steps with weights, optimizer, '
                        'curve and random state' + ', and with their replay' * (
                            arrays is not None)
                        + f'; {lost:,} steps since that checkpoint are lost' * (lost > 0))
        if save_replay:
            if arrays is None:
                self._calls.warn(f'save_replay: {folder.path} holds no replay of its checkpoint: '
                                 'it is filled anew')
            else:
                try:
                    learner.algorithm.load_replay_arrays(arrays)
                except ValueError as error:
                    raise CheckpointError(f'{folder.path}: replay: {error}') from None
        self.progress.restarts += int(folder.restarted)

    def run(self, stop: threading.Event) -> str:
        """Learn until the run is over or ``stop`` is set; write last checkpoint and summary.

        Returns why it ended: NOT_FINITE, NOT_SAVED, or one of ``_REASONS``. If another learner is
        gone, which is a GroupError, or something fails between updates, it saves the checkpoint.
        """
        iterations = self.iterations(stop)
        while True:
            try:
                next(iterations)
            except StopIteration as end:
                return str(end.value)

    def iterations(self, stop: threading.Event) -> Generator[None, None, str]:
        """Yield after each iteration of :meth:`run`, for a thread that runs several in turn."""
        self.learner.broadcast_state()
        if self.group.size == 1:
            # With large networks they can take a minute.
            self.learner.algorithm.is_interrupted = stop.is_set
        distribution = self.learner.policy.distribution
        if isinstance(distribution, BoxActions) and distribution.unscaled:
            self._calls.log(f'actions {distribution.unscaled} are in units of the environment: '
                            'they have no bounds up to 1e9, or scale_actions is false')
        over = threading.Event()
        threading.Thread(target=self._tell_if_silent, args=(over,), daemon=True).start()
        try:
            with self._turn:
                self._begin_update()
                self.learner.warm_up()
                self._publish()
                self._update, self.busy = None, False
            self.reporter.start()
            reason = yield from self._train(stop)
            self._merge_progress()
        except FloatingPointError as error:
            # The last good checkpoint is not overwritten.
            self._calls.log(f'{error}; the run ends, its checkpoint is left as it was')
            reason = NOT_FINITE
            self._merge_progress()
        except Exception as error:
            # The weights are consistent between updates, and without another learner: an optimizer
            # step happens completely or not at all.
            if isinstance(error, GroupError) or self._update is None:
                self._writes(self.reporter.save)
            raise
        finally:
            over.set()
        self._turn.acquire()
        reason = self._finish(reason, stop)
        # The first learner to end shuts the launch down: not before the folder is complete.
        with contextlib.suppress(*(() if self.folder is None else (GroupError,))):
            self.group.all_reduce_sum(torch.zeros(1))
        return reason

    def give_up(self, stop: threading.Event) -> str:
        """Write what :meth:`run` does at its end; an environment holds up its thread for ever.

        Returns why the run ended; '' if it had, or in the middle of an update.
        """
        # Not released: if that thread goes on after all, it only waits for the process to end.
        return self._finish('interrupted', stop) if self._turn.acquire(blocking=False) else ''

    def _finish(self, reason: str, stop: threading.Event) -> str:
        is_saved = True
        if reason != NOT_FINITE:
            is_saved = self._writes(self.reporter.save)
            self.reporter.report(self._metrics, over=True)
            self._evaluate_last(reason, stop)
        is_saved &= self._writes(lambda: self.reporter.close(reason if is_saved else NOT_SAVED))
        return reason if is_saved else NOT_SAVED

    def _writes(self, write: Callable[[], None]) -> bool:
        """Return whether files of the end of the run are written; else log what is lost."""
        try:
            write()
        except OSError as error:
            # Without a number it is of no file: a handler of signals may raise a TimeoutError.
            if error.errno is None:
                raise
            self._calls.log(f'{error}: not written; {self.reporter.lost}')
            return False
        return True

    def _train(self, stop: threading.Event) -> Generator[None, None, str]:
        while True:
            reason = self._reason_to_end()
            batch = None if reason else self.collector.collect(stop)
            learn, publish, reason = self._agree(batch, reason, stop)
            if reason:
                return reason
            with self._turn:
                if learn and batch is not None:
                    publish |= self._learn(batch)
                if publish:
                    self._publish()
                self._update = None
            if self._evaluations is not None:
                self._evaluations.update()
            self.reporter.report(self._metrics)
            self.busy = False
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
                stop.wait(COLLECT_S)

    def _reason_to_end(self) -> str:
        config = self.learner.config
        if self.learner.agent_steps >= config.total_steps:
            return 'total_steps'
        # Only learner 0 counts the episodes of all.
        if self.folder is not None and not config.freeze \
                and config.stop_at_return != NO_THRESHOLD \
                and self.progress.reaches(config.stop_at_return):
            return 'stop_at_return'
        if self._evaluations is not None and not config.freeze and self._evaluations.is_over:
            return 'eval_patience'
        return 'end_of_bag' if self.collector.is_exhausted else ''

    def _record(self, unroll: Unroll) -> None:
        if self.progress.start_clock():
            self.reporter.restart_windows()
        finished = self.progress.record(unroll)
        if self._episodes is not None:
            self._episodes.add(unroll, finished)

    def _agree(
        self, batch: Batch | None, reason: str, stop: threading.Event,
    ) -> tuple[bool, bool, str]:
        """Return whether all learners learn now, whether they publish, and why the run is over.

        They learn if each has a batch; else they end if any of them ends, or is interrupted. They
        publish if any of them has to.
        """
        reasons = {reason, 'interrupted' if stop.is_set() else ''}
        flags = [batch is not None, self.flow_stats.credit_due,
                 *(each in reasons for each in _REASONS)]
        with self._timer('wait'):
            ready, publish, *counts = self.group.all_reduce_sum(
                torch.tensor(flags, dtype=torch.int64)).tolist()
        if ready == self.group.size:
            return True, publish > 0, ''
        found = [each for each, count in zip(_REASONS, counts, strict=True) if count]
        return False, publish > 0, found[0] if found else ''

    def _tell_if_silent(self, over: threading.Event) -> None:
        """Log how far a long update is, or what it waits for, until ``over`` is set."""
        told, version, algorithm = time.monotonic(), self.learner.version, self.learner.algorithm
        waits = ''
        while not over.wait(_LOOK_S):
            update, now = self._update, time.monotonic()
            if self.learner.version != version:
                told, version = now, self.learner.version
            # Of an update that has just begun there is nothing to say.
            if now - told < _SILENT_S or (update and now - update[1] < _LOOK_S):
                continue
            if update is None:
                said, waits = waits, (f'waits for the trajectories of update {version + 1}: '
                                      f'{self.collector.share}')
                if progress := self._calls.progress():
                    waits += f'; {progress}'
                if waits != said or not self._of_robot or now - told >= _ROBOT_AGAIN_S:
                    told = now
                    self._calls.log(waits)
                continue
            told = now
            number, since, steps = update
            step = algorithm.optimizer.steps - steps + 1
            self._calls.log(f'update {number} lasts {now - since:.0f} s: optimizer step '
                            f'{min(step, algorithm.planned)} of {algorithm.planned}')

    def _begin_update(self) -> None:
        self.busy = True
        self._update = (self.learner.version + 1, time.monotonic(),
                        self.learner.algorithm.optimizer.steps)

    def _learn(self, batch: Batch) -> bool:
        self._begin_update()
        version, config = self.learner.version, self.learner.config
        self._metrics = self.learner.learn(batch)
        self.collector.release(version)
        # A frozen policy stays as it is, but actors wait for credit.
        return config.freeze or self.learner.version % config.publish_every == 0

    def _publish(self) -> None:
        self.flow_stats.credit_due = False
        self._merge_progress()
        with self._timer('publish'):
            self._calls.publish()
        self.collector.restart_clock()

    def _merge_progress(self) -> None:
        if self.group.size == 1:
            return
        with self._timer('encode'):
            reports = self.group.all_gather(self.progress.drain_report())
            if self.group.rank == 0:
                self.progress.merge_reports(dict(list(enumerate(reports))[1:]))
