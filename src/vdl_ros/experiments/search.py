"""The search of a spec by Optuna: samplers, the storage, and trials that run in threads."""

import contextlib
import dataclasses
import json
import logging
import secrets
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning, OptunaError, UpdateFinishedTrialError
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import (
    BaseStorage,
    JournalStorage,
    RDBStorage,
    RetryHeartbeatStaleTrialCallback,
    fail_stale_trials,
)
from optuna.storages._heartbeat import get_heartbeat_thread
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from vdl_ros.common.files import write_text
from vdl_ros.common.settings import Scalar
from vdl_ros.experiments.spec import Search
from vdl_ros.experiments.trials import TrialRunner
from vdl_ros.rl.runs.training_process import TrainingError

_JOURNAL = 'search.journal'
_STATES = {TrialState.COMPLETE: 'complete', TrialState.PRUNED: 'pruned', TrialState.FAIL: 'failed'}
# Time between the signs of life of a trial in a database, and without one until it counts as dead,
# s; how often a trial that is dead is begun again.
_HEARTBEAT_S, _DEAD_S, _MAX_RETRIES = 10, 60, 3
_DIED = 'its process ended'
Distributions = dict[str, BaseDistribution]


class StorageError(ValueError):
    """A storage that cannot be used; the message is one line."""


@contextlib.contextmanager
def storage_errors(url: str, folder: Path) -> Iterator[None]:
    """Turn errors of a storage into a :class:`StorageError`, without the database's password."""
    try:
        yield
    except (SQLAlchemyError, OptunaError, ImportError) as error:
        cause = error.__cause__ or error
        reason = str(getattr(cause, 'orig', None) or cause).strip()
        try:
            shown = make_url(url).render_as_string(hide_password=True) if url else None
        except SQLAlchemyError:
            shown = repr(url[:20])
        raise StorageError(f'--storage: {shown or folder / _JOURNAL} cannot be used: '
                           f'{" ".join(reason.split())[:200]}') from None


def open_storage(folder: Path, url: str = '') -> BaseStorage:
    """Return the database at ``url``, or without one the file in a folder that is locked."""
    optuna.logging.set_verbosity(logging.ERROR)
    # Of heartbeats, which here do not come from Study.optimize.
    warnings.simplefilter('ignore', ExperimentalWarning)
    warnings.filterwarnings('ignore', 'Heartbeat of storage is supposed')
    path = folder / _JOURNAL
    with storage_errors(url, folder):
        if url:
            # Hosts that share a file wait for each other's transactions, s.
            return RDBStorage(
                url, engine_kwargs={'connect_args': {'timeout': 60}} if
                url.startswith('sqlite') else {},
                heartbeat_interval=_HEARTBEAT_S, grace_period=_DEAD_S,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(_MAX_RETRIES))
        with contextlib.suppress(FileNotFoundError), path.open('r+b') as file:
            # A last line that was not written whole.
            file.truncate(file.read().rfind(b'\n') + 1)
        # The folder is locked, so what another process left is of one that is dead.
        (folder / f'{_JOURNAL}.lock').unlink(missing_ok=True)
        try:
            return JournalStorage(JournalFileBackend(str(path)))
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError):
            raise StorageError(
                f'{path} is damaged, or not the file of a search; move it away to begin the '
                'search again with the trainings that are there') from None


def open_study(
    storage: BaseStorage, name: str, sampler: BaseSampler, pruner: BasePruner, content: object,
) -> Study:
    """Return the study of a search, a new one or the one that is there, if it is of this spec."""
    study = optuna.create_study(
        storage=storage, study_name=name, direction='maximize', sampler=sampler, pruner=pruner,
        load_if_exists=True)
    text = json.dumps(content, sort_keys=True, default=str)
    if study.user_attrs.get('spec', text) != text:
        raise StorageError(f'{name}: the spec has changed since this search began; undo the '
                           'change, or choose another --output or --storage')
    study.set_user_attr('spec', text)
    return study


def make_sampler(search: Search, seed: int) -> BaseSampler:
    """Return the sampler of a search, which draws the same for a trial that is resumed."""
    config = search.config
    if config.sampler == 'grid':
        grid = {name: space.values for name, space in search.spaces.items()
                if space.kind == 'choices'}
        return SeededSampler(lambda _: GridSampler(grid, seed=seed), seed)
    if config.sampler == 'random':
        return SeededSampler(lambda number: RandomSampler(seed=number), seed)
    # constant_liar: trials that run at the same time do not try the same.
    return SeededSampler(lambda number: TPESampler(
        seed=number, n_startup_trials=config.startup_trials, constant_liar=True), seed)


