"""Reads files of specs, and names every fault with its line."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, SettingError, build, select, settings_of, suggestion
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import is_world
from vdl_ros.experiments.spec import (
    MetaConfig,
    ReferenceConfig,
    Search,
    SearchConfig,
    Space,
    Spec,
    agent_settings,
    listed_agent_settings,
    make_space,
)
from vdl_ros.recipes import config_file
from vdl_ros.recipes.agents_file import AgentsFile, agents_of_world, check_bodies
from vdl_ros.recipes.yaml_file import Fault, Where, YamlFile
from vdl_ros.rl.settings import (
    TrainConfig,
    make_algorithm_config,
    reject_other_algorithm_settings,
    verify,
)

_NAME = re.compile(r'\w[\w .+-]{0,99}')
_PARTS = ('agent', 'env', 'description', 'body', 'meta', 'reference', 'search')


def find_files(paths: Iterable[Path]) -> list[Path]:
    return [each for path in paths
            for each in (sorted(path.glob('*.yaml')) if path.is_dir() else [path])]


def read_specs(path: Path) -> tuple[dict[str, Spec], list[Fault]]:
    """Return the specs of a file that have no fault, by name, and all faults of the file."""
    file = YamlFile(path)
    specs = {}
    for name, content in file.mapping((), file.content).items():
        before = len(file.faults)
        if not _NAME.fullmatch(name):
            file.fault((name,), 'is not the name of a folder: letters, digits and _ - + . space')
        spec = _SpecReader(file, name, content).read()
        if len(file.faults) == before:
            specs[name] = spec
    return specs, sorted(file.faults, key=lambda fault: fault.line)


class _SpecReader:
    """Reads one spec, and adds what is wrong to the faults of its file."""

    def __init__(self, file: YamlFile, name: str, content: object) -> None:
        self._file, self._name = file, name
        self._content = self._keys((), content, _PARTS)
        # The first value of each setting that is searched, where it is.
        self._searched: dict[str, tuple[Where, Any]] = {}

    def read(self) -> Spec:
        for part in ('agent', 'env'):
            if part not in self._content:
                self._file.fault((self._name, part), 'is missing')
        meta = build(MetaConfig, self._settings('meta', MetaConfig))
        reference = None
        if 'reference' in self._content:
            reference = build(ReferenceConfig, self._settings('reference', ReferenceConfig))
            if reference.standard_return <= reference.random_return:
                self._file.fault(
                    (self._name, 'reference', 'standard_return'),
                    f'{reference.standard_return:g} is not allowed: above random_return, '
                    f'{reference.random_return:g}')
        search = self._search(meta) if 'search' in self._content else None
        settings, agents = self._population()
        if agents is None:
            self._verify((self._name, 'agent'), settings, search)
        else:
            for number, (where, _) in enumerate(self._listed('agent')):
                self._verify(where, agents.given(number), search)
        return Spec(self._file.path, self._name, str(self._content.get('description', '')),
                    settings, agents, meta, reference, search, self._content)

    def _keys(self, where: Where, content: object, allowed: Iterable[str]) -> dict[str, Any]:
        where = (self._name, *where)
        found = self._file.mapping(where, content)
        for key in found.keys() - set(allowed):
            self._file.fault((*where, key), f'no such setting{suggestion(key, allowed)}')
        return {key: value for key, value in found.items() if key in allowed}

    def _settings(self, part: str, *classes: type) -> dict[str, Scalar]:
        return self._file.settings(
            (self._name, part), self._content.get(part, {}), settings_of(*classes))

    def _listed(self, part: str) -> list[tuple[Where, Any]]:
        """Return agents or environments, of which there may be one without a list."""
        content = self._content.get(part, {})
        if not isinstance(content, list):
            return [((self._name, part), content)] if part in self._content else []
        return [((self._name, part, str(number)), each) for number, each in enumerate(content)]

    def _population(self) -> tuple[dict[str, Scalar], AgentsFile | None]:
        before = len(self._file.faults)
        several = any(isinstance(self._content.get(part), list) for part in ('agent', 'env'))
        known = listed_agent_settings() if several else agent_settings()
        agents = [self._file.settings(where, each, known, ('algorithm',))
                  for where, each in self._listed('agent')]
        envs = [self._file.settings(where, each, settings_of(EnvConfig), ('env_id',))
                for where, each in self._listed('env')]
        body = self._keys(('body',), self._content.get('body', {}), ('product', 'num'))
        product, num = body.get('product', 'outer'), body.get('num', 1)
        where = (self._name, 'body')
        if several:
            return {}, None if len(self._file.faults) > before else self._file.attempt(
                where, _make_agents, agents, envs, product, num)
        settings = {name: value for each in (*agents, *envs) for name, value in each.items()}
        if 'body' not in self._content or (
                found := self._file.attempt(where, bodies, product, num)) is None:
            return settings, None
        if is_world(str(settings.get('env_id'))):
            self._file.attempt(where, _check_world, settings, [len(found)])
            return settings, None
        if settings.get('num_envs', len(found)) != len(found):
            self._file.fault(where, f'{len(found)} bodies contradict env.num_envs, '
                             f'{settings["num_envs"]}: say one of them')
        return settings | {'num_envs': len(found)}, None

    def _search(self, meta: MetaConfig) -> Search:
        where = (self._name, 'search')
        own = settings_of(SearchConfig)
        content = self._keys(('search',), self._content['search'], (*own, 'agent', 'env'))
        config = build(SearchConfig, self._file.settings(
            where, {name: value for name, value in content.items() if name in own}, own))
        spaces: dict[str, Space] = {}
        for part, known in (('agent', agent_settings()), ('env', settings_of(EnvConfig))):
            for name, each in self._file.mapping((*where, part), content.get(part, {})).items():
                at = (*where, part, name)
                if name not in known:
                    self._file.fault(at, f'no such setting{suggestion(name, known)}')
                elif name in ('algorithm', 'env_id'):
                    self._file.fault(at, 'cannot be searched; write a spec for each')
                elif made := self._file.attempt(at, make_space, known[name], each):
                    spaces[name] = made
                    self._searched[name] = at, each
        search = Search(config, spaces)
        for text in _contradictions(search, meta):
            self._file.fault(where, text)
        return search

    def _verify(self, where: Where, settings: Mapping[str, Scalar], search: Search | None) -> None:
        """Check settings of an agent against each other, with those of presets."""
        algorithm = settings.get('algorithm')
        if algorithm is None or 'env_id' not in settings:
            return
        before = len(self._file.faults)
        given = {name: ((*where, name), value) for name, value in settings.items()}
        for name, (at, value) in (given | self._searched).items():
            self._file.attempt(at, reject_other_algorithm_settings, {name: value}, algorithm)
        # Of a space of choices the first stands for all; a trial whose values contradict each
        # other fails by itself.
        first = {name: space.values[0] for name, space in search.spaces.items()
                 if space.kind == 'choices'} if search else {}
        if len(self._file.faults) == before:
            self._file.attempt(where, _verify_settings, {**settings, **first})


def _verify_settings(given: Mapping[str, Scalar]) -> None:
    values = config_file.resolve(given)
    select(EnvConfig, values)
    train = select(TrainConfig, values)
    verify(train, make_algorithm_config(train, values))


def _contradictions(search: Search, meta: MetaConfig) -> Iterable[str]:
    sampler = search.config.sampler
    if not search.spaces:
        yield 'there is no space: agent or env with what is searched'
        return
    if not meta.trials and sampler != 'grid':
        yield f'a search by {sampler} needs a budget: meta.trials is missing'
    if sampler == 'grid' and not search.grid_size:
        yield 'a grid needs choices, not ranges: [value, value]'


#: How the bodies of a spec are given, as in SLM-Lab: ``num`` of each agent in each environment,
#: of agent i in environment i, or a list of them.
PRODUCTS = ('outer', 'inner', 'custom')
_MAX_BODIES = 4096


def bodies(
    product: object, num: Any, agents: int = 1, envs: int = 1,
) -> list[tuple[int, int, int]]:
    """Return the coordinates of all bodies, each number from 0.

    ``num`` counts the bodies of an agent in an environment, or lists the coordinates of
    ``custom``.
    """
    if product not in PRODUCTS:
        raise SettingError(f'product: {quoted(product)} is not allowed: one of '
                           f'{", ".join(PRODUCTS)}')
    if product == 'custom':
        return check_bodies(num, agents, envs, 'num')
    if type(num) is not int or not 1 <= num <= _MAX_BODIES:
        raise SettingError(f'num: {quoted(num)} is not allowed with product {product}: a whole '
                           f'number from 1 to {_MAX_BODIES}')
    if product == 'inner' and agents != envs:
        raise SettingError(f'product: inner is not allowed with {agents} agents and {envs} '
                           'environments: as many agents as environments')
    pairs = [(agent, agent) for agent in range(agents)] if product == 'inner' else [
        (agent, env) for agent in range(agents) for env in range(envs)]
    return [(*pair, body) for pair in pairs for body in range(num)]


def _make_agents(
    agents: Sequence[Mapping[str, Any]], envs: Sequence[Mapping[str, Any]], product: object,
    num: object,
) -> AgentsFile:
    """Return agents, environments and bodies; a ValueError if they contradict each other."""
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
            _check_world(env, [found.count(agent, number) for agent in found.agents_in(number)])
    return found


def _check_world(env: Mapping[str, object], counts: Sequence[int]) -> None:
    """Raise a ValueError unless agents with so many bodies fill a world."""
    agents_of_world(str(env['env_id']), factory.bodies(select(EnvConfig, env)), counts)
