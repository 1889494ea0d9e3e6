"""The storage of a search: a file in its folder, or a database that several hosts share."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import json
import logging
import queue
import secrets
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import optuna
from cmaes import CMA
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import OptunaError
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from vdl_ros.common.settings import Scalar
from vdl_ros.experiments.spec import Choices, Normal, Search, Space
from vdl_ros.experiments.trials import TrialRunner
from vdl_ros.rl.runs.training_process import TrainingError

__all__ = ['Outcome', 'Searcher', 'StorageError', 'folder_lock', 'make_sampler', 'open_storage',
           'open_study', 'owner_of', 'storage_errors']


_JOURNAL = 'search.journal'


class StorageError(ValueError):
    """A storage that cannot be used; the message is one line."""


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Keep other experiments out of a folder, until the block or the process ends.

    Raises:
        StorageError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / '.lock').open('a') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f'{folder} is locked by another experiment; stop that one, or '
                               'choose another --output') from None
        yield


def owner_of(folder: Path) -> str:
    """Return what says whose trials those of a folder are, also in a shared database."""
    path = folder / '.owner'
    with contextlib.suppress(OSError):
        if found := path.read_text().strip():
            return found
    path.write_text(secrets.token_hex(8))
    return path.read_text()


@contextlib.contextmanager
def storage_errors(url: str, folder: Path) -> Iterator[None]:
    """Turn errors of a storage into a :class:`StorageError`, without the database's password."""
    try:
        yield
    except (SQLAlchemyError, OptunaError) as error:
        cause = error.__cause__ or error
        reason = str(getattr(cause, 'orig', None) or cause).strip()
        raise StorageError(f'--storage: {_shown(url) or folder / _JOURNAL} cannot be used: '
                           f'{" ".join(reason.split())[:200]}') from None


