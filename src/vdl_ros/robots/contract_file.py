"""A mapping of a contract that is read key by key; each error names file, key and value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.files import find_resource
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, suggestion
from vdl_ros.robots.contract import (
    CONVERSIONS,
    UNITS,
    ActionPart,
    Actions,
    Confirmation,
    Contract,
    ContractError,
    Feature,
    FunctionCall,
    LateAction,
    Limit,
    Reset,
    ServiceReset,
    StopTopic,
    Topic,
    TrajectoryReset,
)

__all__ = ['Section', 'find_contract', 'find_contracts', 'known_contracts', 'read_contract']


_MISSING: Any = object()


class Section:
    """Values by key; :meth:`end` refuses keys that nobody has read.

    Args:
        place: key of the mapping in it, '' for the file itself.

    Raises:
        ContractError: it is none.
    """

    def __init__(self, file: str, place: str, value: object) -> None:
        self._file, self._place = file, place
        if not isinstance(value, dict):
            raise ContractError(f'{file}: {place}: {quoted(value)} is not allowed: a mapping')
        self._values: dict[Any, Any] = value
        self._read: set[str] = set()

    def error(self, key: str, value: object, allowed: str) -> ContractError:
        """Return the error of a value that is not allowed; None: of a key that is missing."""
        place = self._place_of(key)
        if value is None:
            return ContractError(f'{self._file}: {place}: missing: {allowed}')
        return ContractError(
            f'{self._file}: {place}: {quoted(value)} is not allowed: {allowed}')

    def has(self, key: str) -> bool:
        """Return whether there is a value, other than null."""
        self._read.add(key)
        return self._values.get(key) is not None

    def text(
        self, key: str, default: str = _MISSING, choices: tuple[str, ...] = (), *,
        form: re.Pattern[str] | None = None, allowed: str = 'text',
    ) -> str:
        """Return a text, one of ``choices`` or of a form, if given."""
        if choices:
            allowed = 'one of ' + ', '.join(map(repr, choices))
        value = self._get(key, default, allowed)
        if value is default:
            return str(default)
        if not isinstance(value, str) or (choices and value not in choices) or (
                form is not None and not form.fullmatch(value)) or (
                not choices and not value):
            raise self.error(key, value, allowed + suggestion(str(value), choices))
        return value

    def number(
        self, key: str, default: float = _MISSING, low: float = -1e9, high: float = 1e9,
    ) -> float:
        """Return a finite number from ``low`` to ``high``."""
        allowed = f'a number from {low:g} to {high:g}'
        value = self._get(key, default, allowed)
        if value is default:
            return float(default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not (
                math.isfinite(value) and low <= value <= high):
            raise self.error(key, value, allowed)
        return float(value)

    def whole(
        self, key: str, default: int = _MISSING, low: int = 0, high: int = 1 << 31,
    ) -> int:
        """Return a whole number from ``low`` to ``high``."""
        allowed = f'a whole number from {low} to {high}'
        value = self._get(key, default, allowed)
        if value is default:
            return int(default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, value, allowed)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._get(key, default, 'true or false')
        if not isinstance(value, bool):
            raise self.error(key, value, 'true or false')
        return value

    def numbers(self, key: str, default: tuple[float, ...] = _MISSING) -> tuple[float, ...]:
        """Return a list of finite numbers."""
        value = self._get(key, default, 'a list of numbers')
        if value is default:
            return tuple(default)
        if not isinstance(value, list) or not all(
                isinstance(each, int | float) and not isinstance(each, bool)
                and math.isfinite(each) for each in value):
            raise self.error(key, value, 'a list of numbers')
        return tuple(map(float, value))

    def range(self) -> tuple[float, float]:
        """Return the numbers ``low`` and ``high``, ``low`` the smaller one."""
        low, high = self.number('low'), self.number('high')
        if low >= high:
            raise self.error('high', high, f'a number above low, {low:g}')
        return low, high

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a mapping from texts to anything; empty if there is none."""
        value = self._get(key, {}, 'a mapping')
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value):
            raise self.error(key, value, 'a mapping')
        return dict(value)

    def section(self, key: str) -> Section:
        """Return the mapping under a key."""
        return Section(self._file, self._place_of(key), self._get(key, _MISSING, 'a mapping'))

    def sections(self, key: str) -> list[Section]:
        """Return the list of mappings under a key; empty if there is none."""
        value = self._get(key, [], 'a list of mappings')
        if not isinstance(value, list):
            raise self.error(key, value, 'a list of mappings')
        return [Section(self._file, f'{self._place_of(key)}[{index}]', each)
                for index, each in enumerate(value)]

    def named(self, key: str) -> dict[str, Section]:
        """Return the mappings under a key by name."""
        place = self._place_of(key)
        return {name: Section(self._file, f'{place}: {name}', each)
                for name, each in self.mapping(key).items()}

    def end(self) -> None:
        """Check that every key was read.

        Raises:
            ContractError: one was not.
        """
        for key in self._values:
            if key not in self._read:
                raise ContractError(f'{self._file}: {self._place_of(str(key)[:80])}: no such key'
                                    f'{suggestion(str(key), self._read)}')

    def _get(self, key: str, default: Any, allowed: str) -> Any:
        self._read.add(key)
        value = self._values.get(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise self.error(key, None, allowed)
        return default

    def _place_of(self, key: str) -> str:
        return ': '.join(filter(None, (self._place, key)))


_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_]*')
_INCLUDED = re.compile(r'[A-Za-z0-9][A-Za-z0-9_-]*\.yaml')
_FUNCTION = re.compile(r'[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*')
_TOPIC = re.compile(r'/?[A-Za-z][A-Za-z0-9_]*(/[A-Za-z][A-Za-z0-9_]*)*')
_MESSAGE = re.compile(r'[a-z][a-z0-9_]*/msg/[A-Z][A-Za-z0-9]*')
_SERVICE = re.compile(r'[a-z][a-z0-9_]*/srv/[A-Z][A-Za-z0-9]*')
_FIELD = re.compile(r'[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*')
_NAMESPACE = re.compile(r'[A-Za-z][A-Za-z0-9_/]*(\{\})?')
# Included files in a row.
_DEEPEST = 8


