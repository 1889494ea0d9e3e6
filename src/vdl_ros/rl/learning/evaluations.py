"""Evaluations of a run: when they are due, evaluations.csv, best.pt, and when they end the run."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from vdl_ros.common.files import ProgressTable
from vdl_ros.rl.acting.evaluation import Evaluation
from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Callbacks, Progress
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from vdl_ros.rl.runs.run_folder import RunFolder

_COLUMNS = ('agent_steps', 'wall_s', 'version', 'episodes', 'mean_return', 'interval', 'std',
            'smallest', 'largest', 'mean_length', 'success_rate')
# A policy waits so long for an evaluator to come, and for its result, s.
_ABSENT_S = 30.0
_RESULT_S = 600.0


@dataclass(frozen=True, eq=False)
class EvaluatedPolicy:
    """A policy to evaluate; ``agent_steps``, that it was learned from, identify it in a run."""

    agent_steps: int
    version: int
    wall_s: float
    weights: Arrays


@dataclass(frozen=True)
class Result:
    """What became of an evaluation; without one, ``problem`` says why in one line."""

    agent_steps: int
    evaluation: Evaluation | None
    problem: str = ''


class Evaluator(Protocol):
    """What evaluates policies, here or in another process."""

    @property
    def present(self) -> bool:
        """Whether it is there, as far as is known."""

    def start(self, policy: EvaluatedPolicy) -> None:
        """Evaluate a policy, the newest first; results come when they come."""

    def take(self) -> Result | None:
        """Return a result that was not returned before, if there is one."""


class Evaluations:
    """The evaluations of one run.

    One is under way at a time: if they take longer than ``eval_every`` steps, there are fewer. A
    result that does not come in time is logged and delays only the next evaluation; it still
    counts if it comes before that of a later policy.
    """

    def __init__(
        self, learner: Learner, progress: Progress, folder: RunFolder, settings: Mapping[str, Any],
        evaluator: Evaluator, calls: Callbacks, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._learner, self._progress, self._folder = learner, progress, folder
        self._settings, self._evaluator = dict(settings), evaluator
        self._log, self._warn, self._clock = calls.log, calls.warn, clock
        self._table = ProgressTable(folder.path / 'evaluations.csv', _COLUMNS)
        self._table.truncate(learner.agent_steps)
        self._rows = self._table.rows()
        self._best = self._load_best()
        # Under way, by agent_steps: one, and the one before it without a result.
        self._pending: dict[int, EvaluatedPolicy] = {}
        self._plan()
        # The one that others wait for, when it was started, and when an evaluator was there.
        self._awaited = -1
        self._since = self._seen_at = 0.0
        self._has_dropped = False

    def _load_best(self) -> dict[str, float] | None:
        """Return the row of best.pt, which may be of later steps than the checkpoint."""
        if not self._folder.best.is_file():
            return None
        try:
            found = load_checkpoint(self._folder.best)['progress']['evaluation']
            return {name: float(found[name]) for name in _COLUMNS}
        except (CheckpointError, KeyError, TypeError, ValueError) as error:
            self._warn(f'{self._folder.best}: not the best policy of this run, replaced by the '
                       f'next one that is evaluated: {error}')
            return None

    def _plan(self) -> None:
        every = self._learner.config.eval_every
        self._due = (self._learner.agent_steps // every + 1) * every

    @property
    def is_over(self) -> bool:
        """Whether the last ``eval_patience`` evaluations were no improvement."""
        patience, best = self._learner.config.eval_patience, self._best
        return patience > 0 and best is not None and patience <= sum(
            row['agent_steps'] > best['agent_steps'] for row in self._rows)

    @property
    def text(self) -> str:
        """The last evaluation for a line of progress; '' before the first."""
        if not self._rows:
            return ''
        last = self._rows[-1]
        return f'   evaluated {last["mean_return"]:.1f} +-{last["interval"]:.1f}'

    def update(self) -> None:
        """Record results that have come, and start an evaluation if one is due."""
        self._take()
        if not self._is_awaited() and self._learner.agent_steps >= self._due:
            self._plan()
            self._start()
            # One in this process is over.
            self._take()

    def start_last(self) -> None:
        known = {*self._pending, *(int(row['agent_steps']) for row in self._rows[-1:])}
        if self._learner.agent_steps not in known:
            self._start()

    def waits(self) -> bool:
        """Record results that have come; return whether to wait for that of the last policy."""
        self._take()
        return self._learner.agent_steps == self._awaited and self._is_awaited()

    def _is_awaited(self) -> bool:
        """Return whether to wait for the policy that was started last; log why no more."""
        if self._awaited not in self._pending:
            return False
        now = self._clock()
        if self._evaluator.present:
            self._seen_at = now
        reason = (f'no evaluator for {_ABSENT_S:.0f} s' if now - self._seen_at >= _ABSENT_S else
                  f'no result for {_RESULT_S:.0f} s' if now - self._since >= _RESULT_S else '')
        if reason:
            self._warn(f'not evaluated at {self._awaited:,} steps: {reason}')
            self._awaited = -1
        return not reason

    def _take(self) -> None:
        while (result := self._evaluator.take()) is not None:
            policy = self._pending.get(result.agent_steps)
            if policy is not None:
                self._pending = {steps: each for steps, each in self._pending.items()
                                 if steps > result.agent_steps}
                self._record(policy, result)
            elif not self._has_dropped:
                self._has_dropped = True
                self._warn(f'a result at {result.agent_steps:,} steps is dropped, as none is '
                           'awaited: of several evaluators the first to answer counts; give '
                           'each training a namespace or a domain')

    def _start(self) -> None:
        learner = self._learner
        policy = EvaluatedPolicy(
            learner.agent_steps, learner.version, round(self._progress.wall_s, 3),
            {name: array.copy() for name, array in learner.weights().items()})
        self._pending = {**dict([*self._pending.items()][-1:]), policy.agent_steps: policy}
        self._awaited, self._since = policy.agent_steps, self._clock()
        self._seen_at = self._since
        self._evaluator.start(policy)

    def _record(self, policy: EvaluatedPolicy, result: Result) -> None:
        found, at = result.evaluation, f'{policy.agent_steps:,} steps'
        if found is None:
            self._warn(f'not evaluated at {at}: {result.problem}')
            return
        row = _row(policy, found)
        self._rows.append(row)
        is_best = self._best is None or row['mean_return'] > self._best['mean_return']
        try:
            if is_best:
                self._save_best(policy, row)
            self._table.append(row)
            self._folder.write_scalars(
                {f'evaluation/{name}': row[name] for name in _COLUMNS[4:]
                 if math.isfinite(row[name])}, policy.agent_steps)
        except OSError as error:
            self._warn(f'evaluation not written: {error}; the run goes on')
        success = '' if math.isnan(row['success_rate']) else f', success {row["success_rate"]:.0%}'
        best = ', the best so far' if is_best else ''
        self._log(f'evaluated at {at}: {len(found.returns)} episodes, mean {found.mean:.2f}, '
                  f'95 % of the mean +-{found.interval:.2f}{success}{best}')

    def _save_best(self, policy: EvaluatedPolicy, row: dict[str, float]) -> None:
        save_checkpoint(
            self._folder.best, config=self._settings,
            learner={'policy': {name: torch.from_numpy(array)
                                for name, array in policy.weights.items()},
                     'version': policy.version, 'agent_steps': policy.agent_steps},
            progress={'evaluation': row})
        self._best = row

    def summary(self) -> dict[str, Any]:
        def figures(row: Mapping[str, float] | None) -> dict[str, Any] | None:
            return None if row is None else {
                name: int(row[name]) if name in ('agent_steps', 'version', 'episodes')
                else round(row[name], 3) for name in _COLUMNS}

        return {'count': len(self._rows), 'last': figures(self._rows[-1] if self._rows else None),
                'best': figures(self._best)}


def _row(policy: EvaluatedPolicy, found: Evaluation) -> dict[str, float]:
    known = [each.success for each in found.episodes if each.success is not None]
    return {
        'agent_steps': policy.agent_steps, 'wall_s': policy.wall_s, 'version': policy.version,
        'episodes': len(found.returns), 'mean_return': found.mean, 'interval': found.interval,
        'std': found.std, 'smallest': min(found.returns), 'largest': max(found.returns),
        'mean_length': float(np.mean(found.lengths)),
        'success_rate': float(np.mean(known)) if known else math.nan}
