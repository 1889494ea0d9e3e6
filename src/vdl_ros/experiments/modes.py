"""What is done with a spec: train, search, enjoy, benchmark, dev.

Results are in ``OUTPUT/FILE/SPEC/MODE``; the same mode goes on with what is there.
"""

import dataclasses
import shutil
import statistics
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vdl_ros.common.files import LOCK_FILE, lock_folder, refuse_links, write_text
from vdl_ros.common.opengl import OpenGLError
from vdl_ros.common.plain_yaml import YamlError, dump_yaml, read_yaml
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, select
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.experiments.page import deliver_experiment, read_summary, read_trial, reference_of
from vdl_ros.experiments.results import deliver_trial, reproducing_command
from vdl_ros.experiments.search import Outcome, Searcher
from vdl_ros.experiments.spec import Spec
from vdl_ros.experiments.trials import TrialRunner
from vdl_ros.recipes import config_file
from vdl_ros.rl.runs.training_process import TrainingError, TrainingProcess
from vdl_ros.rl.settings import ReplayConfig, TrainConfig, make_algorithm_config

MODES = ('train', 'search', 'enjoy', 'benchmark', 'dev')
#: Steps of a session of ``dev``, if an update does not need more.
_DEV_STEPS = 5000


@dataclasses.dataclass(frozen=True)
class Experiments:
    """Runs specs; ``storage`` is the URL of a database for searches, or '': a file for each."""

    output: Path
    jobs: int
    stop: threading.Event
    log: Callable[[str], None]
    storage: str = ''
    env_modules: str = ''

    def run(self, spec: Spec, mode: str, at: Path | None = None) -> bool:
        """Do what a mode says; return whether it is complete and something came of it.

        ``at`` is of ``enjoy``: folder of a run, a trial or an experiment. ValueError: what the
        mode needs is not there, or the results are of another spec.
        """
        if mode == 'enjoy':
            return self._enjoy(spec, at)
        is_benchmark = mode == 'benchmark'
        if is_benchmark:
            mode = 'search' if spec.search else 'train'
        folder = self.output / spec.path.stem / spec.name / mode
        if is_benchmark:
            summary = read_summary(folder)
            if (summary.complete and sum(summary.trials.values()) >= spec.num_trials
                    and _has_copy(spec, folder)):
                self.log(f'{spec.name}: has results in {folder}')
                return True
        if mode == 'search' and spec.search is None:
            raise ValueError(f'{spec.path}: {spec.name}: has no search')
        self.log(f'{spec.name}: {mode} in {folder}')
        with lock_folder(folder):
            if mode == 'dev':
                return self._dev(spec, folder)
            _copy(spec, folder, mode)
            runner = TrialRunner(spec, folder, self.env_modules)
            return self._train(runner) if mode == 'train' else self._search(runner)

    def _train(self, runner: TrialRunner) -> bool:
        outcomes, complete = [], False
        try:
            complete = runner.run(0, {}, self.stop.is_set, jobs=self.jobs)
            if complete:
                value, record = deliver_trial(runner, 0, {}, reference_of(runner.spec))
                outcomes = [Outcome(0, 'complete', {}, value, record)]
        except TrainingError as error:
            self.log(f'{runner.spec.name}: {error}')
            outcomes = [Outcome(0, 'failed', {}, None, {}, str(error))]
        self._deliver(runner, outcomes, {}, 'train', complete=complete)
        return complete

    def _search(self, runner: TrialRunner) -> bool:
        spec = runner.spec
        assert spec.search is not None
        reference = reference_of(spec)
        searcher = Searcher(
            runner, spec.search,
            lambda number, values: deliver_trial(runner, number, values, reference),
            url=self.storage, log=self.log)
        complete = searcher.run(self.jobs, self.stop)
        outcomes = searcher.outcomes()
        self._deliver(runner, outcomes, searcher.importance(), 'search', complete=complete)
        if complete and all(each.value is None for each in outcomes):
            self.log(f'{spec.name}: no trial has a result: ' + ', '.join(
                f'trial {each.number} {each.state}' for each in outcomes))
            return False
        return complete

    def _deliver(self, runner: TrialRunner, outcomes: list[Outcome],
                 importance: Mapping[str, float], mode: str, *, complete: bool) -> None:
        ranked = deliver_experiment(runner, outcomes, importance, mode, complete=complete)
        if ranked and ranked[0].value is not None:
            best = ranked[0]
            parts = ', '.join(f'{name.replace("_", " ")} {value:.4g}'
                              for name, value in best.record.items())
            self.log(f'{runner.spec.name}: best is trial {best.number}: {parts}')
            session = runner.sessions(best.number, best.values)[0]
            self.log(f'{runner.spec.name}: {reproducing_command(session)}')
        early = sum((run.summary() or {}).get('ended_by') == 'stop_at_return'
                    for each in outcomes for session in runner.sessions(each.number, each.values)
                    for run in session.runs)
        if early:
            self.log(f'{runner.spec.name}: {early} runs ended by stop_at_return, before their '
                     'total_steps; with stop_at_return: never they go on')
        self.log(f'{runner.spec.name}: {runner.folder / "index.html"}')

    def _dev(self, spec: Spec, folder: Path) -> bool:
        """Run two short trials of one session, and check more than a long training needs."""
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK_FILE:
                path.unlink()
        short = _shortened(spec).with_meta(sessions=1, trials=2)
        if short.search is not None:
            runner = TrialRunner(short, folder, self.env_modules)
            searcher = Searcher(
                runner, short.search,
                lambda number, values: _check(runner.sessions(number, values)[0]),
                url='', log=self.log)
            complete = searcher.run(self.jobs, self.stop)
            return complete and all(each.state == 'complete' for each in searcher.outcomes())
        for number in range(2):
            runner = TrialRunner(
                short.with_meta(seed=short.meta.seed + number), folder, self.env_modules)
            try:
                if not runner.run(number, {}, self.stop.is_set):
                    return False
                _check(runner.sessions(number, {})[0])
            except (TrainingError, ValueError) as error:
                self.log(f'trial {number}: {error}')
                return False
            self.log(f'trial {number}: complete')
        return True

    def _enjoy(self, spec: Spec, at: Path | None) -> bool:
        if at is None:
            raise ValueError(f'{spec.name}: enjoy needs --at with the folder of a run')
        run = _best_run(at)
        refuse_links(run)
        settings = config_file.read_saved('--at', run)
        allowed = [spec.settings] if spec.agents is None else [
            spec.agents.resolved(number) for number in range(len(spec.agents.agents))]
        for name in ('env_id', 'algorithm'):
            if settings.get(name) not in (known := [each[name] for each in allowed]):
                raise ValueError(f'--at: {run}: {name} {quoted(settings.get(name))} is not '
                                 f'{" or ".join(map(repr, known))} as in {spec.name}')
        import_modules(EnvModulesConfig(env_modules=self.env_modules))
        # Imported here because it imports PyTorch, which nothing else of an experiment needs.
        from vdl_ros.play.saved_policy import record_video
        try:
            self.log(record_video(run / 'checkpoint.pt', run / 'enjoy.mp4'))
        except OpenGLError as error:
            raise ValueError(f'{run}: {error}') from None
        return True


