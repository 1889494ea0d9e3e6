"""
Search spaces: which values of a setting a search tries.

A space is written in the form of this package, ``learning_rate: {low: 1e-4, high: 0.1}``, or in
that of SLM-Lab, ``learning_rate__uniform: [1e-4, 0.1]``.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, Setting, SettingError
from vdl_ros.config_file import setting_value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = ['SUFFIXES', 'Choices', 'Normal', 'Range', 'Space', 'make_space', 'split_key']

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
    """
    Return the space of a setting.

    Args:
        setting: the setting.
        suffix: one of :data:`SUFFIXES`, or '' for the form of this package.
        content: what the spec has.

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
