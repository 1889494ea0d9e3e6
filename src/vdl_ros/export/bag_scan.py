"""Scan bags before the export: their content, rate, and number of rows."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from vdl_ros.export.messages import ArmBag, Entry, ExportError
from vdl_ros.export.resampling import Timeline, mean_rate
from vdl_ros.export.synchronizer import Frame, synchronize

__all__ = ['ExportOptions', 'BagSummary', 'drop_reason', 'scan_bags', 'make_timeline']

_DEFAULT_RATE = 30


@dataclass(frozen=True)
class ExportOptions:
    """
    Options of an export; see :class:`Timeline`.

    Attributes:
        fps: rows per second; 0: the rate of the images, rounded.
        only_successes: leave out bags that are not labeled as a success.
    """

    fps: int = 0
    gap: float = 1.0
    episode_seconds: float = 0.0
    resample: bool = False
    only_successes: bool = False


@dataclass
class BagSummary:
    """
    Content of the bags.

    Attributes:
        size: width and height of the images; (0, 0): there are none.
        joints: names of the joints in every row.
        commanded: the bag holds motor commands.
        captured: frames were captured one by one: no sequence, and the camera pose is known.
        measured: images per second.
        fps: rows per second.
        images, rows, repeated, episodes: their numbers.
        dropped: number of images that become no row, by reason.
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


def scan_bags(
    bags: Sequence[ArmBag], options: ExportOptions, progress: Callable[[int], None],
) -> BagSummary:
    """
    Read bags once, each the beginning of an episode; of each image only its stamp is kept.

    Raises:
        ExportError: there is nothing that can be exported, or images change their size, or their
            rate is not constant.
    """
    found = BagSummary()
    topics: Counter[str] = Counter()
    scanned = [_scan(bag, found, topics, progress) for bag in bags]
    found.commanded = bags[0].topics.command in topics
    found.captured = 'capture/scene' in topics
    kept = []
    mask = 3 if found.captured else 1
    for stamps, faults in scanned:
        flags = np.frombuffer(faults, np.uint8)
        good = (flags & mask) == 0
        kept.append(np.frombuffer(stamps, np.int64)[good])
        without = int(np.count_nonzero(flags & 1))
        found.dropped.update({
            _WITHOUT_JOINTS: without, _WITHOUT_SCENE: len(good) - len(kept[-1]) - without})
    found.measured = mean_rate(np.concatenate(kept))
    found.fps = options.fps or _rate(bags[0], found)
    for each in kept:
        _place(found, each, options)
    if not found.rows:
        raise ExportError('no image can become a row: ' + '; '.join(
            f'{count} {why}' for why, count in found.dropped.items() if count))
    return found


def _scan(
    bag: ArmBag, found: BagSummary, topics: Counter[str], progress: Callable[[int], None],
) -> tuple[array[int], bytearray]:
    """Return the stamps of a bag's images, and for each which reasons make it no row."""
    stamps, faults = array('q'), bytearray()
    has_joints = False
    for frame in synchronize(_counted(bag, topics), bag.topics):
        found.images += 1
        _same_size(bag, found, frame)
        if frame.joints and not found.joints:
            found.joints = tuple(name for name in bag.topics.names if name in frame.joints)
        has_joints = has_joints or frame.joints is not None
        stamps.append(frame.stamp_ns)
        # Bits of both reasons; whether the second one applies is known at the end.
        faults.append((not _has_joints(found.joints, frame)) + 2 * (frame.camera is None))
        progress(found.images)
    if not stamps:
        broken = '; '.join(f'{count} x {why}' for why, count in bag.refused.most_common(3))
        advice = '; --no-images --resample --fps 10 exports the rest'
        raise ExportError(f'{bag.path}: no {"image" if bag.topics.has_camera else "message"} on '
                          f'{bag.topics.rows}{broken and ": " + broken}'
                          f'{advice if bag.topics.has_camera else ""}')
    if not has_joints:
        raise ExportError(f'{bag.path}: {len(stamps)} images, but no '
                          f'{" or ".join(bag.topics.states)} at their times: the positions of the '
                          'joints are unknown')
    return stamps, faults


_WITHOUT_JOINTS = 'without joint states of their time'
_WITHOUT_SCENE = 'without a capture/scene of their stamp'


def drop_reason(found: BagSummary, frame: Frame) -> str:
    """Return why a frame cannot become a row, '' if it can."""
    if not _has_joints(found.joints, frame):
        return _WITHOUT_JOINTS
    return _WITHOUT_SCENE if found.captured and frame.camera is None else ''


def make_timeline(found: BagSummary, options: ExportOptions) -> Timeline:
    """Return a new timeline, as :func:`scan_bags` uses it."""
    return Timeline(found.fps, gap=options.gap, episode_seconds=options.episode_seconds,
                    resample=options.resample, independent=found.captured)


def _has_joints(names: tuple[str, ...], frame: Frame) -> bool:
    return frame.joints is not None and all(name in frame.joints for name in names)


def _counted(bag: ArmBag, topics: Counter[str]) -> Iterator[Entry]:
    for entry in bag.read(pixels=False):
        topics[entry.topic] += 1
        yield entry


def _same_size(bag: ArmBag, found: BagSummary, frame: Frame) -> None:
    if frame.picture is None:
        return
    size = frame.picture.size
    if found.size == (0, 0):
        found.size = size
    if size != found.size:
        raise ExportError(
            f'{bag.path}: image {found.images} is {size[0]} x {size[1]} pixels, those before it '
            f'{found.size[0]} x {found.size[1]}; a data set has one size')


def _rate(bag: ArmBag, found: BagSummary) -> int:
    if found.captured or not found.measured:
        return _DEFAULT_RATE
    if found.measured < 0.75:
        raise ExportError(f'{bag.path}: an image every {1.0 / found.measured:.1f} s; a data set '
                          'has at least one a second')
    return max(1, round(found.measured))


def _place(found: BagSummary, stamps: np.ndarray[tuple[int], np.dtype[np.int64]],
           options: ExportOptions) -> None:
    timeline = make_timeline(found, options)
    for stamp in stamps.tolist():
        placement = timeline.place(stamp)
        if placement.dropped:
            found.dropped[placement.dropped] += 1
            continue
        found.rows += 1 + placement.repeats
        found.repeated += placement.repeats
        found.episodes += placement.begins
