"""Several agents, environments and their bodies: from the parts of a spec to one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vdl_ros.agents_file import AgentsFile, agents_of_world, check_agent_name
from vdl_ros.common.settings import SettingError, select
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds.registration import is_world
from vdl_ros.experiments.specs.bodies import bodies

__all__ = ['check_world', 'make_agents', 'with_values']


def make_agents(
    agents: Sequence[Mapping[str, Any]], envs: Sequence[Mapping[str, Any]], product: object,
    num: object,
) -> AgentsFile:
    """
    Return agents, environments and bodies.

    Args:
        agents: settings of each, with ``name`` (default: agent_0, ...) and ``init``.
        envs: settings of each.
        product: of the bodies, see :func:`bodies`.
        num: of the bodies.

    Raises:
        ValueError: they contradict each other.
    """
    coordinates = bodies(product, num, len(agents), len(envs))
    named: dict[str, dict[str, Any]] = {}
    for number, each in enumerate(agents):
        name = check_agent_name(each.get('name', f'agent_{number}'))
        if name in named:
            raise SettingError(f'name: {name} is that of two agents')
        named[name] = {key: value for key, value in each.items() if key != 'name'}
    found = AgentsFile(named, envs, coordinates)
    for number, name in enumerate(named):
        if not found.envs_of(number):
            raise SettingError(f'num: agent {number}, {name}, has no body')
    for number, env in enumerate(envs):
        in_it = found.agents_in(number)
        if not in_it:
            raise SettingError(f'num: environment {number}, {env["env_id"]}, has no body')
        if is_world(str(env['env_id'])):
            check_world(env, [found.count(agent, number) for agent in in_it])
        elif 'num_envs' in env:
            raise SettingError(f'num: contradicts env.num_envs, {env["num_envs"]}: bodies are the '
                               'copies of an environment; leave num_envs out')
    return found


def check_world(env: Mapping[str, object], counts: Sequence[int]) -> None:
    """
    Check that agents with so many bodies fill a world.

    Raises:
        ValueError: they do not, or the world cannot be created.
    """
    agents_of_world(str(env['env_id']), factory.bodies(select(EnvConfig, env)), counts)


def with_values(agents: AgentsFile, values: Mapping[str, Any]) -> AgentsFile:
    """Return agents and environments with values of settings that are searched, for each."""
    of_env = {name: value for name, value in values.items() if name in _ENV}
    of_agent = {name: value for name, value in values.items() if name not in _ENV}
    return AgentsFile(
        {name: {**each, **of_agent} for name, each in agents.agents.items()},
        [{**each, **of_env} for each in agents.envs], agents.bodies)


_ENV = frozenset(EnvConfig.__dataclass_fields__)
