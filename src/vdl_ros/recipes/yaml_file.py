"""YAML files that people write: plain content, and faults that name file, line, value and more."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from gymnasium.error import DependencyNotInstalled

from vdl_ros.common.plain_yaml import YamlError, read_yaml
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.common.settings import Scalar, Setting, SettingError, current_name, suggestion

T = TypeVar('T')
#: Keys and numbers from the root to a value.
Where = tuple[str, ...]
# Lines are kept of values that are not deeper.
_DEPTH = 6
# Of packages that are not installed.
_MISSING = (ModuleNotFoundError, DependencyNotInstalled)


def setting_value(setting: Setting, value: object) -> Scalar:
    """Return a value of YAML as the setting has it; YAML reads 1e-3 as text."""
    if isinstance(value, str):
        return setting.parse(value)
    if setting.name == 'env_modules' and isinstance(value, list):
        value = ','.join(map(str, value))
    elif setting.name in ('env_kwargs', 'env_wrappers') and isinstance(value, dict | list):
        value = json.dumps(value)
    return setting.check(value)


class Fault(NamedTuple):
    """What is wrong at a line of a file, counted from 1; 0: the whole file.

    ``is_of_host``: the file may be right, but a package that it needs is not installed here.
    """

    path: Path
    line: int
    text: str
    is_of_host: bool = False

    def __str__(self) -> str:
        line = f':{self.line}' if self.line else ''
        return f'{self.path}{line}: {" ".join(self.text.split())}'


class YamlFile:
    """A YAML file whose faults are collected; ``content`` is {} if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: Any = {}
        self.faults: list[Fault] = []
        self._lines: dict[Where, int] = {}
        try:
            self.content = read_yaml(path, look=self._note_lines)
        except YamlError as error:
            self.faults.append(Fault(path, error.line, str(error)))

    def _note_lines(self, node: yaml.Node, where: Where = ()) -> None:
        """Keep the lines of keys and elements; a key that is there twice is a fault."""
        if len(where) >= _DEPTH:
            return
        if isinstance(node, yaml.SequenceNode):
            inside = [(str(number), each, each) for number, each in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            first: dict[Any, int] = {}
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    continue  # refused when it is read
                if key.value in first:
                    name = shown('.'.join((*where, key.value)), 200)
                    self.faults.append(Fault(
                        self.path, line,
                        f'{name}: is there twice; first in line {first[key.value]}'))
                else:
                    first[key.value] = line
            inside = [(str(key.value), key, each) for key, each in node.value]
        else:
            return
        for name, key, each in inside:
            at = (*where, current_name(name))
            self._lines[at] = key.start_mark.line + 1
            self._note_lines(each, at)

    def fault(self, where: Where, text: str, *, is_of_host: bool = False) -> None:
        """Add a fault at the line of a value, or of the nearest around it."""
        at = where
        while at and at not in self._lines:
            at = at[:-1]
        fault = Fault(self.path, self._lines.get(at, 1),
                      f'{shown(".".join(where), 200)}: {text}' if where else text, is_of_host)
        # Of several agents each is checked with the spaces of the search.
        if fault not in self.faults:
            self.faults.append(fault)

    def check(self, prefix: str = '') -> None:
        """Raise a SettingError, one line, of the first fault if there is one."""
        if self.faults:
            raise SettingError(f'{prefix}{min(self.faults, key=lambda fault: fault.line)}')

    def attempt(self, where: Where, make: Callable[..., T], *arguments: object) -> T | None:
        """Return what ``make`` makes; None and a fault if it raises ``NAME: reason``."""
        try:
            return make(*arguments)
        except ValueError as error:
            name, _, reason = str(error).partition(': ')
            is_named = where and where[-1] == name
            self.fault(where if is_named else (*where, name), reason,
                       is_of_host=isinstance(error.__cause__, _MISSING))
            return None

    def mapping(self, where: Where, content: object) -> dict[str, Any]:
        """Return a mapping with its keys as text; {} and a fault for anything else."""
        if isinstance(content, dict):
            return {current_name(str(name)): value for name, value in content.items()}
        self.fault(where, f'{quoted(content)} is not a mapping')
        return {}

    def settings(
        self, where: Where, content: object, known: Mapping[str, Setting],
        needed: Collection[str] = (),
    ) -> dict[str, Scalar]:
        """Return the settings in a mapping that are right; the others are faults."""
        found = {}
        given = self.mapping(where, content)
        for name, value in given.items():
            if name not in known:
                hint = ': it is the option --env_modules' if name == 'env_modules' else suggestion(
                    name, known)
                self.fault((*where, name), f'no such setting{hint}')
            elif (made := self.attempt(
                    (*where, name), setting_value, known[name], value)) is not None:
                found[name] = made
        for name in needed:
            if name not in given and isinstance(content, dict):
                self.fault((*where, name), 'is missing')
        return found
