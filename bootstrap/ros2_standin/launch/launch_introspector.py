"""LaunchIntrospector: a launch description as a text, for `ros2 launch --print`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .launch_description import LaunchDescription
from .some_substitutions_type import SomeSubstitutionsType
from .utilities import normalize_to_list_of_substitutions


def _substitutions(value: SomeSubstitutionsType) -> str:
    return ' + '.join(sub.describe() for sub in normalize_to_list_of_substitutions(value))


def _lines(entity: Any) -> list[str]:
    """Describe an entity: its line, and the ones of what an event handler leads to below it."""
    from .actions import EmitEvent, ExecuteProcess, LogInfo, RegisterEventHandler

    if isinstance(entity, LogInfo):
        return [f'LogInfo({_substitutions(entity.msg)})']
    if isinstance(entity, EmitEvent):
        return [f"EmitEvent(event='{entity.event.name}')"]
    if isinstance(entity, ExecuteProcess):
        cmd = ', '.join(_substitutions(part) for part in entity.cmd)
        cwd = None if entity.cwd is None else f"'{_substitutions(entity.cwd)}'"
        env = None
        if entity.env is not None:
            pairs = (f'{_substitutions(k)}: {_substitutions(v)}' for k, v in entity.env)
            env = '{' + ', '.join(pairs) + '}'
        return [f'ExecuteProcess(cmd=[{cmd}], cwd={cwd}, env={env}, shell={entity.shell})']
    if isinstance(entity, RegisterEventHandler):
        text, entities = entity.event_handler.describe()
        return [
            f"RegisterEventHandler('{entity.event_handler}'):",
            f'    {text}',
            *(f'        {line}' for inner in entities for line in _lines(inner)),
        ]
    return [f"Action('{entity}')"]


class LaunchIntrospector:
    """Formats launch descriptions without running them."""

    def format_launch_description(self, launch_description: LaunchDescription) -> str:
        """Format a launch description as a tree."""
        return '\n'.join([str(launch_description), *_tree(launch_description.entities)])


def _tree(entities: Iterable[Any]) -> list[str]:
    """Draw the branches to the entities."""
    entities = list(entities)
    result = []
    for number, entity in enumerate(entities):
        last = number == len(entities) - 1
        first, *below = _lines(entity)
        result.append(('└── ' if last else '├── ') + first)
        for line in below:
            text = line.lstrip()
            indent = '│   ' * ((len(line) - len(text)) // 4 - 1)
            result.append(('    ' if last else '│   ') + indent + '└── ' + text)
    return result
