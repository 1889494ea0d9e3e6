"""Specs: what is trained, sessions, trials, spaces that are searched, references."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, Setting, SettingError, setting, settings_of
from vdl_ros.envs.worlds import is_world
from vdl_ros.recipes import config_file
from vdl_ros.recipes.agents_file import INIT, AgentsFile
from vdl_ros.recipes.yaml_file import setting_value
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig

if TYPE_CHECKING:
    from optuna.trial import Trial

#: Parts of a trial's fitness.
PARTS = ('strength', 'speed', 'stability', 'consistency')
#: Episodes of the moving mean.
WINDOW = 100


@dataclass(frozen=True)
class MetaConfig:
    """Settings of the part ``meta`` of a spec."""

    sessions: int = setting(
        4, 'Trainings of a trial, with different seeds.', minimum=1, maximum=1000)
    trials: int = setting(
        0, 'Trials of a search; 0: all of a grid, only with sampler grid.', minimum=0,
        maximum=1_000_000)
    seed: int = setting(
        1, 'Seed of the search and of the first session; each further session adds 1.', minimum=0,
        maximum=2**31 - 1001)


@dataclass(frozen=True)
class SearchConfig:
    """Settings of the part ``search`` of a spec, beside its spaces."""

    sampler: str = setting(
        'tpe', 'All of a grid, random, or tree-structured Parzen estimator.',
        choices=('grid', 'random', 'tpe'))
    pruner: str = setting(
        'none', 'median: end a trial below the median return of earlier ones at the same place '
        'of the same session.', choices=('none', 'median'))
    startup_trials: int = setting(
        5, 'Trials before tpe and median have an effect.', minimum=1, maximum=1_000_000)


@dataclass(frozen=True)
class ReferenceConfig:
    """Settings of the part ``reference`` of a spec: what fitness is measured by."""

    random_return: float = setting(0.0, 'Mean return of random actions.')
    standard_return: float = setting(
        1.0, 'Return at which the environment counts as solved; above random_return.')
    standard_steps: int = setting(
        100_000, 'Steps in which a standard agent reaches standard_return.', minimum=1,
        maximum=1_000_000_000_000, unit='steps')


_FORMS = 'a list of values, {low, high, log}, or {mean, deviation}'
_ONE_VALUE = 'a space has several; a single value belongs to agent or env'


@dataclass(frozen=True)
class Space:
    """What is searched of a setting.

    ``values`` are of ``choices`` at least two; of a ``range`` low and high, evenly in the
    logarithm with ``log``; of ``normal``, which is cut off where the setting ends, mean and
    deviation.
    """

    setting: Setting
    kind: str
    values: tuple[Any, ...]
    log: bool = False

    @property
    def parameter(self) -> str:
        return f'{self.setting.name} (quantile)' if self.kind == 'normal' else self.setting.name

    def __contains__(self, value: Any) -> bool:
        if self.kind == 'choices':
            return value in self.values
        return self.kind == 'range' and bool(self.values[0] <= value <= self.values[1])

    def draw(self, trial: 'Trial') -> None:
        if self.kind == 'choices':
            trial.suggest_categorical(self.parameter, self.values)
        elif self.kind == 'normal':
            trial.suggest_float(self.parameter, 0.0, 1.0)
        elif self.setting.type is int:
            trial.suggest_int(self.parameter, *map(int, self.values), log=self.log)
        else:
            trial.suggest_float(self.parameter, *self.values, log=self.log)

    def value(self, drawn: Any) -> Scalar:
        if self.kind == 'choices' and drawn not in self.values:
            # The study may be somebody else's.
            raise SettingError(f'{self.setting.name}: {quoted(drawn)} is not in the space')
        if self.kind != 'normal':
            return drawn  # type: ignore[no-any-return]
        # The normal distribution has no value at 0 and 1.
        number = statistics.NormalDist(*self.values).inv_cdf(min(max(drawn, 1e-9), 1 - 1e-9))
        low, high = self.setting.minimum, self.setting.maximum
        number = number if low is None else max(number, low)
        number = number if high is None else min(number, high)
        return round(number) if self.setting.type is int else number


def make_space(setting: Setting, content: Any) -> Space:
    name = setting.name
    if isinstance(content, list):
        return _choices(setting, content)
    keys = set(content) if isinstance(content, dict) else set()
    is_range = {'low', 'high'} <= keys <= {'low', 'high', 'log'}
    if not is_range and keys != {'mean', 'deviation'}:
        raise SettingError(f'{name}: {quoted(content)} is not a space: {_FORMS}')
    if setting.type not in (int, float):
        raise SettingError(f'{name}: {quoted(content)} is not allowed, as it is not a number: a '
                           'list of values')
    if not is_range:
        return _normal(setting, content['mean'], content['deviation'])
    low, high = (setting_value(setting, content[each]) for each in ('low', 'high'))
    log = content.get('log', False)
    if type(log) is not bool:
        raise SettingError(f'{name}: log: {quoted(log)} is not allowed: true or false')
    if low == high:
        raise SettingError(f'{name}: from {low} to {high} is one value: {_ONE_VALUE}')
    if low > high:  # type: ignore[operator]
        raise SettingError(f'{name}: from {low} to {high} is not allowed: low is above high')
    if log and low <= 0:  # type: ignore[operator]
        raise SettingError(f'{name}: low {low} is not allowed with log: above 0')
    return Space(setting, 'range', (low, high), log)


def _choices(setting: Setting, content: Sequence[object]) -> Space:
    values = tuple(dict.fromkeys(setting_value(setting, each) for each in content))
    if len(values) < 2:
        raise SettingError(f'{setting.name}: {quoted(content)} has one value: {_ONE_VALUE}')
    if len(values) < len(content):
        raise SettingError(f'{setting.name}: {quoted(content)} has a value twice')
    return Space(setting, 'choices', values)


def _normal(setting: Setting, mean: Any, deviation: Any) -> Space:
    try:
        values = float(mean), float(deviation)
    except (TypeError, ValueError):
        raise SettingError(f'{setting.name}: {quoted([mean, deviation])} is not allowed: two '
                           'numbers') from None
    if not 0 < values[1] < math.inf:
        raise SettingError(f'{setting.name}: deviation {deviation} is not allowed: above 0, or '
                           'there would be one value')
    setting.check(round(values[0]) if setting.type is int else values[0])
    return Space(setting, 'normal', values)


# Set by the experiment, or not of a training that learns.
_NOT_IN_SPECS = ('seed', 'record_episodes', 'freeze', 'init_encoder', 'inference')


def agent_settings() -> dict[str, Setting]:
    found = settings_of(TrainConfig, *ALGORITHM_SETTINGS.values())
    return {name: each for name, each in found.items() if name not in _NOT_IN_SPECS}


def listed_agent_settings() -> dict[str, Setting]:
    """Return the settings of one of several agents: it may also be a fixed opponent."""
    own = settings_of(TrainConfig)
    return agent_settings() | {
        'freeze': own['freeze'], INIT.name: INIT, 'init_encoder': own['init_encoder'],
        'name': Setting('name', str, '', 'Name of the agent and of the folder of its run.')}


@dataclasses.dataclass(frozen=True)
class Search:
    """What a spec searches: spaces by setting, in its order."""

    config: SearchConfig
    spaces: Mapping[str, Space]

    @property
    def grid_size(self) -> int:
        """Number of combinations; 0 if a space is not of choices."""
        return math.prod(len(each.values) if each.kind == 'choices' else 0
                         for each in self.spaces.values())


@dataclasses.dataclass(frozen=True)
class Spec:
    """One spec.

    Attributes:
        settings: of agent and environment as the spec gives them, by name; what it does not give
            comes from presets and defaults. {} if the spec lists agents or environments.
        agents: agents, environments and bodies of a spec that lists them, else None.
        reference: what fitness is measured by; None: the table of references has it, or not.
        content: the spec as it was read, to copy it.
    """

    path: Path
    name: str
    description: str
    settings: Mapping[str, Scalar]
    agents: AgentsFile | None
    meta: MetaConfig
    reference: ReferenceConfig | None
    search: Search | None
    content: Mapping[str, Any]

    @property
    def env_id(self) -> str:
        """Id of the environment; '' if there are several, or several agents in one world."""
        if self.agents is None:
            return str(self.settings['env_id'])
        env_ids = [str(each['env_id']) for each in self.agents.envs]
        return env_ids[0] if len(env_ids) == 1 and not is_world(env_ids[0]) else ''

    @property
    def subject(self) -> str:
        """What is trained where, in words."""
        if self.agents is None:
            return f'{self.settings["algorithm"]} in {self.env_id}'
        names = ', '.join(f'{name} ({each["algorithm"]})'
                          for name, each in self.agents.agents.items())
        return f'{names} in {", ".join(str(each["env_id"]) for each in self.agents.envs)}'

    @property
    def num_trials(self) -> int:
        if self.search is None:
            return 1
        if self.search.config.sampler == 'grid':
            return min(self.meta.trials or self.search.grid_size, self.search.grid_size)
        return self.meta.trials

    def preset_values(self) -> dict[str, Scalar]:
        """Return the searched settings' values without a search, those in their spaces."""
        if self.search is None or self.agents is not None:
            return {}
        resolved = config_file.resolve(self.settings)
        values = {name: space.setting.check(resolved.get(name, space.setting.default))
                  for name, space in self.search.spaces.items()}
        return {name: value for name, value in values.items() if value in self.search.spaces[name]}

    def with_meta(self, **values: int) -> 'Spec':
        return dataclasses.replace(self, meta=dataclasses.replace(self.meta, **values))
