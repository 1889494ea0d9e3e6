"""YAML with line numbers: mappings of nodes, and faults that name file and line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

__all__ = ['Fault', 'YamlFile']


class Fault(NamedTuple):
    """What is wrong at a line of a file, counted from 1; 0: the whole file."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        """Return one line."""
        line = f':{self.line}' if self.line else ''
        return f'{self.path}{line}: {" ".join(self.text.split())}'


class YamlFile:
    """
    A YAML file as nodes.

    Attributes:
        path: the file.
        root: node of its content; None if it is empty or not YAML.
        faults: found so far, in order.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; what is wrong with it becomes a fault."""
        self.path = path
        self.faults: list[Fault] = []
        self.root: yaml.Node | None = None
        try:
            self._loader = yaml.SafeLoader(path.read_text(encoding='utf-8'))
            self.root = self._loader.get_single_node()
        except OSError as error:
            self._add(0, f'cannot be read: {error.strerror}')
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._add(mark.line + 1 if mark else 1, f'not YAML: {error.problem}')
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            self._add(1, f'not YAML: {error}')
        else:
            if self.root is None:
                self._add(1, 'is empty')

    def fault(self, node: yaml.Node, text: str) -> None:
        """Add a fault at the line of a node."""
        self._add(node.start_mark.line + 1, text)

    def _add(self, line: int, text: str) -> None:
        fault = Fault(self.path, line, text)
        # A part that several specs share by an anchor is read several times.
        if fault not in self.faults:
            self.faults.append(fault)

    def items(self, node: yaml.Node, what: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """
        Yield key, its node and the node of its value, of a mapping; with merged keys (``<<``).

        A node that is no mapping, and a key that is there twice, are faults.

        Args:
            node: of the mapping.
            what: its name in faults.
        """
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f'{what}: {_shown(node)} is not a mapping')
            return
        own: dict[str, int] = {}
        for key, _ in node.value:
            if key.value in own:
                self.fault(key, f'{what}: {key.value!r} is there twice; first in line '
                                f'{own[key.value] + 1}')
            elif isinstance(key, yaml.ScalarNode):
                own[key.value] = key.start_mark.line
        try:
            self._loader.flatten_mapping(node)
        except yaml.MarkedYAMLError as error:
            self.fault(node, f'{what}: {error.problem}')
            return
        # The last of equal keys counts, which are those of the mapping itself.
        found = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.fault(key, f'{what}: {_shown(key)} is not a name')
                continue
            found[str(key.value)] = key, value
        for name, (key, value) in found.items():
            yield name, key, value

    def value(self, node: yaml.Node) -> Any:
        """Return what a node means; a fault and None if it cannot be made."""
        try:
            return self._loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.fault(node, f'{_shown(node)} cannot be read: {error}')
            return None


def _shown(node: yaml.Node) -> str:
    """Return a short text for a node."""
    if isinstance(node, yaml.ScalarNode):
        return repr(str(node.value)[:60])
    return 'a list' if isinstance(node, yaml.SequenceNode) else 'a mapping'
