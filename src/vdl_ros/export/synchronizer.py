"""Assign images to rows of a constant rate: episodes, repeated and dropped images."""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vdl_ros.export.messages import ArmBag, BagTopics, Entry, ExportError, Picture

__all__ = ['BagSummary', 'ExportOptions', 'Frame', 'MAX_EPISODE_S', 'Placement', 'Timeline',
           'drop_reason', 'make_timeline', 'mean_rate', 'scan_bags', 'synchronize']


#: Longer episodes are split: LeRobot finds a video's pictures by float32 seconds within 0.0001 s,
#: a resolution that float32 does not have beyond 1024 s.
MAX_EPISODE_S = 600.0
# Largest distance of an image from its row, periods: jitter is less, a lost image is more.
_TOLERANCE = 0.75
# Share of an image's distance from its row by which later rows are moved: camera clocks drift.
_FOLLOW = 0.1


@dataclass(frozen=True)
class Placement:
    """Placement of one image.

    Attributes:
        dropped: why it becomes no row, '' if it becomes one.
        begins: it is the first image of an episode.
        repeats: rows before it that repeat the previous image.
    """

    dropped: str = ''
    begins: bool = False
    repeats: int = 0


def mean_rate(stamps_ns: NDArray[np.int64]) -> float:
    """Return images per second, 0.0 if unknown.

    The mean of the distances between stamps, not the median: stamps of a simulation are multiples
    of its step. Distances that a lost image has doubled are left out.
    """
    distances = np.diff(stamps_ns)
    distances = distances[distances > 0]
    if not len(distances):
        return 0.0
    return 1e9 / float(distances[distances <= 1.8 * np.median(distances)].mean())


class Timeline:
    """Places images one after the other, by their stamps.

    Args:
        fps: rows per second.
        gap: longest time without an image within an episode, s.
        episode_seconds: longest episode, s; 0: the maximum.
        resample: repeat and drop images where their rate varies; else that is an error.
        independent: images are no sequence; the times between them do not matter.
    """

    def __init__(
        self, fps: int, *, gap: float, episode_seconds: float, resample: bool, independent: bool,
    ) -> None:
        self._period_ns = 1e9 / fps
        # A gap is longer than an uneven distance.
        self._gap_ns = max(gap * 1e9, 2.0 * self._period_ns)
        longest = min(episode_seconds or MAX_EPISODE_S, MAX_EPISODE_S)
        self._longest = max(1, round(longest * fps))
        self._resample, self._independent = resample, independent
        self._count = 0
        self._rows = 0
        self._first_ns = self._last_ns = 0
        self._phase_ns = 0.0

    def place(self, stamp_ns: int) -> Placement:
        """Place the next image.

        Raises:
            ExportError: it comes too early or too late, without resampling.
        """
        self._count += 1
        distance = stamp_ns - self._last_ns
        if not self._rows:
            return self._begin(stamp_ns)
        if distance == 0:
            return Placement(dropped='the same stamp twice')
        if distance < 0 and not self._independent and -distance <= self._gap_ns:
            return Placement(dropped='older than the image before')
        # Far back: the clock was reset.
        if distance < 0 or self._rows >= self._longest:
            return self._begin(stamp_ns)
        if self._independent:
            return self._continue(stamp_ns)
        if distance > self._gap_ns:
            return self._begin(stamp_ns)
        if self._resample:
            repeats = round((stamp_ns - self._first_ns) / self._period_ns) - self._rows
            if repeats < 0:
                return Placement(dropped='too early for a row of its own')
            self._rows += repeats
            return self._continue(stamp_ns, repeats)
        self._follow(stamp_ns, distance)
        return self._continue(stamp_ns)

    def _follow(self, stamp_ns: int, distance: int) -> None:
        """Compare an image with the time of its row."""
        period = self._period_ns
        off = stamp_ns - self._first_ns - self._rows * period - self._phase_ns
        self._phase_ns += _FOLLOW * off
        if abs(off) <= _TOLERANCE * period:
            return
        raise ExportError(
            f'image {self._count} comes {distance * 1e-9:.4f} s after the one before it and '
            f'{abs(off) * 1e-9:.4f} s {"before" if off < 0 else "after"} the time of its row; '
            f'{1e9 / period:g} frames/s allow {_TOLERANCE * period * 1e-9:.4f} s: --resample '
            'drops and repeats images, --fps states another rate, --gap begins another episode')

    def _begin(self, stamp_ns: int) -> Placement:
        self._first_ns = self._last_ns = stamp_ns
        self._rows, self._phase_ns = 1, 0.0
        return Placement(begins=True)

    def _continue(self, stamp_ns: int, repeats: int = 0) -> Placement:
        self._last_ns = stamp_ns
        self._rows += 1
        return Placement(repeats=repeats)


