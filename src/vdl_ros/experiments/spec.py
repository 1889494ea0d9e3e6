"""Settings of an experiment that are not of a training: sessions, trials, search, references."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, Setting, SettingError, setting, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import is_world
from vdl_ros.recipes import config_file
from vdl_ros.recipes.agents_file import AgentsFile
from vdl_ros.recipes.config_file import setting_value
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig

__all__ = ['Choices', 'LISTED_AGENT', 'MetaConfig', 'Normal', 'Range', 'ReferenceConfig',
           'SUFFIXES', 'Search', 'SearchConfig', 'Space', 'Spec', 'agent_settings', 'env_settings',
           'listed_agent_settings', 'make_space', 'split_key']


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
        'tpe', 'All of a grid, random, tree-structured Parzen estimator, or CMA-ES.',
        choices=('grid', 'random', 'tpe', 'cmaes'))
    pruner: str = setting(
        'none', 'median: end a trial below the median return of earlier ones at the same place '
        'of the same session.', choices=('none', 'median'))
    startup_trials: int = setting(
        5, 'Trials before tpe and median have an effect.', minimum=1, maximum=1_000_000)


@dataclass(frozen=True)
class ReferenceConfig:
    """Settings of the part ``reference`` of a spec: what fitness is measured by."""

    random_return: float = setting(
        0.0, 'Mean return of random actions.')
    standard_return: float = setting(
        1.0, 'Return at which the environment counts as solved; above random_return.')
    standard_steps: int = setting(
        100_000, 'Steps in which a standard agent reaches standard_return.', minimum=1,
        maximum=1_000_000_000_000, unit='steps')


if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


#: Forms of SLM-Lab, after the name of the setting and two underscores.
SUFFIXES = ('choice', 'grid_search', 'randint', 'uniform', 'normal')
_FORMS = 'a list of values, {low, high, log}, or {mean, deviation}'


@dataclasses.dataclass(frozen=True)
class Choices:
    """Some values of a setting, at least two."""

    setting: Setting
    values: tuple[Scalar, ...]

    def __contains__(self, value: object) -> bool:
        """Return whether it is one of the values."""
        return value in self.values

    def distribution(self) -> BaseDistribution:
        """Return what the sampler draws from."""
        from optuna.distributions import CategoricalDistribution
        return CategoricalDistribution(self.values)

    def value(self, drawn: Any) -> Scalar:
        """Return the value of the setting for what was drawn."""
        return drawn  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class Range:
    """All values of a number from ``low`` to ``high``, evenly, or evenly in their logarithm."""

    setting: Setting
    low: float
    high: float
    log: bool = False

    def __contains__(self, value: object) -> bool:
        """Return whether it is from ``low`` to ``high``."""
        return isinstance(value, int | float) and self.low <= value <= self.high

    def distribution(self) -> BaseDistribution:
        """Return what the sampler draws from."""
        from optuna.distributions import FloatDistribution, IntDistribution
        if self.setting.type is int:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def value(self, drawn: Any) -> Scalar:
        """Return the value of the setting for what was drawn."""
        return drawn  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class Normal:
    """A number of a normal distribution, cut off where the setting ends."""

    setting: Setting
    mean: float
    deviation: float

    def distribution(self) -> BaseDistribution:
        """Return what the sampler draws from: the quantile, since Optuna has no such."""
        from optuna.distributions import FloatDistribution
        return FloatDistribution(0.0, 1.0)

    def value(self, drawn: Any) -> Scalar:
        """Return the value of the setting for a quantile."""
        # The normal distribution has no value at 0 and 1.
        quantile = min(max(float(drawn), 1e-9), 1 - 1e-9)
        number = statistics.NormalDist(self.mean, self.deviation).inv_cdf(quantile)
        low, high = self.setting.minimum, self.setting.maximum
        number = number if low is None else max(number, low)
        number = number if high is None else min(number, high)
        return round(number) if self.setting.type is int else number


Space = Choices | Range | Normal


def split_key(key: str) -> tuple[str, str]:
    """Return the setting's name in a key, and the form of SLM-Lab behind it or ''."""
    name, _, suffix = key.rpartition('__')
    return (name, suffix) if name else (key, '')


def make_space(setting: Setting, suffix: str, content: object) -> Space:
    """Return the space of a setting.

    Args:
        suffix: one of :data:`SUFFIXES`, or '' for the form of this package.

    Raises:
        SettingError: an unknown form, a value that is not allowed, or a space with one value.
    """
    if suffix:
        return _SLM_LAB[suffix](setting, content)
    if isinstance(content, list):
        return _choices(setting, content)
    if isinstance(content, Mapping) and content.keys() >= {'low', 'high'} \
            and content.keys() <= {'low', 'high', 'log'}:
        log = content.get('log', False)
        if not isinstance(log, bool):
            raise SettingError(f'{setting.name}: log: {quoted(log)} is not allowed: true or false')
        return _range(setting, content['low'], content['high'], log)
    if isinstance(content, Mapping) and content.keys() == {'mean', 'deviation'}:
        return _normal(setting, content['mean'], content['deviation'])
    raise SettingError(f'{setting.name}: {quoted(content)} is not a space: {_FORMS}')


