"""A session of several agents as a process of its own."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.agents_file import AgentsFile
from vdl_ros.common.run_files import write_text
from vdl_ros.rl.runs.training_process import TrainingProcess
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['AgentsProcess']


@dataclasses.dataclass(frozen=True)
class AgentsProcess(TrainingProcess):
    """
    A session of ``vdl_ros.multi_agent_training``, in whose folder each agent has a run.

    Its settings are only the seed.

    Attributes:
        agents: agents, environments and bodies; written to ``<name>.yaml`` beside the folder.
    """

    agents: AgentsFile = dataclasses.field(default_factory=lambda: AgentsFile({}, [], []))

    @property
    def file(self) -> Path:
        """The file of the session."""
        return self.folder.with_name(f'{self.folder.name}.yaml')

    @property
    def runs(self) -> list[TrainingProcess]:
        """The runs of the agents."""
        found = []
        for number, name in enumerate(self.agents.agents):
            settings = self.agents.resolved(number)
            total_steps = str(settings.get('total_steps', TrainConfig.total_steps))
            found.append(TrainingProcess(self.folder / name, {
                **self.settings, 'total_steps': total_steps,
                **({'freeze': 'true'} if settings.get('freeze') else {})}))
        return found

    def command(self, file: Path | None = None) -> list[str]:
        """Return the command that starts the session, or goes on with it."""
        more = (word for name, value in self.start_settings.items()
                for word in (f'--{name}', value))
        return [sys.executable, '-m', 'vdl_ros.multi_agent_training', str(file or self.file),
                '--run_dir', str(self.folder), '--seed', self.settings['seed'], *more]

    def run(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Run the session; see :meth:`TrainingProcess.run`."""
        content = {'agents': {name: dict(each) for name, each in self.agents.agents.items()},
                   'envs': [dict(each) for each in self.agents.envs],
                   'bodies': [list(each) for each in self.agents.bodies]}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.file, yaml.safe_dump(content, sort_keys=False))
        return super().run(stop)
