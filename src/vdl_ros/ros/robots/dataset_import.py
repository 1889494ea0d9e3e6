"""Write a LeRobot data set as bags, as ``record_episodes`` writes those of its robot."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from rclpy.serialization import serialize_message

from vdl_ros.bags.reader import EpisodeLabels
from vdl_ros.common.files import new_folder
from vdl_ros.common.memory import limited_memory
from vdl_ros.common.quoting import quoted
from vdl_ros.export.lerobot_check import COUNTERS, check_dataset
from vdl_ros.export.lerobot_reader import (
    SUCCESS,
    LeRobotData,
    read_episodes,
    read_lerobot,
    read_pictures,
)
from vdl_ros.export.messages import of_contract
from vdl_ros.robots.contract import (
    COMPRESSED_IMAGE,
    ActionPart,
    Contract,
    ContractError,
    Feature,
    ImageTopic,
)
from vdl_ros.ros import qos
from vdl_ros.ros.bags.recording import EpisodeBags
from vdl_ros.ros.messages.images import to_compressed_image, to_image
from vdl_ros.ros.messages.joint_messages import time_of
from vdl_ros.ros.robots.message_fields import (
    feature_reader,
    field_writer,
    part_writer,
    resolve_type,
    scaled,
    write_field,
)

# A data set does not say when its episodes were recorded.
_BEGIN_NS = 10**9
_STATE, _ACTION, _PICTURES = 'observation.state', 'action', 'observation.images.'
_SENDER = '/import_dataset'


def import_data_set(
    folder: Path, contract: Contract, output: Path, progress: Callable[[int, int], None],
) -> tuple[int, int, list[str]]:
    """Write a bag for each episode; return their number, that of rows, and what was left out.

    The numbers of all rows are in memory, and one picture. Each bag begins at 1 s.

    Args:
        folder: of the data set.
        output: a folder that does not exist yet.
        progress: called with the number of rows that are written, and of all.

    Raises:
        ValueError: the data set, or the contract, cannot be used; one line.
    """
    of_contract(contract)  # refuses those of which no data set is exported
    messages = _Messages(contract)
    with limited_memory(str(folder)):
        problems = check_dataset(folder).problems
    if problems:
        raise ValueError(problems[0])
    data = read_lerobot(folder)
    _check_names(folder, data, contract)
    images = _images(folder, data, contract)
    episodes, done = read_episodes(folder, data), 0
    with new_folder(output) as root:
        bags = EpisodeBags(root, distribution=os.environ.get('ROS_DISTRO', ''))
        topics = [(each.topic, each.type) for each in messages.topics]
        topics += [(each.topic, each.type) for each in images.values()]
        handles = [bags.add_topic(f'/{contract.full(name, 0).lstrip("/")}', kind, [qos.REPORT])
                   for name, kind in topics]
        for episode in episodes:
            bags.start(_BEGIN_NS)
            rows = _numbers(data, data.episodes == episode.number, contract)
            pictures = [read_pictures(*episode.videos[name], len(rows), data.fps)
                        for name in images]
            for number, (row, *seen) in enumerate(zip(rows, *pictures, strict=True)):
                ns = _BEGIN_NS + round(number * 1e9 / data.fps)
                stamp = time_of(ns)
                try:
                    made = messages.make(row, stamp)
                except ValueError as error:
                    raise ValueError(f'{folder}: episode {episode.number}: {error}') from None
                made += [to_compressed_image(each, stamp)
                         if image.type == COMPRESSED_IMAGE else to_image(each, stamp)
                         for image, each in zip(images.values(), seen, strict=True)]
                for handle, message in zip(handles, made, strict=True):
                    bags.write(handle, ns, serialize_message(message))
                done += 1
                progress(done, len(data.episodes))
            success = None if data.success is None else bool(data.success[
                data.episodes == episode.number].any())
            bags.save(EpisodeLabels(episode.task, success, contract.name))
    return len(episodes), done, [
        name for name in data.features
        if name not in (_STATE, _ACTION, SUCCESS, *COUNTERS, *images)]


def _check_names(folder: Path, data: LeRobotData, contract: Contract) -> None:
    needed: Sequence[Feature | ActionPart]
    for column, names, known, needed in (
            (_STATE, data.state_names, contract.features,
             [each for each in contract.features if not each.optional]),
            (_ACTION, data.action_names, _parts(contract), contract.actions.parts)):
        allowed = [each.name for each in known]
        for name in names:
            if name not in allowed:
                raise ValueError(f'{folder}: {column}: {quoted(name)} is not allowed: names of '
                                 f'{contract.name}.yaml: {", ".join(allowed)}')
        if missing := [each.name for each in needed if each.name not in names]:
            raise ValueError(f'{folder}: {column}: no number has the name {missing[0]}, which '
                             f'{contract.name}.yaml needs')


def _images(folder: Path, data: LeRobotData, contract: Contract) -> dict[str, ImageTopic]:
    """Return the image of each feature that is a video."""
    known = {f'{_PICTURES}{each.name}': each for each in contract.images}
    if contract.images and known.keys().isdisjoint(data.features):
        # As export_dataset names it.
        known.setdefault(f'{_PICTURES}camera', contract.images[0])
    for name, kind in data.features.items():
        if kind == 'image' or (kind == 'video' and name not in known):
            raise ValueError(f'{folder}: {quoted(name)} of dtype {kind} is not allowed: videos of '
                             f'{contract.name}.yaml: {", ".join(known) or "there are none"}')
    return {name: each for name, each in known.items() if name in data.features}


def _parts(contract: Contract) -> tuple[ActionPart, ...]:
    return *contract.actions.parts, *contract.actions.recorded


def _numbers(
    data: LeRobotData, chosen: NDArray[np.bool_], contract: Contract,
) -> list[list[float]]:
    """Return a row of features, parts of the action and a 0, for each chosen row of the data.

    A feature that the data set lacks is NaN, a part neutral.
    """
    columns = dict(zip(data.state_names, data.states[chosen].T, strict=True))
    actions = dict(zip(data.action_names, data.actions[chosen].T, strict=True))
    count = int(chosen.sum())
    found = [
        *(columns.get(each.name, np.full(count, math.nan)) for each in contract.features),
        *(actions.get(each.name, np.full(count, each.neutral)) for each in _parts(contract)),
        np.zeros(count)]
    return np.stack(found, axis=1).astype(np.float64).tolist()  # type: ignore[no-any-return]


class _Topic(NamedTuple):
    """A topic of numbers.

    ``keys`` are the texts of its field ``name``, ``sender`` is the field for the sender's name;
    ``writes`` has for each number its column in a row, its name, and what writes it.
    """

    topic: str
    type: str
    kind: Any
    keys: list[str]
    sender: str
    writes: list[tuple[int, str, Callable[[Any, float], None]]]


class _Messages:
    """Makes the messages of a robot's state and action: the inverse of reading them."""

    def __init__(self, contract: Contract) -> None:
        file, actions, features = f'{contract.name}.yaml', contract.actions, contract.features
        self.topics: list[_Topic] = []
        for key, topic in contract.topics.items():
            kind = resolve_type(f'{file}: topics: {key}: type', topic.type)
            own = [each for each in enumerate(features) if each[1].source == key]
            keys = list(dict.fromkeys(each.key for _, each in own if each.key))
            # First a 0 in the last place: each field has as many values as there are names.
            writes = [(-1, each, field_writer(file, kind, each, len(keys) - 1))
                      for each in dict.fromkeys(each.field for _, each in own if each.key)]
            for column, feature in own:
                where = f'{file}: features[{column}]'
                feature_reader(where, kind, feature)
                if feature.convert:
                    raise ContractError(f'{where}: convert: {feature.convert!r} is not allowed '
                                        'for an import: an angle makes no quaternion')
                index = keys.index(feature.key) if feature.key else feature.index
                writes.append((column, feature.name, scaled(feature.scale, field_writer(
                    where, kind, feature.field, index))))
            self.topics.append(_Topic(topic.topic, topic.type, kind, keys, '', writes))
        kind = resolve_type(f'{file}: actions: type', actions.type)
        writes = [(column, part.name, part_writer(f'{file}: actions: {part.name}', kind, part))
            for column, part in enumerate(_parts(contract), len(features))]
        self.topics += [_Topic(name, actions.type, kind, [], actions.sender, writes)
                        for name in (actions.topic, actions.echo) if name]

    def make(self, row: Sequence[float], stamp: Time) -> list[Any]:
        """Return the messages of a row of :func:`_numbers`; ValueError: one cannot hold it."""
        found = []
        for topic in self.topics:
            message = topic.kind(check_fields=True)
            if topic.keys:
                message.name = topic.keys
            for column, name, write in topic.writes:
                try:
                    write(message, row[column])
                except (AssertionError, OverflowError, ValueError):
                    raise ValueError(f'{name}: {row[column]:g} is not allowed: a number of '
                                     f'{topic.type}') from None
            if hasattr(message, 'header'):
                message.header.stamp = stamp
            if topic.sender:
                write_field(message, topic.sender, _SENDER)
            found.append(message)
        return found