def _choices(setting: Setting, content: object) -> Space:
    if not isinstance(content, list):
        raise SettingError(f'{setting.name}: {quoted(content)} is not allowed: a list of values')
    values = tuple(dict.fromkeys(setting_value(setting, each) for each in content))
    if len(values) < 2:
        raise SettingError(f'{setting.name}: {quoted(content)} has one value: a space has '
                           'several; a single value belongs to agent or env')
    if len(values) < len(content):
        raise SettingError(f'{setting.name}: {quoted(content)} has a value twice')
    return Choices(setting, values)


def _range(setting: Setting, low: object, high: object, log: bool = False) -> Space:
    if setting.type not in (int, float):
        raise SettingError(f'{setting.name}: a range is not allowed: it is not a number; '
                           f'{_FORMS.split(",")[0]}')
    first, last = (float(setting_value(setting, each)) for each in (low, high))
    if first == last:
        raise SettingError(f'{setting.name}: from {low} to {high} is one value: a space has '
                           'several; a single value belongs to agent or env')
    if first > last:
        raise SettingError(f'{setting.name}: from {low} to {high} is not allowed: low is above '
                           'high')
    if log and first <= 0:
        raise SettingError(f'{setting.name}: low {low} is not allowed with log: above 0')
    return Range(setting, first, last, log)


def _randint(setting: Setting, low: object, high: object) -> Space:
    """Return the whole numbers from ``low`` to below ``high``, as numpy's."""
    if type(low) is not int or type(high) is not int:
        raise SettingError(f'{setting.name}: {quoted([low, high])} is not allowed: two whole '
                           'numbers')
    if setting.type is float:
        return _choices(setting, list(range(low, high)))
    return _range(setting, low, high - 1)


def _normal(setting: Setting, mean: object, deviation: object) -> Space:
    numbers = []
    for each in (mean, deviation):
        try:
            numbers.append(float(each))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise SettingError(
                f'{setting.name}: {quoted(each)} is not allowed: a number') from None
    if setting.type not in (int, float):
        raise SettingError(f'{setting.name}: a normal distribution is not allowed: it is not a '
                           'number')
    if not 0 < numbers[1] < float('inf'):
        raise SettingError(f'{setting.name}: deviation {deviation} is not allowed: above 0, or '
                           'there would be one value')
    setting.check(round(numbers[0]) if setting.type is int else numbers[0])
    return Normal(setting, numbers[0], numbers[1])


def _of_two(
    make: Callable[[Setting, object, object], Space],
) -> Callable[[Setting, object], Space]:
    """Return ``make`` for a list of two numbers."""
    def made(setting: Setting, content: object) -> Space:
        if not isinstance(content, Sequence) or isinstance(content, str) or len(content) != 2:
            raise SettingError(f'{setting.name}: {quoted(content)} is not allowed: a list of two '
                               'numbers')
        return make(setting, content[0], content[1])
    return made


_SLM_LAB: Mapping[str, Callable[[Setting, object], Space]] = {
    'choice': _choices, 'grid_search': _choices, 'randint': _of_two(_randint),
    'uniform': _of_two(_range), 'normal': _of_two(_normal)}


#: What one of several agents has beside settings: its name, and a checkpoint of first weights.
LISTED_AGENT = ('name', 'init')
# Set by the experiment, or not of a training that learns.
_NOT_IN_SPECS = ('seed', 'record_episodes', 'freeze', 'inference')


def agent_settings() -> dict[str, Setting]:
    """Return the settings of the part ``agent``, of every algorithm, by name."""
    found = settings_of(TrainConfig, *ALGORITHM_SETTINGS.values())
    return {name: each for name, each in found.items() if name not in _NOT_IN_SPECS}


def listed_agent_settings() -> dict[str, Setting]:
    """Return the settings of one of several agents: it may also be a fixed opponent."""
    return agent_settings() | {'freeze': settings_of(TrainConfig)['freeze']}


def env_settings() -> dict[str, Setting]:
    """Return the settings of the part ``env`` by name."""
    return settings_of(EnvConfig)


@dataclasses.dataclass(frozen=True)
class Search:
    """What a spec searches.

    Attributes:
        spaces: by setting, in the order of the spec.
    """

    config: SearchConfig
    spaces: Mapping[str, Space]

    @property
    def grid_size(self) -> int:
        """Number of combinations of choices; 0 if a space is not of choices."""
        return math.prod(len(each.values) if isinstance(each, Choices) else 0
                         for each in self.spaces.values())


@dataclasses.dataclass(frozen=True)
class Spec:
    """One spec.

    Attributes:
        settings: of agent and environment as the spec gives them, by name; what it does not give
            comes from presets and defaults. {} if the spec lists agents or environments.
        agents: agents, environments and bodies of a spec that lists them, else None.
        meta: sessions, trials and seed.
        reference: what fitness is measured by; None: the table of references has it, or not.
        search: None if there is nothing to search.
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
        """Number of trials of the search; 1 without one."""
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
        return {name: value for name, value in values.items()
                if not isinstance(space := self.search.spaces[name], Normal) and value in space}

    def with_meta(self, **values: int) -> Spec:
        """Return the spec with other numbers of trials or sessions."""
        return dataclasses.replace(self, meta=dataclasses.replace(self.meta, **values))
