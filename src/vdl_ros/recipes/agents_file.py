"""The file of a session of several agents: their settings, the environments, and the bodies.

    agents:
      chaser: {algorithm: ppo, total_steps: 100000}
      prey: {algorithm: ppo, total_steps: 100000, init: runs/prey/checkpoint.pt, freeze: true}
    envs: [{env_id: mpe2/simple_tag_v3, num_envs: 8}]
    bodies: [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0]]

A body is [agent, environment, number], each from 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import (
    Scalar,
    SettingError,
    settings_of,
    suggestion,
)
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import is_world
from vdl_ros.recipes import config_file
from vdl_ros.recipes.config_file import setting_value
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig

__all__ = ['AgentsFile', 'agents_of_world', 'check_agent_name', 'read_agents_file']


# Names of folders, and of ROS namespaces.
_NAME = re.compile(r'[a-z][a-z0-9_]{0,60}')
_PARTS = ('agents', 'envs', 'bodies')


@dataclass(frozen=True)
class AgentsFile:
    """What a session of several agents is.

    Attributes:
        agents: settings of learning by the name of an agent; ``init`` is a checkpoint.
        envs: settings of each environment.
        bodies: (agent, environment, number), each from 0.
    """

    agents: Mapping[str, Mapping[str, Scalar]]
    envs: Sequence[Mapping[str, Scalar]]
    bodies: Sequence[tuple[int, int, int]]

    def count(self, agent: int, env: int) -> int:
        """Return the number of bodies of an agent in an environment."""
        return sum(body[:2] == (agent, env) for body in self.bodies)

    def count_of(self, agent: int) -> int:
        """Return the number of environments that an agent steps: bodies, times worlds."""
        found = 0
        for env in self.envs_of(agent):
            settings = self.envs[env]
            worlds = int(settings.get('num_envs', EnvConfig.num_envs)) \
                if is_world(str(settings['env_id'])) else 1
            found += self.count(agent, env) * worlds
        return found

    def agents_in(self, env: int) -> list[int]:
        """Return the agents that have bodies in an environment."""
        return sorted({body[0] for body in self.bodies if body[1] == env})

    def envs_of(self, agent: int) -> list[int]:
        """Return the environments in which an agent has bodies."""
        return sorted({body[1] for body in self.bodies if body[0] == agent})

    def resolved(self, agent: int) -> dict[str, object]:
        """Return the settings of an agent in its first environment, with those of presets."""
        name = list(self.agents)[agent]
        learning = {key: value for key, value in self.agents[name].items() if key != 'init'}
        return config_file.resolve({**learning, **self.envs[self.envs_of(agent)[0]]})


def check_agent_name(name: object) -> str:
    """Return the name of an agent.

    Raises:
        SettingError: it is no name of a folder and of a ROS namespace.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SettingError(f'name: {quoted(name)} is not allowed: small letters, digits and _, '
                           'with a letter first')
    return name


def agents_of_world(
    env_id: str, names: Sequence[str], counts: Sequence[int],
) -> list[list[str]]:
    """Return the names of the bodies of each agent: the first agent has the first ones.

    Args:
        names: of the bodies for which policies act, in the order of the world.
        counts: number of bodies of each agent.

    Raises:
        SettingError: there are more or fewer.
    """
    if sum(counts) != len(names):
        raise SettingError(f'bodies: {sum(counts)} are not allowed with env_id {env_id}, which '
                           f'has {len(names)}: {", ".join(names)}')
    ends = [sum(counts[:number + 1]) for number in range(len(counts))]
    return [list(names[end - count:end]) for end, count in zip(ends, counts, strict=True)]


def read_agents_file(path: Path) -> AgentsFile:
    """Read and check a file.

    Raises:
        SettingError: it cannot be read, or is no session of agents; the message is one line.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise SettingError(f'{path} cannot be read: {error.strerror}') from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SettingError(f'{path} is not YAML: {" ".join(str(error).split())[:200]}') from None
    if not isinstance(content, dict) or content.keys() != set(_PARTS):
        raise SettingError(f'{path} is not a mapping with agents, envs and bodies')
    try:
        return _checked(content)
    except SettingError as error:
        raise SettingError(f'{path}: {error}') from None


def _checked(content: Mapping[str, Any]) -> AgentsFile:
    agents, envs, bodies = (content[part] for part in _PARTS)
    if not isinstance(agents, dict) or not agents:
        raise SettingError('agents: not a mapping from names to settings')
    if not isinstance(envs, list) or not envs:
        raise SettingError('envs: not a list of settings')
    learning = settings_of(TrainConfig, *ALGORITHM_SETTINGS.values())
    # A session has one seed; its actions are chosen where its environments are.
    for name in ('seed', 'inference'):
        del learning[name]
    found_agents = {}
    for name, each in agents.items():
        check_agent_name(name)
        init = each.pop('init', None) if isinstance(each, dict) else None
        found_agents[name] = _settings(f'agents: {name}', each, learning) | (
            {'init': str(init)} if init else {})
    found_envs = [_settings(f'envs: {number}', each, settings_of(EnvConfig))
                  for number, each in enumerate(envs)]
    found: list[tuple[int, int, int]] = []
    for each in bodies if isinstance(bodies, list) else [bodies]:
        if not isinstance(each, list) or [type(n) for n in each] != [int] * 3 \
                or not (0 <= each[0] < len(agents) and 0 <= each[1] < len(envs) and each[2] >= 0):
            raise SettingError(f'bodies: {quoted(each)} is not allowed: [agent, environment, '
                               'number]')
        found.append((each[0], each[1], each[2]))
    result = AgentsFile(found_agents, found_envs, found)
    for number, name in enumerate(agents):
        if not result.envs_of(number):
            raise SettingError(f'bodies: agent {name} has none')
    for number, env in enumerate(found_envs):
        if 'num_envs' in env and not is_world(str(env.get('env_id', ''))):
            raise SettingError(f'envs: {number}: num_envs is not allowed: bodies are the copies '
                               'of an environment')
    return result


def _settings(
    where: str, content: object, known: Mapping[str, Any],
) -> dict[str, Scalar]:
    if not isinstance(content, dict):
        raise SettingError(f'{where}: not a mapping of settings')
    found = {}
    for name, value in content.items():
        if name not in known:
            raise SettingError(f'{where}: {quoted(name)}: no such setting'
                               f'{suggestion(str(name), known)}')
        try:
            found[str(name)] = setting_value(known[name], value)
        except SettingError as error:
            raise SettingError(f'{where}: {error}') from None
    return found
