"""Contracts of rosetta (version 2), as far as they say what a contract here needs.

rosetta (github.com/iblnkn/rosetta) records robots for LeRobot and plays policies on them. Its
contracts have no ranges of numbers, no resets, and no rule for late actions: a file here names
one, and adds them. docs/robots.md describes that.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from vdl_ros.common.quoting import quoted
from vdl_ros.common.schema import converted

_IMAGES = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
_NAMED = 'sensor_msgs/msg/JointState'
_ARRAY = 'MultiArray'
_DEGREES = math.degrees(1.0)
_TIMEOUT_S = 0.5


class _Channel(Struct, kw_only=True):
    topic: str
    type: str
    decoder: str = ''
    encoder: str = ''
    safety: str = 'none'


class _Align(Struct, kw_only=True):
    timeline: str = 'receive'


class _Entry(Struct, kw_only=True):
    channel: _Channel
    align: _Align = field(default_factory=_Align)
    select: list[str] = []
    apply: list[Any] = []


class _Clamp(Struct, kw_only=True):
    min: float | None = None
    max: float | None = None


class _Contract(Struct, kw_only=True):
    fps: float
    observations: dict[str, _Entry | list[_Entry]]
    actions: dict[str, _Entry | list[_Entry]]


class _Number(Struct, kw_only=True):
    """A number of an entry as keys of a contract here; infinite: ``low``, ``high`` is unknown."""

    place: dict[str, Any]
    scale: float
    low: float
    high: float


def expanded(found: object, own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a contract's content with what its rosetta contract says.

    Args:
        found: the content of the rosetta contract.
        own: that of the contract, which wins; ``bounds`` has low and high by the name of a number,
            ``step`` is of all positions.
        where: the file of the rosetta contract, for errors.

    Raises:
        ValueError: it says something that has no counterpart here; one line.
    """
    rosetta = converted(found, _Contract, where, ValueError)
    rest = {key: value for key, value in own.items() if key not in ('bounds', 'step')}
    bounds, step = own.get('bounds') or {}, own.get('step')
    if not isinstance(bounds, dict):
        raise ValueError(f'bounds: {quoted(bounds)} is not allowed: low and high by name')
    topics: dict[str, Any] = {}
    features: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for key, entries in rosetta.observations.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            channel = entry.channel
            if channel.type in _IMAGES:
                images.append({'name': key.removeprefix('observation.images.').replace('.', '_'),
                               'topic': channel.topic, 'type': channel.type})
                continue
            name = channel.topic.strip('/').replace('/', '_')
            topics[name] = {'topic': channel.topic, 'type': channel.type, 'timeout': _TIMEOUT_S,
                            'stamped': entry.align.timeline == 'header'}
            features += [{'name': label, 'from': name, **_keys(label, number, bounds, where)}
                         for label, number in _numbers(entry, f'{where}: {key}').items()]
    return {'rate': rosetta.fps, 'topics': topics, 'features': features, 'images': images,
            'actions': _actions(rosetta.actions, features, bounds, step, where)} | rest


def _actions(
    actions: Mapping[str, _Entry | list[_Entry]], features: Sequence[Mapping[str, Any]],
    bounds: Mapping[str, Any], step: object, where: str,
) -> dict[str, Any]:
    entries = [each for found in actions.values()
               for each in (found if isinstance(found, list) else [found])]
    if len(entries) != 1:
        raise ValueError(f'{where}: actions: {len(entries)} channels are not allowed: 1')
    entry, = entries
    channel, parts = entry.channel, []
    measured = {feature['name'] for feature in features if 'key' in feature}
    for label, number in _numbers(entry, f'{where}: actions').items():
        part = {'name': label, **_keys(label, number, bounds, where)}
        is_position = number.place['field'] == 'position' and 'key' in number.place
        if is_position and label in measured:
            if step is None:
                raise ValueError(f'step: missing: how far {label} moves in a step at most')
            part |= {'position_of': label, 'step': step}
        elif is_position or channel.safety != 'zeros':
            # It has to be known by what nothing moves.
            raise ValueError(f'{where}: {channel.topic}: {label}: safety: {channel.safety} is not '
                             f'allowed: zeros, or positions of {_NAMED} that are observed, too')
        parts.append(part)
    return {'topic': channel.topic, 'type': channel.type, 'parts': parts}


def _numbers(entry: _Entry, where: str) -> dict[str, _Number]:
    """Return the numbers of an entry by their labels, as ``select`` has them."""
    channel, scale, low, high = entry.channel, 1.0, -math.inf, math.inf
    if channel.decoder or channel.encoder:
        raise ValueError(f'{where}: {quoted(channel.decoder or channel.encoder)} is not allowed: '
                         'no decoder or encoder of its own')
    for operator in entry.apply:
        if operator == 'rad2deg':
            scale, low, high = _DEGREES, low * _DEGREES, high * _DEGREES
        elif isinstance(operator, dict) and 'clamp' in operator:
            clamp = converted(operator['clamp'], _Clamp, f'{where}: apply: clamp', ValueError)
            least = -math.inf if clamp.min is None else clamp.min
            most = math.inf if clamp.max is None else clamp.max
            # One after the other: a second clamp narrows the first.
            low, high = (min(max(end, least), most) for end in (low, high))
        else:
            raise ValueError(f'{where}: apply: {quoted(operator)} is not allowed: rad2deg, clamp')
    numbers: dict[str, _Number] = {}
    for index, label in enumerate(entry.select or ['data']):
        if channel.type == _NAMED:
            name, _, key = label.partition('.')
            place: dict[str, Any] = {'field': name, 'key': key}
        elif channel.type.endswith(_ARRAY):
            place = {'field': 'data', 'index': index}
        else:
            place = {'field': label}
        numbers[label] = _Number(place=place, scale=scale, low=low, high=high)
    return numbers


def _keys(
    label: str, number: _Number, bounds: Mapping[str, Any], where: str,
) -> dict[str, Any]:
    low, high = number.low, number.high
    if label in bounds:
        if not isinstance(bounds[label], list) or len(bounds[label]) != 2:
            raise ValueError(f'bounds: {label}: {quoted(bounds[label])} is not allowed: '
                             '[low, high]')
        low, high = bounds[label]
    elif math.inf in (-low, high):
        raise ValueError(f'bounds: {label}: missing: [low, high], which {where} does not say')
    unit = 'deg' if number.scale == _DEGREES else ''
    return {**number.place, 'unit': unit, 'scale': number.scale, 'low': low, 'high': high}
