"""
A search: trials one after the other or side by side, until there are as many as the spec says.

The study is only touched by the thread that runs :meth:`Searcher.run`; each trial has a thread
that waits for the processes of its sessions. A search that was interrupted or killed goes on: a
trial that was running keeps its number, its values and its checkpoints.
"""

from __future__ import annotations

import dataclasses
import datetime
import queue
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import MedianPruner, NopPruner
from optuna.trial import FrozenTrial, Trial, TrialState

from vdl_ros.common.settings import Scalar
from vdl_ros.experiments.running.samplers import make_sampler
from vdl_ros.experiments.running.storage import (
    open_storage,
    open_study,
    owner_of,
    storage_errors,
)
from vdl_ros.experiments.running.trials import TrialRunner
from vdl_ros.experiments.specs.spaces import Normal, Space
from vdl_ros.experiments.specs.spec import Search
from vdl_ros.rl.runs.training_process import TrainingError

__all__ = ['Outcome', 'Searcher']

# Longest wait for what trials report, s.
_WAIT_S = 0.2
# Age of a running trial without an owner whose host must have died, s.
_ORPHAN_S = 60.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """
    What became of a trial.

    Attributes:
        number: of the trial.
        state: ``complete``, ``pruned`` or ``failed``.
        values: of the settings that are searched.
        value: what the search maximises; None if the trial is not complete.
        record: what the trial was scored with, such as its fitness.
        error: why it failed, or ''.
    """

    number: int
    state: str
    values: Mapping[str, Scalar]
    value: float | None
    record: Mapping[str, Any]
    error: str = ''


@dataclasses.dataclass
class _Running:
    """A trial that runs in this process."""

    trial: Trial
    values: dict[str, Scalar]
    pruned: threading.Event
    reported: set[int]


