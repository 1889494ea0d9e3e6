"""Reads files of specs and finds all their faults, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from vdl_ros import presets
from vdl_ros.common.settings import (
    Scalar,
    Setting,
    SettingError,
    build,
    select,
    settings_of,
    suggestion,
)
from vdl_ros.config_file import setting_value
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.experiments.specs.bodies import bodies
from vdl_ros.experiments.specs.spaces import SUFFIXES, Choices, Space, make_space, split_key
from vdl_ros.experiments.specs.spec import Search, Spec, agent_settings, env_settings
from vdl_ros.experiments.specs.spec_config import MetaConfig, ReferenceConfig, SearchConfig
from vdl_ros.experiments.specs.yaml_nodes import Fault, YamlFile
from vdl_ros.rl.algorithm_config import (
    ALGORITHM_SETTINGS,
    make_algorithm_config,
    reject_other_algorithm_settings,
    verify,
)
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['PARTS', 'find_files', 'read_specs']

T = TypeVar('T')

#: Parts of a spec; those that it must have come first.
PARTS = ('agent', 'env', 'description', 'body', 'meta', 'reference', 'search')
_NEEDED = PARTS[:2]


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return files as they are, and of folders their files ``*.yaml`` by name."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob('*.yaml')) if path.is_dir() else [path]
    return found


def read_specs(path: Path) -> tuple[dict[str, Spec], list[Fault]]:
    """Return the specs of a file that have no fault, by name, and all faults of the file."""
    file = YamlFile(path)
    specs = {}
    if file.root is not None:
        for name, key, node in file.items(file.root, 'the file'):
            before = len(file.faults)
            spec = _SpecReader(file, name, key).read(node)
            if spec is not None and len(file.faults) == before:
                specs[name] = spec
    return specs, sorted(file.faults, key=lambda fault: fault.line)


class _SpecReader:
    """Reads one spec, and adds what is wrong to the faults of its file."""

    def __init__(self, file: YamlFile, name: str, key: yaml.Node) -> None:
        """Read the spec ``name``, whose name is at ``key``."""
        self.file, self.name, self.key = file, name, key
        self.nodes: dict[str, yaml.Node] = {}
        self.lines: dict[str, yaml.Node] = {}

    def read(self, node: yaml.Node) -> Spec | None:
        """Return the spec; what it has if there are faults, None if nothing can be read."""
        self.nodes = self._parts(node, PARTS)
        if not isinstance(node, yaml.MappingNode):
            return None
        for part in _NEEDED:
            if part not in self.nodes:
                self.file.fault(self.key, f'{self.name}: {part} is missing')
        settings = self._settings('agent', agent_settings(), ('algorithm',)) | self._settings(
            'env', env_settings(), ('env_id',))
        settings |= self._bodies(settings)
        description = self.file.value(self.nodes['description']) \
            if 'description' in self.nodes else ''
        if not isinstance(description, str):
            self.file.fault(self.nodes['description'], f'{self.name}.description: not a text')
        meta = self._config('meta', MetaConfig)
        reference = self._config('reference', ReferenceConfig) \
            if 'reference' in self.nodes else None
        if reference and reference.standard_return <= reference.random_return:
            self.file.fault(self.nodes['reference'], f'{self.name}.reference: standard_return '
                            f'{reference.standard_return:g} is not allowed: above '
                            f'random_return, {reference.random_return:g}')
        search = self._search(meta)
        self._verify(settings, search)
        content = self.file.value(node)
        if meta is None or 'env_id' not in settings or not isinstance(content, dict):
            return None
        return Spec(self.file.path, self.name, str(description), settings, meta, reference,
                    search, content)

    def _parts(self, node: yaml.Node, allowed: Collection[str], where: str = '',
               also: Callable[[str], bool] = lambda key: False) -> dict[str, yaml.Node]:
        """Return the nodes of a mapping by key; a key that is not allowed is a fault."""
        path = f'{self.name}{where}'
        found = {}
        for key, key_node, value in self.file.items(node, path):
            if key in allowed or also(key):
                found[key] = value
                self.lines[f'{where}.{key}'] = key_node
            else:
                self.file.fault(key_node, f'{path}.{key}: no such setting'
                                f'{suggestion(key, allowed)}')
        return found

    def _settings(
        self, part: str, known: Mapping[str, Setting], needed: Collection[str],
    ) -> dict[str, Scalar]:
        """Return the settings of a part by name."""
        if part not in self.nodes:
            return {}
        found = {}
        for name, node in self._parts(self.nodes[part], known, f'.{part}').items():
            value = self._try(node, f'{part}.', setting_value, known[name], self.file.value(node))
            if value is not None:
                found[name] = value
        for name in needed:
            if isinstance(self.nodes[part], yaml.MappingNode) and f'.{part}.{name}' not in \
                    self.lines:
                self.file.fault(self.nodes[part], f'{self.name}.{part}.{name} is missing')
        return found

    def _try(
        self, node: yaml.Node, part: str, make: Callable[..., T], *arguments: object,
    ) -> T | None:
        """Return what ``make`` makes; None and a fault if the settings do not allow it."""
        try:
            return make(*arguments)
        except ValueError as error:
            self.file.fault(node, f'{self.name}.{part}{error}')
            return None

    def _config(self, part: str, cls: type[T]) -> T | None:
        """Return the dataclass of a part; None if it has a fault."""
        values = self._settings(part, settings_of(cls), ())
        return build(cls, values)

    def _bodies(self, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the number of bodies as ``num_envs``, if the spec has bodies."""
        if 'body' not in self.nodes:
            return {}
        node = self.nodes['body']
        parts = self._parts(node, ('product', 'num'), '.body')
        values = {name: self.file.value(each) for name, each in parts.items()}
        found = self._try(
            node, 'body.', bodies, values.get('product', 'outer'), values.get('num', 1))
        if found is None:
            return {}
        if settings.get('num_envs', len(found)) != len(found):
            self.file.fault(node, f'{self.name}.body: {len(found)} bodies contradict '
                            f'env.num_envs, {settings["num_envs"]}: say one of them')
        return {'num_envs': len(found)}

    def _search(self, meta: MetaConfig | None) -> Search | None:
        """Return what is searched, if the spec says that."""
        if 'search' not in self.nodes:
            return None
        node = self.nodes['search']
        own = settings_of(SearchConfig)
        parts = self._parts(node, (*own, 'agent', 'env'), '.search')
        values: dict[str, Any] = {}
        for name in own:
            if name in parts and (value := self._try(
                    parts[name], 'search.', setting_value, own[name],
                    self.file.value(parts[name]))) is not None:
                values[name] = value
        spaces: dict[str, Space] = {}
        for part, known in (('agent', agent_settings()), ('env', env_settings())):
            if part in parts:
                self._spaces(part, parts[part], known, spaces)
        search = Search(build(SearchConfig, values), spaces)
        for text in _faults(search, meta):
            self.file.fault(self.lines.get('.search.sampler', node), f'{self.name}.search: {text}')
        return search

    def _spaces(
        self, part: str, node: yaml.Node, known: Mapping[str, Setting],
        spaces: dict[str, Space],
    ) -> None:
        """Add the spaces of a part of the search."""
        def has_form(key: str) -> bool:
            name, suffix = split_key(key)
            return name in known and suffix in SUFFIXES

        where = f'.search.{part}'
        for key, value in self._parts(node, known, where, has_form).items():
            name, suffix = (key, '') if key in known else split_key(key)
            line = self.lines[f'{where}.{key}']
            path = f'search.{part}.'
            if name in ('algorithm', 'env_id'):
                self.file.fault(line, f'{self.name}.{path}{name}: cannot be searched; write a '
                                'spec for each')
            elif name in spaces:
                self.file.fault(line, f'{self.name}.{path}{name}: has two spaces')
            else:
                made = self._try(value, path, make_space, known[name], suffix,
                                 self.file.value(value))
                if made is not None:
                    spaces[name] = made

    def _verify(self, settings: Mapping[str, Scalar], search: Search | None) -> None:
        """Check settings against each other, with those of presets."""
        algorithm = settings.get('algorithm')
        if not isinstance(algorithm, str) or 'env_id' not in settings:
            return
        searched = search.spaces if search else {}
        is_own = True
        for name in (*settings, *searched):
            try:
                reject_other_algorithm_settings({name: settings.get(name, '')}, algorithm)
            except SettingError:
                is_own = False
                owner = next(each for each, cls in ALGORITHM_SETTINGS.items()
                             if name in settings_of(cls))
                line = next((node for key, node in self.lines.items()
                             if split_key(key.rpartition('.')[2])[0] == name
                             or key.rpartition('.')[2] == name), self.key)
                self.file.fault(line, f'{self.name}: {name} is of algorithm {owner}, and '
                                f'algorithm is {algorithm}')
        if not is_own:
            return

        def verify_all() -> None:
            # Of a space of choices the first stands for all; a trial whose values contradict
            # each other fails by itself.
            first = {name: space.values[0] for name, space in searched.items()
                     if isinstance(space, Choices)}
            values = presets.resolve({**settings, **first})
            select(EnvConfig, values)
            train = select(TrainConfig, values)
            verify(train, make_algorithm_config(train, values))
        self._try(self.nodes['agent'], '', verify_all)


def _faults(search: Search, meta: MetaConfig | None) -> Iterable[str]:
    """Yield what contradicts a search as a whole."""
    sampler = search.config.sampler
    if not search.spaces:
        yield 'there is no space: agent or env with what is searched'
        return
    if meta is not None and not meta.trials and sampler != 'grid':
        yield f'a search by {sampler} needs a budget: meta.trials is missing'
    if sampler == 'grid' and not search.grid_size:
        yield 'a grid needs choices, not ranges: [value, value]'
    numbers = sum(not isinstance(each, Choices) for each in search.spaces.values())
    if sampler == 'cmaes' and numbers < 2:
        yield 'cmaes needs at least two spaces that are ranges or normal distributions'
