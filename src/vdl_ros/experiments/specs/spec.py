"""What a spec says, after it was checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vdl_ros import presets
from vdl_ros.agents_file import AgentsFile
from vdl_ros.common.settings import Scalar, Setting, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds.registration import is_world
from vdl_ros.experiments.specs.spaces import Choices, Normal, Space
from vdl_ros.experiments.specs.spec_config import MetaConfig, ReferenceConfig, SearchConfig
from vdl_ros.rl.algorithm_config import ALGORITHM_SETTINGS
from vdl_ros.rl.train_config import TrainConfig

__all__ = [
    'LISTED_AGENT', 'Search', 'Spec', 'agent_settings', 'env_settings', 'listed_agent_settings',
]

#: What one of several agents has beside settings: its name, and a checkpoint of first weights.
LISTED_AGENT = ('name', 'init')
# Set by the experiment, or not of a training that learns.
_NOT_IN_SPECS = ('seed', 'record_episodes', 'freeze', 'inference')


def agent_settings() -> dict[str, Setting]:
    """Return the settings of the part ``agent``, of every algorithm, by name."""
    found = settings_of(TrainConfig, *ALGORITHM_SETTINGS.values())
    return {name: each for name, each in found.items() if name not in _NOT_IN_SPECS}


def listed_agent_settings() -> dict[str, Setting]:
    """Return the settings of one of several agents: it may also be a fixed opponent."""
    return agent_settings() | {'freeze': settings_of(TrainConfig)['freeze']}


def env_settings() -> dict[str, Setting]:
    """Return the settings of the part ``env`` by name."""
    return settings_of(EnvConfig)


@dataclasses.dataclass(frozen=True)
class Search:
    """
    What a spec searches.

    Attributes:
        config: sampler and pruner.
        spaces: by setting, in the order of the spec.
    """

    config: SearchConfig
    spaces: Mapping[str, Space]

    @property
    def grid_size(self) -> int:
        """Number of combinations of choices; 0 if a space is not of choices."""
        return math.prod(len(each.values) if isinstance(each, Choices) else 0
                         for each in self.spaces.values())


@dataclasses.dataclass(frozen=True)
class Spec:
    """
    One spec.

    Attributes:
        path: of its file.
        name: in that file.
        description: what it is for.
        settings: of agent and environment as the spec gives them, by name; what it does not give
            comes from presets and defaults. {} if the spec lists agents or environments.
        agents: agents, environments and bodies of a spec that lists them, else None.
        meta: sessions, trials and seed.
        reference: what fitness is measured by; None: the table of references has it, or not.
        search: None if there is nothing to search.
        content: the spec as it was read, to copy it.
    """

    path: Path
    name: str
    description: str
    settings: Mapping[str, Scalar]
    agents: AgentsFile | None
    meta: MetaConfig
    reference: ReferenceConfig | None
    search: Search | None
    content: Mapping[str, Any]

    @property
    def env_id(self) -> str:
        """Id of the environment; '' if there are several, or several agents in one world."""
        if self.agents is None:
            return str(self.settings['env_id'])
        env_ids = [str(each['env_id']) for each in self.agents.envs]
        return env_ids[0] if len(env_ids) == 1 and not is_world(env_ids[0]) else ''

    @property
    def subject(self) -> str:
        """What is trained where, in words."""
        if self.agents is None:
            return f'{self.settings["algorithm"]} in {self.env_id}'
        names = ', '.join(f'{name} ({each["algorithm"]})'
                          for name, each in self.agents.agents.items())
        return f'{names} in {", ".join(str(each["env_id"]) for each in self.agents.envs)}'

    @property
    def num_trials(self) -> int:
        """Number of trials of the search; 1 without one."""
        if self.search is None:
            return 1
        if self.search.config.sampler == 'grid':
            return min(self.meta.trials or self.search.grid_size, self.search.grid_size)
        return self.meta.trials

    def preset_values(self) -> dict[str, Scalar]:
        """Return the searched settings' values without a search, those in their spaces."""
        if self.search is None or self.agents is not None:
            return {}
        resolved = presets.resolve(self.settings)
        values = {name: space.setting.check(resolved.get(name, space.setting.default))
                  for name, space in self.search.spaces.items()}
        return {name: value for name, value in values.items()
                if not isinstance(space := self.search.spaces[name], Normal) and value in space}

    def with_meta(self, **values: int) -> Spec:
        """Return the spec with other numbers of trials or sessions."""
        return dataclasses.replace(self, meta=dataclasses.replace(self.meta, **values))
