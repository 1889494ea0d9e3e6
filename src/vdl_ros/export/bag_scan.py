"""The first reading of a bag: what it holds, and how many rows will come of it."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.export.messages import Bag, Entry, ExportError
from vdl_ros.export.resampling import Timeline, measured_rate
from vdl_ros.export.synchronizer import Frame, join

__all__ = ['Choices', 'Survey', 'reason_against', 'survey', 'timeline_of']

_DEFAULT_RATE = 30


@dataclass(frozen=True)
class Choices:
    """
    What the user decides; see :class:`Timeline`.

    Attributes:
        fps: rows per second; 0: as many as there were images, rounded.
    """

    fps: int = 0
    gap: float = 1.0
    episode_seconds: float = 0.0
    resample: bool = False


@dataclass
class Survey:
    """
    What a bag holds.

    Attributes:
        size: width and height of the images.
        joints: names of the joints whose positions every row has.
        commanded: the motors' commands are known.
        captured: frames were captured one by one: no film, and the camera is known.
        measured: images per second.
        fps: rows per second.
        images, rows, repeated, episodes: how many.
        dropped: images that become no row, by reason.
    """

    size: tuple[int, int] = (0, 0)
    joints: tuple[str, ...] = ()
    commanded: bool = False
    captured: bool = False
    measured: float = 0.0
    fps: int = 0
    images: int = 0
    rows: int = 0
    repeated: int = 0
    episodes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def survey(bag: Bag, choices: Choices, progress: Callable[[int], None]) -> Survey:
    """
    Read the bag once, without keeping a picture: eight bytes remain of an image.

    Raises:
        ExportError: there is nothing that can be exported, or images change their size, or do
            not come evenly.
    """
    found = Survey()
    topics: Counter[str] = Counter()
    stamps, faults = array('q'), bytearray()
    for frame in join(_noted(bag, found, topics)):
        found.images += 1
        _same_size(bag, found, frame)
        if frame.joints and not found.joints:
            found.joints = tuple(name for name in JOINTS if name in frame.joints)
        stamps.append(frame.stamp_ns)
        # Which reasons hold against it; which of them count is known at the end.
        faults.append((not _knows_joints(found.joints, frame)) + 2 * (frame.camera is None))
        progress(found.images)
    found.commanded, found.captured = 'arm/motors_sent' in topics, 'capture/scene' in topics
    if not found.images:
        broken = '; '.join(f'{count} x {why}' for why, count in bag.refused.most_common(3))
        raise ExportError(f'{bag.path}: no image on camera/image_raw{broken and ": " + broken}')
    if not found.joints:
        raise ExportError(f'{bag.path}: {found.images} images, but no arm/joint_states at their '
                          'times: nothing tells where the joints are')
    mask = 3 if found.captured else 1
    good = (np.frombuffer(faults, np.uint8) & mask) == 0
    kept = np.frombuffer(stamps, np.int64)[good]
    found.dropped.update(
        {_WITHOUT_JOINTS: int(np.count_nonzero(np.frombuffer(faults, np.uint8) & 1))})
    found.dropped.update({_WITHOUT_SCENE: len(good) - len(kept) - found.dropped[_WITHOUT_JOINTS]})
    found.measured = measured_rate(kept)
    found.fps = choices.fps or _rate(bag, found)
    _place(found, kept, choices)
    return found


_WITHOUT_JOINTS = 'without joint states of their time'
_WITHOUT_SCENE = 'without a capture/scene of their stamp'


def reason_against(found: Survey, frame: Frame) -> str:
    """Return why a frame can become no row, '' if it can."""
    if not _knows_joints(found.joints, frame):
        return _WITHOUT_JOINTS
    return _WITHOUT_SCENE if found.captured and frame.camera is None else ''


def timeline_of(found: Survey, choices: Choices) -> Timeline:
    """Return the timeline that the survey used, at its beginning."""
    return Timeline(found.fps, gap=choices.gap, episode_seconds=choices.episode_seconds,
                    resample=choices.resample, independent=found.captured)


def _knows_joints(names: tuple[str, ...], frame: Frame) -> bool:
    return frame.joints is not None and all(name in frame.joints for name in names)


def _noted(bag: Bag, found: Survey, topics: Counter[str]) -> Iterator[Entry]:
    for entry in bag.read(pixels=False):
        topics[entry.topic] += 1
        yield entry


def _same_size(bag: Bag, found: Survey, frame: Frame) -> None:
    size = frame.picture.size
    if found.size == (0, 0):
        found.size = size
    if size != found.size:
        raise ExportError(
            f'{bag.path}: image {found.images} is {size[0]} x {size[1]} pixels, those before it '
            f'{found.size[0]} x {found.size[1]}; a data set has one size')


def _rate(bag: Bag, found: Survey) -> int:
    if found.captured or not found.measured:
        return _DEFAULT_RATE
    if found.measured < 0.75:
        raise ExportError(f'{bag.path}: an image every {1.0 / found.measured:.1f} s; a data set '
                          'has at least one a second')
    return max(1, round(found.measured))


def _place(found: Survey, stamps: np.ndarray[tuple[int], np.dtype[np.int64]],
           choices: Choices) -> None:
    timeline = timeline_of(found, choices)
    for stamp in stamps.tolist():
        placement = timeline.place(stamp)
        if placement.dropped:
            found.dropped[placement.dropped] += 1
            continue
        found.rows += 1 + placement.repeats
        found.repeated += placement.repeats
        found.episodes += placement.begins
    if not found.rows:
        raise ExportError('no image can become a row: ' + '; '.join(
            f'{count} {why}' for why, count in found.dropped.items() if count))