class SeededSampler(BaseSampler):
    """Makes a sampler for each number that it draws, with a seed of its own."""

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make, self._seed = make, seed

    def _sampler(self, trial: FrozenTrial, name: str = '') -> BaseSampler:
        return self._make(zlib.crc32(f'{self._seed} {trial.number} {name}'.encode()))

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._sampler(trial).before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Distributions:
        return self._sampler(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Distributions,
    ) -> dict[str, Any]:
        return self._sampler(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._sampler(trial, param_name).sample_independent(
            study, trial, param_name, param_distribution)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a trial: ``complete``, ``pruned`` or ``failed``.

    ``value`` is what the search maximises, None if the trial is not complete; ``record`` what it
    was scored with, such as its fitness; ``error`` why it failed, or ''.
    """

    number: int
    state: str
    values: Mapping[str, Scalar]
    value: float | None
    record: Mapping[str, Any]
    error: str = ''


class Searcher:
    """Runs the search of one spec.

    ``score`` returns of a complete trial, by number and values, what is maximised and a record for
    the study; ``url`` is of a database, or '': a file in the folder.
    """

    def __init__(
        self, runner: TrialRunner, search: Search, score: Callable[[int, Mapping[str, Scalar]],
                                                                   tuple[float, dict[str, Any]]],
        *, url: str, log: Callable[[str], None],
    ) -> None:
        self._runner, self._score, self._log = runner, score, log
        self._spaces, self._url = search.spaces, url
        spec, config = runner.spec, search.config
        pruner = MedianPruner(n_startup_trials=config.startup_trials) \
            if config.pruner == 'median' else NopPruner()
        # The number of trials may grow.
        content = {**spec.content, 'meta': {
            **spec.content.get('meta', {}), 'trials': None, 'sessions': spec.meta.sessions}}
        storage = open_storage(runner.folder, url)
        with storage_errors(url, runner.folder):
            self.study = open_study(storage, f'{spec.path.stem}/{spec.name}',
                                    make_sampler(search, spec.meta.seed), pruner, content)
            if config.sampler != 'grid' and not self.study.get_trials(deepcopy=False):
                self.study.enqueue_trial(spec.preset_values())
        # Says whose trials those of this folder are, also in a shared database.
        owner = runner.folder / '.owner'
        if not owner.is_file():
            write_text(owner, secrets.token_hex(8))
        self._owner = owner.read_text()
        # One thread at a time begins a trial, or scores one: matplotlib needs that.
        self._beginning, self._scoring = threading.Lock(), threading.Lock()
        self._begun: set[int] = set()

    def run(self, jobs: int, stop: threading.Event) -> bool:
        """Run what is missing, ``jobs`` trials at a time; return whether all have ended.

        StorageError: the storage cannot be used any more; running trials keep checkpoints.
        """
        # Set when a thread fails, so that no training outlives the search.
        failures: list[BaseException] = []

        def stops() -> bool:
            return stop.is_set() or bool(failures)

        def work() -> None:
            try:
                while not stops() and (trial := self._next()) is not None:
                    self._run_trial(trial, stops, failures)
            except BaseException as error:
                failures.append(error)

        with ThreadPoolExecutor(jobs) as pool:
            for _ in range(min(jobs, self._runner.spec.num_trials)):
                pool.submit(work)
        with storage_errors(self._url, self._runner.folder):
            if failures:
                raise failures[0]
            trials = self._trials()
        running = [str(each.number) for each in trials if not each.state.is_finished()]
        if running and not stop.is_set():
            self._log(f'trials {", ".join(running)} run elsewhere, or their processes ended '
                      f'within the last {_DEAD_S} s: the same command goes on when they are over')
        return len(trials) >= self._runner.spec.num_trials and not running

    def outcomes(self) -> list[Outcome]:
        with storage_errors(self._url, self._runner.folder):
            return [Outcome(
                each.number, _STATES[each.state], self._values(each.params),
                each.value if each.state == TrialState.COMPLETE else None,
                each.user_attrs.get('record', {}), str(each.user_attrs.get(
                    'error', _DIED if each.state == TrialState.FAIL else '')))
                for each in self._trials() if each.state in _STATES]

    def importance(self) -> dict[str, float]:
        """Return the share of each setting in the spread of results; {} with too few trials."""
        with storage_errors(self._url, self._runner.folder), warnings.catch_warnings():
            # Of few trials, and of trials without some parameter.
            warnings.simplefilter('ignore')
            try:
                found = get_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator())
            except (ValueError, RuntimeError):
                return {}
        return {name: float(found[space.parameter]) for name, space in self._spaces.items()
                if space.parameter in found}

    def _trials(self) -> list[FrozenTrial]:
        """Return the trials that count.

        Those do not that were begun again, and those that a host began too many, without owner.
        """
        trials = self.study.get_trials(deepcopy=False)
        again = {number for each in trials
                 for number in each.system_attrs.get('retry_history', ())}
        return [each for each in trials if each.number not in again and (
            each.state != TrialState.FAIL or 'owner' in each.user_attrs)
        ][:self._runner.spec.num_trials]

    def _next(self) -> Trial | None:
        with self._beginning:
            trials = self._trials()
            for each in trials:
                if each.state == TrialState.RUNNING and each.number not in self._begun \
                        and each.user_attrs.get(
                            'owner', '' if self._url else self._owner) == self._owner:
                    self._begun.add(each.number)
                    return Trial(self.study, each._trial_id)
            fail_stale_trials(self.study)
            trials = self._trials()
            if len(trials) >= self._runner.spec.num_trials and all(
                    each.state != TrialState.WAITING for each in trials):
                return None
            trial = self.study.ask()
            if trial.number not in [each.number for each in self._trials()]:
                # Another host was faster.
                self.study.tell(trial, state=TrialState.FAIL)
                return None
            trial.set_user_attr('owner', self._owner)
            self._begun.add(trial.number)
            return trial

    def _run_trial(
        self, trial: Trial, stop: Callable[[], bool], failures: list[BaseException],
    ) -> None:
        """Run a trial with signs of life, unless another process has taken it for dead."""
        try:
            with get_heartbeat_thread(trial._trial_id, self.study._storage):
                self._run_sessions(trial, stop, failures)
        except UpdateFinishedTrialError:
            self._log(f'trial {trial.number}: was begun again elsewhere: this process gave no '
                      f'sign of life for {_DEAD_S} s')

    def _run_sessions(
        self, trial: Trial, stop: Callable[[], bool], failures: list[BaseException],
    ) -> None:
        """Run the sessions of a trial, and tell the study how it ended, unless interrupted."""
        number = trial.number
        for space in self._spaces.values():
            space.draw(trial)
        values = self._values(trial.params)
        shown = ', '.join(f'{name} {value:.4g}' if isinstance(value, float) else f'{name} {value}'
                          for name, value in values.items())
        self._log(f'trial {number}: {shown}')
        reported = set(self.study.get_trials(deepcopy=False)[number].intermediate_values)
        pruned = threading.Event()

        def report(place: int, value: float) -> None:
            # An error here would leave the session's training alone.
            try:
                if not pruned.is_set():
                    if place not in reported:
                        trial.report(value, place)
                    if trial.should_prune():
                        pruned.set()
            except UpdateFinishedTrialError:
                # Begun again elsewhere: it ends, and the study refuses to hear how.
                pruned.set()
            except Exception as error:
                failures.append(error)

        try:
            if self._runner.run(number, values, lambda: stop() or pruned.is_set(), report):
                with self._scoring:
                    value, record = self._score(number, values)
                trial.set_user_attr('record', record)
                self.study.tell(trial, value)
                self._log(f'trial {number}: complete, fitness {value:.4g}')
            elif pruned.is_set():
                self.study.tell(trial, state=TrialState.PRUNED)
                self._log(f'trial {number}: pruned')
        except (TrainingError, ValueError) as error:
            trial.set_user_attr('error', str(error))
            self.study.tell(trial, state=TrialState.FAIL)
            self._log(f'trial {number}: {error}')

    def _values(self, params: Mapping[str, Any]) -> dict[str, Scalar]:
        return {name: space.value(params[space.parameter])
                for name, space in self._spaces.items() if space.parameter in params}