def find_contracts(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the contracts in folders by name; of two of the same name the first."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob('*.yaml')):
            if _NAME.fullmatch(path.stem):
                found.setdefault(path.stem, path)
    return found


def known_contracts(folder: str = '') -> dict[str, Path]:
    """Return the contracts of this host by name: those of the user's folder, then the package's.

    Raises:
        SettingError: the folder is not there.
    """
    folders = [find_resource('config/robots')]
    if folder:
        if not Path(folder).is_dir():
            raise SettingError(f'robots: {folder!r} is not allowed: a folder of contracts')
        folders.insert(0, Path(folder))
    return find_contracts(folders)


def find_contract(name: str) -> Contract:
    """Return a contract by its file, or by its name in this package.

    Raises:
        ContractError: there is none, or it cannot be used.
    """
    if name.endswith('.yaml'):
        return read_contract(Path(name))
    known = known_contracts()
    if name not in known:
        raise ContractError(f'robot: {quoted(name)} is not allowed: FOLDER/NAME.yaml, or one of '
                            f'{", ".join(sorted(known))}{suggestion(name, known)}')
    return read_contract(known[name])


def read_contract(path: Path) -> Contract:
    """Return the contract in a file.

    Raises:
        ContractError: the file, the key, its value and what is allowed, in one line.
    """
    top = Section(path.name, '', _content(path))
    rate = top.number('rate', low=0.1, high=1000.0)
    topics = _topics(top)
    features = _features(top, topics)
    actions = _actions(top)
    names = [feature.name for feature in features]
    task = _call(top, 'task')
    reward, success, failure = (_call(top, name) for name in ('reward', 'success', 'failure'))
    if (task is None) == (reward is None):
        raise top.error('reward', None, 'a reward, or a task with its own, and not both')
    if task is not None and (success or failure):
        raise top.error('success' if success else 'failure', None, 'not beside a task')
    contract = Contract(
        name=path.stem, path=str(path), rate=rate,
        simulated_clock=top.text('clock', 'wall', ('wall', 'simulated')) == 'simulated',
        topics=topics, features=features, actions=actions, late=_late(top, rate),
        stops=tuple(_stop(each) for each in top.sections('stops')),
        reset=_reset(top, names), task=task, reward=reward, success=success, failure=failure,
        limits=tuple(_limit(each, names) for each in top.sections('limits')),
        limit_penalty=top.number('limit_penalty', 0.0, low=0.0, high=1e6),
        episode_steps=top.whole('episode_steps', low=1, high=1_000_000_000),
        camera=top.text('camera', '', form=_TOPIC, allowed='the name of a topic'),
        namespace=top.text('namespace', '', form=_NAMESPACE, allowed='such as robot_{}'),
        copies=top.whole('copies', 1, low=1, high=4096))
    if contract.copies > 1 and '{}' not in contract.namespace:
        raise top.error('copies', contract.copies, '1, or a namespace such as robot_{}')
    top.end()
    return contract


def _content(path: Path, depth: int = 0) -> dict[str, Any]:
    """Return the mapping in a file, its keys over those of the file that it includes."""
    try:
        found = yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise ContractError(f'{path} cannot be read: {error.strerror}') from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f'{path}: not YAML: {" ".join(str(error).split())[:200]}') from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ContractError(f'{path}: not a mapping from keys to values')
    if 'include' not in found:
        return found
    other = found.pop('include')
    if not isinstance(other, str) or not _INCLUDED.fullmatch(other) or depth == _DEEPEST:
        raise ContractError(f'{path.name}: include: {quoted(other)} is not allowed: a file of '
                            'the same folder, such as owi535.yaml, not itself')
    return _content(path.parent / other, depth + 1) | found


