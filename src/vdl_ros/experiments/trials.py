"""Trials: their sessions as processes, also of several agents, and what they report."""

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vdl_ros.common.files import write_text
from vdl_ros.common.plain_yaml import dump_yaml
from vdl_ros.common.settings import Scalar, as_text, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.experiments.spec import Spec
from vdl_ros.recipes import config_file
from vdl_ros.recipes.agents_file import AgentsFile
from vdl_ros.rl.runs.recorded_run import RecordedRun, RunReadError
from vdl_ros.rl.runs.training_process import TrainingError, TrainingProcess, options
from vdl_ros.rl.settings import TrainConfig


@dataclasses.dataclass(frozen=True)
class AgentsProcess(TrainingProcess):
    """A session of ``vdl_ros.multi_agent_training``, in whose folder each agent has a run.

    Its settings are only the seed; ``agents`` are written to ``<name>.yaml`` beside the folder.
    """

    agents: AgentsFile = dataclasses.field(kw_only=True)

    @property
    def file(self) -> Path:
        return self.folder.with_name(f'{self.folder.name}.yaml')

    @property
    def runs(self) -> list[TrainingProcess]:
        found = []
        for number, name in enumerate(self.agents.agents):
            settings = self.agents.resolved(number)
            total_steps = str(settings.get('total_steps', TrainConfig.total_steps))
            found.append(TrainingProcess(self.folder / name, {
                **self.settings, 'total_steps': total_steps,
                **({'freeze': 'true'} if settings.get('freeze') else {})}))
        return found

    def command(self, file: Path | None = None) -> list[str]:
        settings = {'run_dir': str(self.folder), 'seed': self.settings['seed']}
        return [sys.executable, '-m', 'vdl_ros.multi_agent_training', str(file or self.file),
                *options({**settings, **self.start_settings})]

    def run(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.file, dump_yaml(dataclasses.asdict(self.agents)))
        return super().run(stop)


# Places of a session where its return is reported, evenly over its steps.
_PLACES = 10
# Time between looks at the progress of a session, s.
_LOOK_S = 1.0
_ENV = settings_of(EnvConfig)

Report = Callable[[int, float], None]


@dataclasses.dataclass(frozen=True)
class TrialRunner:
    """Runs trials of one experiment; ``env_modules`` is the setting."""

    spec: Spec
    folder: Path
    env_modules: str = ''

    def sessions(self, number: int, values: Mapping[str, Scalar]) -> list[TrainingProcess]:
        meta, agents = self.spec.meta, self.spec.agents
        start = {'env_modules': self.env_modules} if self.env_modules else {}
        settings = {}
        if agents is None:
            given = {**self.spec.settings, **values}
            steps = config_file.resolve(given).get('total_steps', TrainConfig.total_steps)
            settings = {name: as_text(value) for name, value in given.items()} | {
                'total_steps': str(steps), 'record_episodes': 'true'}
        else:
            of_env = {name: value for name, value in values.items() if name in _ENV}
            of_agent = {name: value for name, value in values.items() if name not in _ENV}
            agents = AgentsFile(
                {name: {**each, **of_agent, 'record_episodes': True}
                 for name, each in agents.agents.items()},
                [{**each, **of_env} for each in agents.envs], agents.bodies)
        found: list[TrainingProcess] = []
        for session in range(meta.sessions):
            folder = self.folder / f'trial-{number}' / f'session-{session}'
            own = {**settings, 'seed': str(meta.seed + session)}
            found.append(TrainingProcess(folder, own, start) if agents is None
                         else AgentsProcess(folder, own, start, agents=agents))
        return found

    def run(
        self, number: int, values: Mapping[str, Scalar], stop: Callable[[], bool],
        report: Report | None = None, jobs: int = 1,
    ) -> bool:
        """Run the sessions of a trial that are not complete; return whether all are now.

        Once ``stop`` returns true, or a session fails (a TrainingError or OSError), the others are
        interrupted. ``report`` takes a place, counted over all sessions, and the mean return
        there; without it ``jobs`` sessions may run at a time.
        """
        failed: list[TrainingError | OSError] = []

        def run_one(index: int, session: TrainingProcess) -> bool:
            reporter = _Reporter(session, index, report)

            def stops() -> bool:
                reporter.look()
                return bool(failed) or stop()

            if stops():
                return False
            try:
                complete = session.run(stops) is not None
            except (TrainingError, OSError) as error:
                failed.append(error)
                return False
            reporter.look(over=True)
            return complete

        with ThreadPoolExecutor(jobs) as pool:
            done = list(pool.map(run_one, range(self.spec.meta.sessions),
                                 self.sessions(number, values)))
        if failed:
            raise failed[0]
        return all(done)


class _Reporter:
    """Reports the mean return of a session at each place that it has passed."""

    def __init__(self, session: TrainingProcess, index: int, report: Report | None) -> None:
        self._session, self._index, self._report = session, index, report
        self._place, self._due = 1, 0.0

    def look(self, *, over: bool = False) -> None:
        """Report what is new, at most once in a while, or the rest if the session is ``over``."""
        if self._report is None or (not over and time.monotonic() < self._due):
            return
        self._due = time.monotonic() + _LOOK_S
        try:
            found = [(RecordedRun(run.folder).columns, int(run.settings['total_steps']))
                     for run in self._session.runs]
        except RunReadError:
            return
        while self._place <= _PLACES:
            values = []
            for columns, total in found:
                steps, returns = columns['agent_steps'], columns['mean_return_100']
                passed = steps >= total * self._place / _PLACES
                if not passed.any() and not over:
                    return
                values.append(float(returns[passed.argmax()] if passed.any() else returns[-1]))
            # Of several agents the mean, as of fitness.
            value = statistics.fmean(values)
            if not math.isnan(value):
                self._report(self._index * _PLACES + self._place, value)
            self._place += 1
