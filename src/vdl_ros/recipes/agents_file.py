"""The file of a session of several agents: their settings, the environments, and the bodies.

    agents:
      chaser: {algorithm: ppo, total_steps: 100000}
      prey: {algorithm: ppo, total_steps: 100000, init: runs/prey/checkpoint.pt, freeze: true}
    envs: [{env_id: mpe2/simple_tag_v3, num_envs: 8}]
    bodies: [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0]]

A body is [agent, environment, number], each from 0.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, Setting, SettingError, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import is_world
from vdl_ros.recipes import config_file
from vdl_ros.recipes.yaml_file import YamlFile
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig

#: What an agent has beside settings of learning.
INIT = Setting('init', str, '', 'Checkpoint of first weights.')
# Names of folders, and of ROS namespaces.
_NAME = re.compile(r'[a-z][a-z0-9_]{0,60}')
_Number = Annotated[int, msgspec.Meta(ge=0)]
_Bodies = Annotated[list[tuple[_Number, _Number, _Number]],
                    msgspec.Meta(min_length=1, max_length=4096)]


@dataclass(frozen=True)
class AgentsFile:
    """Settings of agents by name and of environments; bodies (agent, environment, number).

    Settings of an agent are of learning; ``init`` is a checkpoint.
    """

    agents: Mapping[str, Mapping[str, Scalar]]
    envs: Sequence[Mapping[str, Scalar]]
    bodies: Sequence[tuple[int, int, int]]

    def count(self, agent: int, env: int) -> int:
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
        return sorted({body[0] for body in self.bodies if body[1] == env})

    def envs_of(self, agent: int) -> list[int]:
        return sorted({body[1] for body in self.bodies if body[0] == agent})

    def verify(self) -> None:
        """Raise a SettingError unless names, agents, environments and bodies fit each other."""
        for number, name in enumerate(self.agents):
            check_agent_name(name)
            if not self.envs_of(number):
                raise SettingError(f'bodies: agent {name} has none')
        for number, env in enumerate(self.envs):
            if not self.agents_in(number):
                raise SettingError(f'bodies: environment {number}, {env["env_id"]}, has none')
            if 'num_envs' in env and not is_world(str(env['env_id'])):
                raise SettingError(f'num_envs: {env["num_envs"]} is not allowed with env_id '
                                   f'{env["env_id"]}: bodies are the copies of an environment')

    def given(self, agent: int) -> dict[str, Scalar]:
        """Return the settings of an agent and of its first environment, as the file has them."""
        name = list(self.agents)[agent]
        learning = {key: value for key, value in self.agents[name].items() if key != 'init'}
        return {**learning, **self.envs[self.envs_of(agent)[0]]}

    def resolved(self, agent: int) -> dict[str, object]:
        """Return the same with the settings of presets."""
        return config_file.resolve(self.given(agent))


def check_agent_name(name: object) -> str:
    """Return the name of an agent, which must be one of a folder and of a ROS namespace."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SettingError(f'name: {quoted(name)} is not allowed: small letters, digits and _, '
                           'with a letter first')
    return name


def agents_of_world(env_id: str, names: Sequence[str], counts: Sequence[int]) -> list[list[str]]:
    """Return the names of the bodies of each agent: the first agent has the first ones.

    ``names`` are of the bodies for which policies act, in the order of the world; ``counts`` the
    number of bodies of each agent.
    """
    if sum(counts) != len(names):
        raise SettingError(f'bodies: {sum(counts)} are not allowed with env_id {env_id}, which '
                           f'has {len(names)}: {", ".join(names)}')
    ends = [sum(counts[:number + 1]) for number in range(len(counts))]
    return [list(names[end - count:end]) for end, count in zip(ends, counts, strict=True)]


def check_bodies(
    listed: object, agents: int, envs: int, name: str = 'bodies',
) -> list[tuple[int, int, int]]:
    """Return bodies (agent, environment, number), each from 0, of a list of them."""
    try:
        bodies = msgspec.convert(listed, _Bodies)
    except msgspec.ValidationError:
        raise SettingError(f'{name}: {quoted(listed)} is not allowed: a list of [agent, '
                           'environment, number]') from None
    for agent, env, number in bodies:
        body = [agent, env, number]
        if agent >= agents or env >= envs:
            raise SettingError(f'{name}: {body} is not allowed: there is agent 0 to {agents - 1} '
                               f'and environment 0 to {envs - 1}')
        if bodies.count((agent, env, number)) > 1:
            raise SettingError(f'{name}: {body} is there twice')
        if number and (agent, env, number - 1) not in bodies:
            raise SettingError(f'{name}: {body} is not allowed without '
                               f'{[agent, env, number - 1]}: numbers count from 0')
    return bodies


def read_agents_file(path: Path) -> AgentsFile:
    """Read and check a file; a SettingError is one line."""
    file = YamlFile(path)
    content = file.mapping((), file.content)
    for part in ('agents', 'envs', 'bodies'):
        if not content.get(part):
            file.fault((part,), 'is missing')
    # A session has one seed; its actions are chosen where its environments are.
    learning = {name: each for name, each in settings_of(
        TrainConfig, *ALGORITHM_SETTINGS.values()).items() if name not in ('seed', 'inference')}
    agents = {name: file.settings(('agents', name), each, learning | {INIT.name: INIT})
              for name, each in file.mapping(('agents',), content.get('agents', {})).items()}
    listed = content.get('envs', [])
    envs = [file.settings(('envs', str(number)), each, settings_of(EnvConfig), ('env_id',))
            for number, each in enumerate(listed if isinstance(listed, list) else [listed])]
    file.check()
    bodies = file.attempt(
        ('bodies',), check_bodies, content['bodies'], len(agents), len(envs)) or []
    found = AgentsFile(agents, envs, bodies)
    file.attempt((), found.verify)
    file.check()
    return found