def _topics(top: Section) -> dict[str, Topic]:
    found = {}
    for key, each in top.named('topics').items():
        found[key] = Topic(
            key, each.text('topic', form=_TOPIC, allowed='the name of a topic'),
            each.text('type', form=_MESSAGE, allowed='package/msg/Name'),
            each.number('timeout', low=0.001, high=3600.0), each.flag('stamped', True))
        each.end()
    if not found:
        raise top.error('topics', None, 'at least one')
    return found


def _features(top: Section, topics: dict[str, Topic]) -> tuple[Feature, ...]:
    found: list[Feature] = []
    for each in top.sections('features'):
        low, high = each.range()
        feature = Feature(
            name=each.text('name'), source=each.text('from', choices=tuple(topics)),
            field=each.text('field', form=_FIELD, allowed='a dotted path such as pose.position.x'),
            unit=each.text('unit', choices=UNITS), low=low, high=high,
            key=each.text('key', ''), index=each.whole('index', -1, low=0, high=1_000_000),
            convert=each.text('convert', '', choices=CONVERSIONS),
            optional=each.flag('optional', False))
        if feature.name in [other.name for other in found]:
            raise each.error('name', feature.name, 'a name that no other feature has')
        if bool(feature.key) + (feature.index >= 0) + bool(feature.convert) > 1:
            raise each.error('key', feature.key, 'only one of key, index and convert')
        each.end()
        found.append(feature)
    if not found:
        raise top.error('features', None, 'at least one')
    return tuple(found)


def _actions(top: Section) -> Actions:
    section = top.section('actions')
    parts = _parts(section, 'parts')
    if not parts:
        raise section.error('parts', None, 'at least one')
    actions = Actions(
        section.text('topic', form=_TOPIC, allowed='the name of a topic'),
        section.text('type', form=_MESSAGE, allowed='package/msg/Name'), parts,
        section.text('sender', '', form=_FIELD, allowed='a field'),
        section.text('echo', '', form=_TOPIC, allowed='the name of a topic'),
        _parts(section, 'recorded'))
    section.end()
    return actions


