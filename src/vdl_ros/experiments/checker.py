"""YAML with line numbers: mappings of nodes, and faults that name file and line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from vdl_ros.common.settings import (
    Scalar,
    Setting,
    SettingError,
    build,
    select,
    settings_of,
    suggestion,
)
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import is_world
from vdl_ros.experiments.population import bodies, check_world, make_agents
from vdl_ros.experiments.spec import (
    LISTED_AGENT,
    SUFFIXES,
    Choices,
    MetaConfig,
    ReferenceConfig,
    Search,
    SearchConfig,
    Space,
    Spec,
    agent_settings,
    env_settings,
    listed_agent_settings,
    make_space,
    split_key,
)
from vdl_ros.recipes import config_file
from vdl_ros.recipes.agents_file import AgentsFile
from vdl_ros.recipes.config_file import setting_value
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    TrainConfig,
    make_algorithm_config,
    reject_other_algorithm_settings,
    verify,
)

__all__ = ['Fault', 'PARTS', 'YamlFile', 'find_files', 'read_specs']


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
    """A YAML file as nodes.

    Attributes:
        root: node of its content; None if it is empty or not YAML.
    """

    def __init__(self, path: Path) -> None:
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
        """Yield key, its node and the node of its value, of a mapping; with merged keys (``<<``).

        A node that is no mapping, and a key that is there twice, are faults.
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
        settings, agents = self._population()
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
        self._verify_all(settings, agents, search)
        content = self.file.value(node)
        if meta is None or not isinstance(content, dict) or (
                agents is None and 'env_id' not in settings):
            return None
        return Spec(self.file.path, self.name, str(description), settings, agents, meta,
                    reference, search, content)

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
        self, part: str, node: yaml.Node | None, known: Mapping[str, Setting],
        needed: Collection[str] = (), also: Collection[str] = (),
    ) -> dict[str, Scalar]:
        """Return the settings at a node by name, and what it has of ``also`` as it is."""
        if node is None:
            return {}
        found = {}
        for name, each in self._parts(node, (*known, *also), f'.{part}').items():
            content = self.file.value(each)
            if name in also:
                found[name] = content
                continue
            value = self._try(each, f'{part}.', setting_value, known[name], content)
            if value is not None:
                found[name] = value
        for name in needed:
            if isinstance(node, yaml.MappingNode) and f'.{part}.{name}' not in self.lines:
                self.file.fault(node, f'{self.name}.{part}.{name} is missing')
        return found

    def _population(self) -> tuple[dict[str, Scalar], AgentsFile | None]:
        """Return the settings of agent and environment, or those of several."""
        agent, env = (self.nodes.get(part) for part in _NEEDED)
        if not any(isinstance(each, yaml.SequenceNode) for each in (agent, env)):
            settings = self._settings('agent', agent, agent_settings(), ('algorithm',)) \
                | self._settings('env', env, env_settings(), ('env_id',))
            return settings | self._bodies(settings), None
        agents = [self._settings(part, node, listed_agent_settings(), ('algorithm',), LISTED_AGENT)
                  for part, node in _listed('agent', agent)]
        envs = [self._settings(part, node, env_settings(), ('env_id',))
                for part, node in _listed('env', env)]
        if not all(agents) or not all('env_id' in each for each in envs):
            return {}, None
        return {}, self._try(self._body_node(), 'body.', make_agents, agents, envs,
                             *self._body_values())

    def _body_node(self) -> yaml.Node:
        return self.nodes.get('body', self.key)

    def _body_values(self) -> tuple[object, object]:
        """Return product and number of bodies."""
        if 'body' not in self.nodes:
            return 'outer', 1
        parts = self._parts(self.nodes['body'], ('product', 'num'), '.body')
        values = {name: self.file.value(each) for name, each in parts.items()}
        return values.get('product', 'outer'), values.get('num', 1)

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
        values = self._settings(part, self.nodes.get(part), settings_of(cls))
        return build(cls, values)

    def _bodies(self, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the number of bodies as ``num_envs``, if the spec has bodies."""
        if 'body' not in self.nodes:
            return {}
        node = self.nodes['body']
        found = self._try(node, 'body.', bodies, *self._body_values())
        if found is None:
            return {}
        if is_world(str(settings.get('env_id'))):
            self._try(node, 'body.', check_world, settings, [len(found)])
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

    def _verify_all(
        self, settings: Mapping[str, Scalar], agents: AgentsFile | None, search: Search | None,
    ) -> None:
        """Check the settings of each agent against each other."""
        if agents is None:
            self._verify(settings, search)
            return
        nodes = dict(enumerate(node for _, node in _listed('agent', self.nodes['agent'])))
        for number, each in enumerate(agents.agents.values()):
            learning = {name: value for name, value in each.items() if name != 'init'}
            where = f'.agent.{number}' if len(nodes) > 1 else '.agent'
            self._verify({**learning, **agents.envs[agents.envs_of(number)[0]]}, search,
                         nodes[number], where)

    def _verify(self, settings: Mapping[str, Scalar], search: Search | None,
                node: yaml.Node | None = None, where: str = '.agent') -> None:
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
                             if key.startswith((where, '.search.'))
                             and name in (split_key(last := key.rpartition('.')[2])[0], last)),
                            self.key)
                self.file.fault(line, f'{self.name}: {name} is of algorithm {owner}, and '
                                f'algorithm is {algorithm}')
        if not is_own:
            return

        def verify_all() -> None:
            # Of a space of choices the first stands for all; a trial whose values contradict
            # each other fails by itself.
            first = {name: space.values[0] for name, space in searched.items()
                     if isinstance(space, Choices)}
            values = config_file.resolve({**settings, **first})
            select(EnvConfig, values)
            train = select(TrainConfig, values)
            verify(train, make_algorithm_config(train, values))
        self._try(node or self.nodes['agent'], '', verify_all)


def _listed(part: str, node: yaml.Node | None) -> list[tuple[str, yaml.Node | None]]:
    """Return the nodes of agents or environments, of which there may be one without a list."""
    if not isinstance(node, yaml.SequenceNode):
        return [(part, node)]
    return [(f'{part}.{number}', each) for number, each in enumerate(node.value)]


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
