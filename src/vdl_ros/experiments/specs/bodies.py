"""
Bodies: the coordinates (agent, environment, body) of a spec, as SLM-Lab counts them.

``outer``: every agent has ``num`` bodies in every environment. ``inner``: agent i is in
environment i. ``custom``: a list of coordinates. In a world of several bodies they are those of
the world, in its order; in other environments copies.
"""

from __future__ import annotations

__all__ = ['PRODUCTS', 'bodies']

PRODUCTS = ('outer', 'inner', 'custom')
Coordinates = tuple[int, int, int]
_MOST = 4096


def bodies(product: object, num: object, agents: int = 1, envs: int = 1) -> list[Coordinates]:
    """
    Return the coordinates of all bodies, each number from 0.

    Args:
        product: one of :data:`PRODUCTS`.
        num: bodies of an agent in an environment, or the list of coordinates of ``custom``.
        agents: number of agents.
        envs: number of environments.

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