def _parts(section: Section, key: str) -> tuple[ActionPart, ...]:
    parts: list[ActionPart] = []
    for each in section.sections(key):
        levels = each.numbers('levels', ())
        low, high = (min(levels), max(levels)) if levels else each.range()
        neutral = each.number('neutral', 0.0)
        if levels and (len(levels) < 2 or len({*levels}) < len(levels)):
            raise each.error('levels', levels, 'at least two different numbers')
        if (neutral not in levels) if levels else not low <= neutral <= high:
            raise each.error('neutral', neutral, f'one of {list(levels)}' if levels else
                             f'from {low:g} to {high:g}')
        parts.append(ActionPart(
            each.text('name'), each.text('field', form=_FIELD, allowed='a dotted path'),
            each.text('unit', choices=UNITS), levels, low, high, neutral,
            each.whole('index', -1, low=0, high=1000)))
        if bool(levels) != bool(parts[0].levels):
            raise each.error('levels', levels, 'for all parts of the action or for none')
        each.end()
    return tuple(parts)


def _late(top: Section, rate: float) -> LateAction:
    section = top.section('late')
    found = LateAction(section.text('action', choices=('hold', 'stop')) == 'hold',
                       section.number('limit', low=1.0 / rate, high=60.0))
    section.end()
    return found


def _stop(each: Section) -> StopTopic:
    found = StopTopic(
        each.text('topic', form=_TOPIC, allowed='the name of a topic'),
        each.text('type', form=_MESSAGE, allowed='package/msg/Name'),
        each.text('field', form=_FIELD, allowed='a dotted path'), each.flag('latched', True))
    each.end()
    return found


def _limit(each: Section, names: list[str]) -> Limit:
    feature = each.text('feature', choices=tuple(names))
    low, high = each.range()
    each.end()
    return Limit(feature, low, high)


def _reset(top: Section, names: list[str]) -> Reset:
    section = top.section('reset')
    kinds = [kind for kind in ('service', 'trajectory', 'confirmation', 'none')
             if section.has(kind)]
    if len(kinds) != 1:
        raise section.error('', kinds, 'one of service, trajectory, confirmation and none')
    found: Reset = None
    if kinds[0] == 'confirmation':
        found = Confirmation(section.text('confirmation'))
    elif kinds[0] == 'none':
        section.flag('none', True)
    else:
        each = section.section(kinds[0])
        if kinds[0] == 'service':
            found = ServiceReset(
                each.text('name', form=_TOPIC, allowed='the name of a service'),
                each.text('type', form=_SERVICE, allowed='package/srv/Name'),
                each.mapping('request'), each.text('success', ''),
                each.number('timeout', 5.0, low=0.1, high=3600.0))
        else:
            positions = each.mapping('positions')
            for joint, value in positions.items():
                if joint not in names:
                    raise each.error('positions', joint, 'names of features'
                                     f'{suggestion(joint, names)}')
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise each.error(f'positions: {joint}', value, 'a number')
            if not positions:
                raise each.error('positions', positions, 'at least one joint')
            found = TrajectoryReset(
                each.text('topic', form=_TOPIC, allowed='the name of a topic'),
                {name: float(value) for name, value in positions.items()},
                each.number('seconds', low=0.1, high=600.0),
                each.number('tolerance', low=1e-6, high=100.0),
                each.number('timeout', low=0.1, high=3600.0))
        each.end()
    section.end()
    return found


def _call(top: Section, name: str) -> FunctionCall | None:
    if not top.has(name):
        return None
    each = top.section(name)
    found = FunctionCall(each.text('function', form=_FUNCTION, allowed='module:name'),
                         each.mapping('arguments'))
    each.end()
    return found