def open_storage(folder: Path, url: str = '') -> BaseStorage:
    """Return the storage of a search.

    Args:
        folder: of the experiment, locked; the file is there.
        url: of a database; empty: a file.

    Raises:
        StorageError: it cannot be opened.
    """
    optuna.logging.set_verbosity(logging.ERROR)
    path = folder / _JOURNAL
    with storage_errors(url, folder):
        if url:
            try:
                # Hosts that share a file wait for each other's transactions, s.
                connection = {'connect_args': {'timeout': 60}} if url.startswith('sqlite') else {}
                return RDBStorage(url, engine_kwargs=connection)
            except (ImportError, ValueError) as error:
                raise StorageError(f'--storage: {_shown(url)} is not allowed: '
                                   f'{" ".join(str(error).split())[:200]}') from None
        _repair(path)
        # The folder is locked, so what another process left is of one that is dead.
        (folder / f'{_JOURNAL}.lock').unlink(missing_ok=True)
        try:
            return JournalStorage(JournalFileBackend(str(path)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f'{path} is not the file of a search: '
                               f'{type(error).__name__}') from None


def open_study(
    storage: BaseStorage, name: str, sampler: BaseSampler, pruner: BasePruner,
    content: object,
) -> optuna.Study:
    """Return the study of a search, which is the one that is there, if it is of the same spec.

    Raises:
        StorageError: there is one of another spec.
    """
    study = optuna.create_study(
        storage=storage, study_name=name, direction='maximize', sampler=sampler, pruner=pruner,
        load_if_exists=True)
    text = json.dumps(content, sort_keys=True, default=str)
    known = study.user_attrs.get('spec')
    if known is None:
        study.set_user_attr('spec', text)
    elif known != text:
        raise StorageError(f'{name}: the spec has changed since this search began; undo the '
                           'change, or choose another --output or --storage')
    return study


def _repair(path: Path) -> None:
    """Cut off a last line that was not written whole."""
    with contextlib.suppress(FileNotFoundError):
        data = path.read_bytes()
        if data and not data.endswith(b'\n'):
            with path.open('r+b') as file:
                file.truncate(data.rfind(b'\n') + 1)


def _shown(url: str) -> str:
    """Return a database's address without its password."""
    if not url:
        return ''
    try:
        return make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return repr(url[:20])


Array = NDArray[np.float64]
Distributions = dict[str, BaseDistribution]
# Deviation of the first generation in a cube of width 1, as Optuna's.
_SIGMA = 1 / 6


def make_sampler(
    search: Search, names: Mapping[str, str], seed: int, first: Mapping[str, Scalar],
) -> BaseSampler:
    """Return the sampler of a search.

    Args:
        names: of the parameters of the study by setting.
        first: values of the first trial by setting; a grid has no use for them.
    """
    known = {names[name]: value for name, value in first.items()}
    config = search.config
    if config.sampler == 'grid':
        grid = {names[name]: space.values for name, space in search.spaces.items()
                if isinstance(space, Choices)}
        return SeededSampler(lambda _: GridSampler(grid, seed=seed), seed)
    if config.sampler == 'random':
        return SeededSampler(lambda number: RandomSampler(seed=number), seed, known)
    if config.sampler == 'cmaes':
        return SeededSampler(lambda number: CmaEs(
            {names[name]: space.distribution() for name, space in search.spaces.items()
             if not isinstance(space, Choices)}, number), seed, known)
    # constant_liar: trials that run at the same time do not try the same.
    return SeededSampler(lambda number: TPESampler(
        seed=number, n_startup_trials=config.startup_trials, constant_liar=True), seed, known)


class SeededSampler(BaseSampler):
    """Makes a sampler for each number that it draws, with a seed of its own.

    Args:
        first: parameters of the first trial, which are not drawn.
    """

    def __init__(
        self, make: Callable[[int], BaseSampler], seed: int,
        first: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> None:
        self._make, self._seed, self._first = make, seed, first

    def _sampler(self, trial: FrozenTrial, name: str = '') -> BaseSampler:
        return self._make(zlib.crc32(f'{self._seed} {trial.number} {name}'.encode()))

    def _is_known(self, trial: FrozenTrial) -> bool:
        return bool(self._first) and trial.number == 0

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Prepare a trial, as Optuna's grid does."""
        self._sampler(trial).before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Distributions:
        """Return the parameters that are drawn together."""
        return {} if self._is_known(trial) else self._sampler(trial).infer_relative_search_space(
            study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Distributions,
    ) -> dict[str, Any]:
        """Draw the parameters that are drawn together."""
        return {} if self._is_known(trial) else self._sampler(trial).sample_relative(
            study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw one parameter; the same, whatever was drawn before it."""
        if self._is_known(trial) and param_name in self._first:
            return self._first[param_name]
        return self._sampler(trial, param_name).sample_independent(
            study, trial, param_name, param_distribution)


class CmaEs(BaseSampler):
    """CMA-ES (Hansen and Ostermeier 2001) of the package cmaes, made anew for each trial.

    Optuna's own keeps the optimizer as a pickle in the storage, which may be somebody else's. Here
    the complete trials are told again, a generation after the other, in the order in which they
    ended: with several at a time some are of an older generation.
    """

    def __init__(self, space: Distributions, seed: int) -> None:
        self._space, self._seed = space, seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Distributions:
        """Return the space."""
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Distributions,
    ) -> dict[str, Any]:
        """Draw all parameters."""
        count = len(self._space)
        bounds = np.tile([0.0, 1.0], (count, 1))
        optimizer = CMA(np.full(count, 0.5), _SIGMA, bounds=bounds, seed=self._seed)
        told = [(self._encode(each), -float(each.value or 0.0))
                for each in sorted(study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]),
                                   key=lambda each: (each.datetime_complete, each.number))
                if self._space.keys() <= each.params.keys()]
        size = optimizer.population_size
        for begin in range(0, len(told) - size + 1, size):
            optimizer.tell(told[begin:begin + size])
        return {name: _decode(distribution, float(x)) for (name, distribution), x in zip(
            self._space.items(), optimizer.ask(), strict=True)}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a parameter that is no number, at random."""
        return RandomSampler(seed=self._seed).sample_independent(
            study, trial, param_name, param_distribution)

    def _encode(self, trial: FrozenTrial) -> Array:
        """Return the parameters of a trial in the unit cube."""
        found = []
        for name, distribution in self._space.items():
            low, high = _limits(distribution)
            value = np.log(trial.params[name]) if _is_log(distribution) else trial.params[name]
            found.append((value - low) / (high - low))
        return np.array(found)


def _is_log(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log


def _limits(distribution: BaseDistribution) -> tuple[float, float]:
    """Return the limits; of whole numbers half a number further, so that all are as likely."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    half = 0.5 if isinstance(distribution, IntDistribution) else 0.0
    low, high = distribution.low - half, distribution.high + half
    return (float(np.log(low)), float(np.log(high))) if distribution.log else (low, high)


def _decode(distribution: BaseDistribution, x: float) -> float | int:
    """Return the value of a number from 0 to 1."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = _limits(distribution)
    value = low + min(max(x, 0.0), 1.0) * (high - low)
    value = float(np.exp(value)) if distribution.log else value
    value = min(max(value, distribution.low), distribution.high)
    return round(value) if isinstance(distribution, IntDistribution) else value


# Longest wait for what trials report, s.
_WAIT_S = 0.2
# Age of a running trial without an owner whose host must have died, s.
_ORPHAN_S = 60.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a trial.

    Attributes:
        state: ``complete``, ``pruned`` or ``failed``.
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
    """Runs the search of one spec.

    Args:
        score: returns of a complete trial, by number and values, what is maximised and a
            record for the study.
        url: of a database; empty: a file in the folder.

    Raises:
        StorageError: the storage cannot be used, or has another spec.
    """

    def __init__(
        self, runner: TrialRunner, search: Search, score: Callable[[int, Mapping[str, Scalar]],
                                                                   tuple[float, dict[str, Any]]],
        *, url: str, log: Callable[[str], None],
    ) -> None:
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
        """Run what is missing, ``jobs`` trials at a time; return whether all have ended.

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
