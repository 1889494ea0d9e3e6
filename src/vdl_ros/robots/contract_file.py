"""Reads the contract of a robot from a YAML file and checks it; types are checked by ROS."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.quoting import quoted
from vdl_ros.common.resources import find_resource
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
from vdl_ros.robots.section import Section

__all__ = ['find_contract', 'find_contracts', 'known_contracts', 'read_contract']

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
    """
    Return the contracts of this host by name: those of the user's folder, then the package's.

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
    """
    Return a contract by its file, or by its name in this package.

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
    """
    Return the contract in a file.

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
