"""Bodies: the coordinates (agent, environment, body) of a spec, as SLM-Lab counts them.

``outer``: every agent has ``num`` bodies in every environment. ``inner``: agent i is in
environment i. ``custom``: a list of coordinates. In a world of several bodies they are those of
the world, in its order; in other environments copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vdl_ros.common.settings import SettingError, select
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import is_world
from vdl_ros.recipes.agents_file import AgentsFile, agents_of_world, check_agent_name

__all__ = ['PRODUCTS', 'bodies', 'check_world', 'make_agents', 'with_values']


PRODUCTS = ('outer', 'inner', 'custom')
Coordinates = tuple[int, int, int]
_MOST = 4096


def bodies(product: object, num: object, agents: int = 1, envs: int = 1) -> list[Coordinates]:
    """Return the coordinates of all bodies, each number from 0.

    Args:
        product: one of :data:`PRODUCTS`.
        num: bodies of an agent in an environment, or the list of coordinates of ``custom``.

    Raises:
        ValueError: an unknown product; a number or a list that contradicts it; coordinates of
            an agent or an environment that is not there, twice, or not counted from 0.
    """
    if product not in PRODUCTS:
        raise ValueError(f'product: {product!r} is not allowed: one of {", ".join(PRODUCTS)}')
    if product == 'custom':
        return _custom(num, agents, envs)
    if type(num) is not int or not 1 <= num <= _MOST:
        raise ValueError(f'num: {num!r} is not allowed with product {product}: a whole number '
                         f'from 1 to {_MOST}')
    if product == 'inner' and agents != envs:
        raise ValueError(f'product: inner is not allowed with {agents} agents and {envs} '
                         'environments: as many agents as environments')
    pairs = [(agent, agent) for agent in range(agents)] if product == 'inner' else [
        (agent, env) for agent in range(agents) for env in range(envs)]
    return [(*pair, body) for pair in pairs for body in range(num)]


def _custom(num: object, agents: int, envs: int) -> list[Coordinates]:
    if not isinstance(num, list) or not num or len(num) > _MOST:
        raise ValueError(f'num: {num!r} is not allowed with product custom: a list of [agent, '
                         'environment, body]')
    found: list[Coordinates] = []
    for each in num:
        if not isinstance(each, list) or len(each) != 3 or any(type(n) is not int for n in each):
            raise ValueError(f'num: {each!r} is not allowed: [agent, environment, body]')
        agent, env, body = each
        if not (0 <= agent < agents and 0 <= env < envs and body >= 0):
            raise ValueError(f'num: {each} is not allowed: there is agent 0 to {agents - 1} and '
                             f'environment 0 to {envs - 1}')
        if (agent, env, body) in found:
            raise ValueError(f'num: {each} is there twice')
        found.append((agent, env, body))
    for agent, env, body in found:
        if body and (agent, env, body - 1) not in found:
            raise ValueError(f'num: {[agent, env, body]} is not allowed without '
                             f'{[agent, env, body - 1]}: bodies count from 0')
    return found


def make_agents(
    agents: Sequence[Mapping[str, Any]], envs: Sequence[Mapping[str, Any]], product: object,
    num: object,
) -> AgentsFile:
    """Return agents, environments and bodies.

    Args:
        agents: settings of each, with ``name`` (default: agent_0, ...) and ``init``.
        envs: settings of each.
        product: of the bodies, see :func:`bodies`.

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
    """Check that agents with so many bodies fill a world.

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