def _check(session: TrainingProcess) -> tuple[float, dict[str, Any]]:
    """Return the mean return of a session; ValueError: it lost a trajectory or did not learn."""
    returns = []
    for run in session.runs:
        summary = run.summary() or {}
        for name in ('trajectories_lost', 'trajectories_rejected'):
            if summary.get(name, 0):
                raise ValueError(f'{name}: {summary[name]} is not allowed: 0')
        if not summary.get('updates') and not run.settings.get('freeze'):
            raise ValueError(f'{run.folder}: no update in {summary.get("agent_steps")} steps')
        returns.append(float(summary.get('mean_return_100') or 0.0))
    return statistics.fmean(returns), {}


def _best_run(at: Path) -> Path:
    """Return the run in a folder of a run, or the best of a trial or an experiment."""
    if best := read_summary(at).best:
        at = at / f'trial-{best.trial}'
    if sessions := read_trial(at).sessions:
        at = at / max(sessions, key=lambda each: each.final_return).folder
    if not (at / 'checkpoint.pt').is_file():
        raise ValueError(f'--at: {at} holds no checkpoint.pt')
    return at


def _content(spec: Spec) -> dict[str, Any]:
    content = {**spec.content, 'meta': {**spec.content.get('meta', {}),
                                        'sessions': spec.meta.sessions}}
    if spec.search is not None:
        content['meta']['trials'] = spec.num_trials
    return content


def _has_copy(spec: Spec, folder: Path) -> bool:
    """Return whether the results of a folder are of a spec as it is, also as long."""
    try:
        known = read_yaml(folder / 'spec.yaml')[spec.name]
        return _fixed(known, 'benchmark') == _fixed(_content(spec), 'benchmark')
    except (OSError, YamlError, KeyError, TypeError, AttributeError):
        return False


def _copy(spec: Spec, folder: Path, mode: str) -> None:
    """Write a copy of the spec; a ValueError if the folder has results of another one."""
    path, content = folder / 'spec.yaml', _content(spec)
    if path.is_file():
        try:
            known = read_yaml(path)[spec.name]
            changed = _fixed(known, mode) != _fixed(content, mode)
        except (YamlError, KeyError, TypeError, AttributeError):
            raise ValueError(f'{path} is not the copy of a spec') from None
        if changed:
            raise ValueError(f'{spec.name}: the spec has changed since {path} was written; undo '
                             'the change, or choose another --output')
    write_text(path, dump_yaml({spec.name: content}))


def _fixed(content: Mapping[str, Any], mode: str) -> object:
    """Return what must stay the same: a training may get longer, a search more trials."""
    free = {'description', 'trials'} | (
        {'search', 'sessions', 'total_steps'} if mode == 'train' else set())

    def without(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name not in free}

    agent = content['agent']
    return without(content) | {
        'meta': without(content['meta']),
        'agent': [without(each) for each in (agent if isinstance(agent, list) else [agent])]}


def _shortened(spec: Spec) -> Spec:
    if spec.agents is not None:
        agents = spec.agents
        return dataclasses.replace(spec, agents=dataclasses.replace(agents, agents={
            name: {**each, **_short(agents.resolved(number), agents.count_of(number))}
            for number, (name, each) in enumerate(agents.agents.items())}))
    return dataclasses.replace(spec, settings={
        **spec.settings, **_short(config_file.resolve(spec.settings))})


def _short(values: Mapping[str, object], num_envs: int = 0) -> dict[str, Scalar]:
    env, train = select(EnvConfig, values), select(TrainConfig, values)
    needed = 4 * (num_envs or env.num_envs) * train.unroll_length * train.batch_size
    algorithm = make_algorithm_config(train, values)
    if isinstance(algorithm, ReplayConfig):
        needed = max(needed, 2 * algorithm.replay_start)
    steps = min(train.total_steps, max(_DEV_STEPS, needed))
    return {'total_steps': steps, 'stop_at_return': 1e9}