class Searcher:
    """
    Runs the search of one spec.

    Attributes:
        study: the study, as Optuna has it.
    """

    def __init__(
        self, runner: TrialRunner, search: Search, score: Callable[[int, Mapping[str, Scalar]],
                                                                   tuple[float, dict[str, Any]]],
        *, url: str, log: Callable[[str], None],
    ) -> None:
        """
        Open the study, in the folder of the runner, which is locked.

        Args:
            runner: runs the trials.
            search: what is searched.
            score: returns of a complete trial, by number and values, what is maximised and a
                record for the study.
            url: of a database; empty: a file in the folder.
            log: takes a line.

        Raises:
            StorageError: the storage cannot be used, or has another spec.
        """
        self._runner, self._score, self._log = runner, score, log
        self._spaces, self._url = search.spaces, url
        self._names = {name: _parameter(name, space) for name, space in search.spaces.items()}
        spec = runner.spec
        sampler = make_sampler(search, self._names, spec.meta.seed, spec.preset_values())
        pruner = MedianPruner(n_startup_trials=search.config.startup_trials) \
            if search.config.pruner == 'median' else NopPruner()
        storage = open_storage(runner.folder, url)
        with storage_errors(url, runner.folder):
            # The number of trials may grow.
            content = {**spec.content, 'meta': {
                **spec.content.get('meta', {}), 'trials': None, 'sessions': spec.meta.sessions}}
            self.study = open_study(
                storage, f'{spec.path.stem}/{spec.name}', sampler, pruner, content)
        self._owner = owner_of(runner.folder)
        self._events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._running: dict[int, _Running] = {}

    def run(self, jobs: int, stop: threading.Event) -> bool:
        """
        Run what is missing, ``jobs`` trials at a time; return whether all have ended.

        Raises:
            StorageError: the storage cannot be used any more; running trials keep checkpoints.
        """
        # Also set when this thread fails, so that no training outlives the search.
        halt = threading.Event()
        with ThreadPoolExecutor(jobs) as pool, storage_errors(self._url, self._runner.folder):
            try:
                while True:
                    while len(self._running) < jobs and not stop.is_set() and (
                            trial := self._next()) is not None:
                        self._start(trial, pool, halt)
                    if stop.is_set():
                        halt.set()
                    if not self._running and (stop.is_set() or not self._abandoned()):
                        break
                    self._take_events()
            finally:
                halt.set()
        trials = self._trials()
        return len(trials) >= self._runner.spec.num_trials and all(
            each.state.is_finished() for each in trials)

    def outcomes(self) -> list[Outcome]:
        """Return what became of all trials that ended, of every host."""
        with storage_errors(self._url, self._runner.folder):
            states = {TrialState.COMPLETE: 'complete', TrialState.PRUNED: 'pruned',
                      TrialState.FAIL: 'failed'}
            return [Outcome(
                each.number, states[each.state], self._values(each.params),
                each.value if each.state == TrialState.COMPLETE else None,
                each.user_attrs.get('record', {}), str(each.user_attrs.get('error', '')))
                for each in self._trials() if each.state in states]

    def importance(self) -> dict[str, float]:
        """Return the share of each setting in the spread of results; {} with too few trials."""
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
        with storage_errors(self._url, self._runner.folder):
            try:
                with warnings.catch_warnings():
                    # Of few trials, and of trials without some parameter.
                    warnings.simplefilter('ignore')
                    found = get_param_importances(
                        self.study, evaluator=PedAnovaImportanceEvaluator())
            except (ValueError, RuntimeError):
                return {}
        return {setting: float(found[name]) for setting, name in self._names.items()
                if name in found}

    def _trials(self) -> list[FrozenTrial]:
        """Return the trials that count; of several hosts one may have begun too many."""
        return self.study.get_trials(deepcopy=False)[:self._runner.spec.num_trials]

    def _abandoned(self) -> list[FrozenTrial]:
        """Return the trials of this folder that run according to the storage, but do not."""
        return [each for each in self._trials()
                if each.state == TrialState.RUNNING
                and each.number not in self._running
                and each.user_attrs.get('owner', self._owner) == self._owner]

    def _next(self) -> Trial | None:
        """Return a trial to run: one that was interrupted, or a new one; None if there is none."""
        for each in self._abandoned():
            # Another host may be about to say that it is its own.
            if self._url and 'owner' not in each.user_attrs and _age(each) < _ORPHAN_S:
                continue
            return Trial(self.study, each._trial_id)
        if len(self.study.get_trials(deepcopy=False)) >= self._runner.spec.num_trials:
            return None
        trial = self.study.ask()
        if trial.number >= self._runner.spec.num_trials:
            # Another host was faster.
            self.study.tell(trial, state=TrialState.FAIL)
            return None
        return trial

    def _start(self, trial: Trial, pool: ThreadPoolExecutor, halt: threading.Event) -> None:
        """Give a trial its values, and run it in a thread."""
        trial.set_user_attr('owner', self._owner)
        for name, space in self._spaces.items():
            _suggest(trial, self._names[name], space)
        values = self._values(trial.params)
        # Of a trial that goes on.
        reported = set(self.study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        running = self._running[trial.number] = _Running(
            trial, values, threading.Event(), reported)
        shown = ', '.join(f'{name} {_short(value)}' for name, value in values.items())
        self._log(f'trial {trial.number}: {shown}')
        pool.submit(self._run_trial, trial.number, running, halt)

    def _run_trial(self, number: int, running: _Running, halt: threading.Event) -> None:
        """Run the sessions of a trial, in a thread of its own."""
        try:
            complete = self._runner.run(
                number, running.values, lambda: halt.is_set() or running.pruned.is_set(),
                lambda place, value: self._events.put(('report', number, place, value)))
            self._events.put(('ended', number, complete, ''))
        except TrainingError as error:
            self._events.put(('ended', number, False, str(error)))
        except BaseException as error:
            self._events.put(('error', number, error))

    def _take_events(self) -> None:
        """Take what the trials have put, after waiting for the first a little."""
        try:
            kind, number, *rest = self._events.get(timeout=_WAIT_S)
        except queue.Empty:
            return
        running = self._running[number]
        if kind == 'error':
            del self._running[number]
            raise rest[0]
        if kind == 'report':
            self._report(running, *rest)
        else:
            del self._running[number]
            self._end(running, *rest)

    def _report(self, running: _Running, place: int, value: float) -> None:
        """Report the return at a place, and prune the trial if it is too low."""
        trial = running.trial
        if running.pruned.is_set():
            return
        if place not in running.reported:
            trial.report(value, place)
            running.reported.add(place)
        if trial.should_prune():
            running.pruned.set()

    def _end(self, running: _Running, complete: bool, error: str) -> None:
        """Tell the study how a trial ended; nothing if it was interrupted."""
        trial = running.trial
        number = trial.number
        if error:
            trial.set_user_attr('error', error)
            self.study.tell(trial, state=TrialState.FAIL)
            self._log(f'trial {number}: {error}')
        elif complete:
            try:
                value, record = self._score(number, running.values)
            except ValueError as failure:
                trial.set_user_attr('error', str(failure))
                self.study.tell(trial, state=TrialState.FAIL)
                self._log(f'trial {number}: {failure}')
                return
            trial.set_user_attr('record', record)
            self.study.tell(trial, value)
            self._log(f'trial {number}: complete, {value:.4g}')
        elif running.pruned.is_set():
            self.study.tell(trial, state=TrialState.PRUNED)
            self._log(f'trial {number}: pruned')

    def _values(self, params: Mapping[str, Any]) -> dict[str, Scalar]:
        """Return the values of the settings for parameters of the study."""
        return {name: space.value(params[self._names[name]])
                for name, space in self._spaces.items() if self._names[name] in params}


def _parameter(name: str, space: Space) -> str:
    """Return the name of a setting in the study."""
    return f'{name} (quantile)' if isinstance(space, Normal) else name


def _suggest(trial: Trial, name: str, space: Space) -> None:
    """Draw a parameter, unless the trial has it."""
    found = space.distribution()
    if isinstance(found, CategoricalDistribution):
        trial.suggest_categorical(name, found.choices)
    elif isinstance(found, IntDistribution):
        trial.suggest_int(name, found.low, found.high, log=found.log)
    elif isinstance(found, FloatDistribution):
        trial.suggest_float(name, found.low, found.high, log=found.log)


def _age(trial: FrozenTrial) -> float:
    """Return the time since a trial began, s."""
    begin = trial.datetime_start
    return (datetime.datetime.now() - begin).total_seconds() if begin else _ORPHAN_S


def _short(value: Scalar) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)

