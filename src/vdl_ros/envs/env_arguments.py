"""
Reads ``env_kwargs`` and ``env_wrappers``: plain data, which may come from other hosts.

Only their form is checked here; what an environment does with an argument is its own matter.
"""

from __future__ import annotations

import json
from typing import Any

from vdl_ros.common.quoting import quoted
from vdl_ros.envs.checked_vector_env import EnvError

__all__ = ['parse_kwargs', 'parse_wrappers']

# Characters of a setting, and levels of nesting.
_LONGEST = 8192
_DEEPEST = 8
# Arguments of gymnasium.make and make_vec, which are not the environment's own.
_RESERVED = frozenset({
    'additional_wrappers', 'disable_env_checker', 'id', 'max_episode_steps', 'num_envs',
    'render_mode', 'vector_kwargs', 'vectorization_mode', 'wrappers'})
_WRAPPERS = ('names separated by commas, or a JSON list such as '
             '["A", {"B": {"argument": 1}}]')


def parse_kwargs(text: str) -> dict[str, Any]:
    """
    Return the arguments in ``env_kwargs``.

    Raises:
        EnvError: not a JSON object, or an argument that this package sets.
    """
    if not text.strip():
        return {}
    found = _read('env_kwargs', text, 'a JSON object such as {"size": 5}')
    if not isinstance(found, dict):
        raise EnvError(f'env_kwargs: {quoted(text)} is not allowed: a JSON object such as '
                       '{"size": 5}')
    for name in found:
        if name in _RESERVED:
            raise EnvError(f'env_kwargs: {name!r} is not allowed: it is not of the environment; '
                           'see time_limit, num_envs and env_wrappers')
    return found


def parse_wrappers(text: str) -> list[tuple[str, dict[str, Any]]]:
    """
    Return name and arguments of each wrapper in ``env_wrappers``, innermost first.

    Raises:
        EnvError: neither names nor a JSON list of wrappers.
    """
    text = text.strip()
    if not text.startswith(('[', '{', '"')):
        return [(name, {}) for each in text.split(',') if (name := each.strip())]
    found = _read('env_wrappers', text, _WRAPPERS)
    result: list[tuple[str, dict[str, Any]]] = []
    for each in found if isinstance(found, list) else [found]:
        if isinstance(each, str):
            result.append((each, {}))
        elif isinstance(each, dict) and all(isinstance(more, dict) for more in each.values()):
            result += each.items()
        else:
            raise EnvError(f'env_wrappers: {quoted(each)} is not allowed: {_WRAPPERS}')
    return result


def _read(name: str, text: str, allowed: str) -> Any:
    """Return JSON of limited length and depth."""
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    if len(text) > _LONGEST:
        raise EnvError(f'{name}: {len(text)} characters are not allowed: at most {_LONGEST}')
    try:
        found = json.loads(text, parse_constant=refuse)
    # The parser calls itself for each level of nesting.
    except (ValueError, RecursionError) as error:
        raise EnvError(f'{name}: {quoted(text)} is not allowed: {allowed}') from error
    if _is_deeper(found, _DEEPEST):
        raise EnvError(f'{name}: {quoted(text)} is not allowed: nested at most {_DEEPEST} times')
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inner)