# How long an image waits for messages with its stamp that were recorded after it.
_WAIT_NS = 250_000_000
# Bytes of images that wait at most.
_WAITING_BYTES = 64 << 20
# Joint states older than this are not used for an image.
_STALE_NS = 500_000_000
# How long messages are kept for later images.
_KEEP_NS = 2_000_000_000
_KEEP = 10_000
T = TypeVar('T')


@dataclass(frozen=True)
class Frame:
    """One image, or state of a robot without a camera, with the messages of its time.

    Attributes:
        picture: the image; None of a robot without a camera.
        joints: numbers of the state that are known, by name; None if none is.
        motors: command of each motor; zeros before the first command.
        camera: distance (m), elevation, azimuth (rad) of a captured frame.
    """

    picture: Picture | None
    stamp_ns: int
    joints: dict[str, float] | None
    motors: tuple[float, ...]
    camera: tuple[float, ...] | None


class _History(Generic[T]):
    """Recent messages of a topic, by stamp."""

    def __init__(self, *, keep_last: bool = False) -> None:
        self._entries: deque[tuple[int, int, T]] = deque(maxlen=_KEEP)
        self._keep_last = keep_last

    def add(self, entry: Entry, value: T) -> None:
        self._entries.append((entry.logged_ns, entry.stamp_ns, value))
        while len(self._entries) > 1 and entry.logged_ns - self._entries[0][0] > _KEEP_NS:
            if self._keep_last and self._entries[1][0] > entry.logged_ns - _KEEP_NS:
                break
            self._entries.popleft()

    def newest(self, stamp_ns: int) -> tuple[int, T] | None:
        """Return stamp and value of the newest message at or before a stamp."""
        found: tuple[int, T] | None = None
        for _, stamp, value in self._entries:
            if stamp <= stamp_ns and (found is None or stamp >= found[0]):
                found = stamp, value
        return found


def synchronize(entries: Iterable[Entry], topics: BagTopics) -> Iterator[Frame]:
    """Yield a frame for each message of ``topics.rows``, in their order.

    It gets the newest state at or before its stamp, of each topic, the newest command likewise,
    and the scene of the same stamp.
    """
    states: dict[str, _History[dict[str, float]]] = {
        name: _History() for name in topics.states}
    motors: _History[tuple[float, ...]] = _History(keep_last=True)
    scenes: _History[tuple[float, ...]] = _History()
    waiting: deque[tuple[Entry, Picture | None]] = deque()
    size = 0

    def frame() -> Frame:
        entry, picture = waiting.popleft()
        stamp = entry.stamp_ns
        command, scene = motors.newest(stamp), scenes.newest(stamp)
        known: dict[str, float] = {}
        for each in states.values():
            state = each.newest(stamp)
            if state and stamp - state[0] <= _STALE_NS:
                known |= state[1]
        return Frame(
            picture, stamp, known or None,
            command[1] if command else (0.0,) * len(topics.motors),
            scene[1] if scene and scene[0] == stamp else None)

    for entry in entries:
        while waiting and (abs(entry.logged_ns - waiting[0][0].logged_ns) >= _WAIT_NS
                           or size > _WAITING_BYTES):
            size -= _bytes_of(waiting[0][1])
            yield frame()
        value = entry.value
        if isinstance(value, dict):
            known = {name: value[name] for name in topics.names
                     if math.isfinite(value.get(name, math.nan))}
            if known:
                states[entry.topic].add(entry, known)
        elif entry.topic == topics.command and not isinstance(value, Picture):
            motors.add(entry, value)
        elif not isinstance(value, Picture) and all(math.isfinite(each) for each in value):
            scenes.add(entry, value)
        if entry.topic == topics.rows:
            picture = value if isinstance(value, Picture) else None
            waiting.append((entry, picture))
            size += _bytes_of(picture)
    while waiting:
        yield frame()


def _bytes_of(picture: Picture | None) -> int:
    return 0 if picture is None or picture.data is None else picture.format.length


_DEFAULT_RATE = 30


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export; see :class:`Timeline`.

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
    """Content of the bags.

    Attributes:
        size: width and height of the images; (0, 0): there are none.
        joints: names of the joints in every row.
        captured: frames were captured one by one: no sequence, and the camera pose is known.
        measured: images per second.
        fps: rows per second.
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
    """Read bags once, each the beginning of an episode; of each image only its stamp is kept.

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
