"""Bodies: the coordinates (agent, environment, body) of a spec, as SLM-Lab counts them.

``outer``: every agent has ``num`` bodies in every environment. ``inner``: agent i is in
environment i. ``custom``: a list of coordinates. In a world of several bodies they are those of
the world, in its order; in other environments copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, select
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import is_world
from vdl_ros.recipes.agents_file import AgentsFile, agents_of_world, check_bodies

__all__ = ['PRODUCTS', 'bodies', 'check_world', 'make_agents', 'with_values']

PRODUCTS = ('outer', 'inner', 'custom')
Coordinates = tuple[int, int, int]
_MOST = 4096


def bodies(product: object, num: Any, agents: int = 1, envs: int = 1) -> list[Coordinates]:
    """Return the coordinates of all bodies, each number from 0.

    Args:
        product: one of :data:`PRODUCTS`.
        num: bodies of an agent in an environment, or the list of coordinates of ``custom``.

    Raises:
        SettingError: an unknown product; a number or a list that contradicts it.
    """
    if product not in PRODUCTS:
        raise SettingError(f'product: {quoted(product)} is not allowed: one of '
                           f'{", ".join(PRODUCTS)}')
    if product == 'custom':
        return check_bodies(num, agents, envs, 'num')
    if type(num) is not int or not 1 <= num <= _MOST:
        raise SettingError(f'num: {quoted(num)} is not allowed with product {product}: a whole '
                           f'number from 1 to {_MOST}')
    if product == 'inner' and agents != envs:
        raise SettingError(f'product: inner is not allowed with {agents} agents and {envs} '
                           'environments: as many agents as environments')
    pairs = [(agent, agent) for agent in range(agents)] if product == 'inner' else [
        (agent, env) for agent in range(agents) for env in range(envs)]
    return [(*pair, body) for pair in pairs for body in range(num)]


def make_agents(
    agents: Sequence[Mapping[str, Any]], envs: Sequence[Mapping[str, Any]], product: object,
    num: object,
) -> AgentsFile:
    """Return agents, environments and bodies.

    Args:
        agents: settings of each, with ``name`` (default: agent_0, ...) and ``init``.
        product: of the bodies, see :func:`bodies`.

    Raises:
        ValueError: they contradict each other.
    """
    coordinates = bodies(product, num, len(agents), len(envs))
    named: dict[str, dict[str, Any]] = {}
    for number, each in enumerate(agents):
        name = each.get('name', f'agent_{number}')
        if name in named:
            raise SettingError(f'name: {name} is the name of two agents')
        named[name] = {key: value for key, value in each.items() if key != 'name'}
    found = AgentsFile(named, envs, coordinates)
    found.verify()
    for number, env in enumerate(envs):
        if is_world(str(env['env_id'])):
            check_world(env, [found.count(agent, number) for agent in found.agents_in(number)])
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
