"""What belongs to each image of a bag, and which rows images become: episodes, repeats, drops."""

import itertools
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vdl_ros.export.lerobot import MAX_EPISODE_S, Layout
from vdl_ros.export.messages import ArmBag, Entry, Picture
from vdl_ros.robots.contract import ActionPart
from vdl_ros.robots.takeover import executed_values

# Largest distance of an image from its row, periods: jitter is less, a lost image is more.
_TOLERANCE = 0.75
# Share of an image's distance from its row by which later rows are moved: camera clocks drift.
_FOLLOW = 0.1


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        fps: rows per second; 0: the rate of the images, rounded.
        gap: longest time without an image within an episode, s.
        episode_seconds: longest episode, s; 0: the maximum.
        resample: repeat and drop images where their rate varies; else that is an error.
        only_successes: leave out bags that are not labeled as a success.
        task: what the arm does, in words; '': what the labels of each bag say.
        namespace: of the topics, where a bag holds several robots.
    """

    fps: int = 0
    gap: float = 1.0
    episode_seconds: float = 0.0
    resample: bool = False
    only_successes: bool = False
    task: str = ''
    namespace: str = ''


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


def place_images(
    stamps_ns: Iterable[int], fps: int, options: ExportOptions,
) -> list[Placement]:
    """Place images one after the other, by their stamps.

    ValueError: one comes too early or too late, without resampling.
    """
    period = 1e9 / fps
    # A gap is longer than an uneven distance.
    max_gap = max(options.gap * 1e9, 2.0 * period)
    max_rows = max(1, round(min(options.episode_seconds or MAX_EPISODE_S, MAX_EPISODE_S) * fps))
    found: list[Placement] = []
    rows = first = last = 0
    phase = 0.0
    for number, stamp in enumerate(stamps_ns, 1):
        distance, repeats = stamp - last, 0
        if rows and distance == 0:
            found.append(Placement(dropped='the same stamp twice'))
            continue
        if rows and -max_gap <= distance < 0:
            found.append(Placement(dropped='older than the image before'))
            continue
        # Far back: the clock was reset.
        begins = not rows or distance < 0 or rows >= max_rows or distance > max_gap
        if begins:
            first, rows, phase = stamp, 0, 0.0
        elif options.resample:
            repeats = round((stamp - first) / period) - rows
            if repeats < 0:
                found.append(Placement(dropped='too early for a row of its own'))
                continue
        else:
            off = stamp - first - rows * period - phase
            phase += _FOLLOW * off
            if abs(off) > _TOLERANCE * period:
                raise ValueError(
                    f'image {number} comes {distance * 1e-9:.4f} s after the one before it and '
                    f'{abs(off) * 1e-9:.4f} s {"before" if off < 0 else "after"} the time of its '
                    f'row; {fps} frames/s allow {_TOLERANCE * period * 1e-9:.4f} s: --resample '
                    'drops and repeats images, --fps states another rate, --gap begins another '
                    'episode')
        rows += 1 + repeats
        last = stamp
        found.append(Placement(begins=begins, repeats=repeats))
    return found


# Messages that were recorded within this time of an image can belong to it.
_NEAR_NS = 2_000_000_000
# Joint states older than this are not used for an image.
_STALE_NS = 500_000_000
_DEFAULT_RATE = 30


class _Series:
    """The messages of a topic: when they were recorded, their stamps, and their numbers."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._logged, self._stamps, self._values = array('q'), array('q'), array('d')

    def add(self, entry: Entry, values: Iterable[float] = ()) -> None:
        self._logged.append(entry.logged_ns)
        self._stamps.append(entry.stamp_ns)
        self._values.extend(values)

    @property
    def stamps(self) -> NDArray[np.int64]:
        return np.array(self._stamps, np.int64)

    @property
    def logged(self) -> NDArray[np.int64]:
        return np.array(self._logged, np.int64)

    @property
    def values(self) -> NDArray[np.float64]:
        return np.array(self._values).reshape(-1, self._width)

    def at(self, rows: '_Series', oldest_ns: int) -> NDArray[np.float64]:
        """Return for each row the newest numbers at or before its stamp, NaN if there are none.

        Each number is the newest on its own: messages may hold some of them.
        """
        # A file without an index is in its own order.
        order = np.argsort(self.logged, kind='stable')
        logged, stamps, values = self.logged[order], self.stamps[order], self.values[order]
        columns, never = np.arange(self._width), np.iinfo(np.int64).min
        found = np.full((len(rows.stamps), self._width), np.nan)
        moments = rows.logged
        ends = np.searchsorted(logged, moments + _NEAR_NS, 'right')
        begins = np.searchsorted(logged, moments - _NEAR_NS)
        for row, (stamp, begin, end) in enumerate(zip(rows.stamps, begins, ends, strict=True)):
            # Of equal stamps the last.
            near, numbers = stamps[begin:end][::-1], values[begin:end][::-1]
            usable = (near <= stamp) & (near >= stamp - oldest_ns)
            if usable.any():
                times = np.where(usable[:, None] & np.isfinite(numbers), near[:, None], never)
                newest = times.argmax(0)
                found[row] = np.where(times[newest, columns] == never, np.nan,
                                      numbers[newest, columns])
        return found


@dataclass
class BagSummary(Layout):
    """Content of the bags.

    Attributes:
        measured: images per second.
        dropped: number of images that become no row, by reason.
        notes: lines for the user.
    """

    measured: float = 0.0
    images: int = 0
    rows: int = 0
    repeated: int = 0
    episodes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


@dataclass
class Synchronized:
    """The images of a bag, or messages of a robot without a camera, with what belongs to them.

    Attributes:
        stamps: int64 [images], ns.
        state: float64 [images, names], NaN where unknown.
        logged: when they were recorded, int64 [images], ns.
        commands: when each was recorded, ns, and its numbers, [commands, motors].
        placements: of each image; empty until :func:`scan_bags` has placed them.
    """

    stamps: NDArray[np.int64]
    state: NDArray[np.float64]
    logged: NDArray[np.int64]
    commands: tuple[NDArray[np.int64], NDArray[np.float64]]
    placements: list[Placement] = field(default_factory=list)

    def executed(self, parts: Sequence[ActionPart], fps: int) -> NDArray[np.float64]:
        """Return what was commanded from each row to the next, float64 [images, motors].

        Both count from when they were recorded, as in a training, where an image is known once it
        has arrived. Of the last row of an episode it is for a period; 0 of what becomes no row.
        """
        found = np.zeros((len(self.stamps), len(parts)))
        kept = np.array([not each.dropped for each in self.placements], np.bool_)
        if kept.any():
            begins = [each.begins for each in self.placements if not each.dropped]
            times, (given_at, given) = self.logged[kept], self.commands
            ends = times[[*begins[1:], True]] + round(1e9 / fps)
            origin = times.min()
            ticks = np.unique(np.concatenate([times, ends])) - origin
            values = executed_values((given_at - origin) / 1e9, given, ticks / 1e9, parts)
            found[kept] = values[np.searchsorted(ticks, times - origin)]
        return found


def scan_bags(
    bags: Sequence[ArmBag], options: ExportOptions, progress: Callable[[int], None],
) -> tuple[BagSummary, list[Synchronized]]:
    """Read bags once, each the beginning of an episode; of images only their stamps are kept."""
    topics, seen = bags[0].topics, set[str]()
    found = BagSummary(robot=topics.robot)
    scans = [_scan(bag, found, seen, progress) for bag in bags]
    found.motors = topics.motors if topics.command in seen else ()
    has_state = [np.isfinite(scan.state) for scan in scans]
    columns = np.any([each.any(axis=0) for each in has_state], axis=0)
    found.joints = tuple(itertools.compress(topics.names, columns))
    # Why images cannot become rows, '' if they can.
    reasons: list[NDArray[np.str_]] = [np.where(
        known[:, columns].all(1), '', _without(known[:, columns], found.joints))
        for known in has_state]
    found.measured = mean_rate(np.concatenate(
        [scan.stamps[why == ''] for scan, why in zip(scans, reasons, strict=True)]))
    found.fps = options.fps or _rate(bags[0], found)
    for scan, why in zip(scans, reasons, strict=True):
        placed = iter(place_images(scan.stamps[why == ''].tolist(), found.fps, options))
        scan.placements = [Placement(dropped=each) if each else next(placed)
                           for each in why.tolist()]
        found.dropped.update(each.dropped for each in scan.placements if each.dropped)
        found.repeated += sum(each.repeats for each in scan.placements)
        found.rows += sum(1 + each.repeats for each in scan.placements if not each.dropped)
        found.episodes += sum(each.begins for each in scan.placements)
    if not found.rows:
        raise ValueError('no image can become a row: ' + '; '.join(
            f'{count} {why}' for why, count in found.dropped.items()))
    return found, scans


def _without(known: NDArray[np.bool_], names: Sequence[str]) -> NDArray[np.str_]:
    """Return which names are missing in each row, as a reason."""
    kinds, kind = np.unique(known, axis=0, return_inverse=True)
    return np.array([
        f'without {", ".join(itertools.compress(names, ~each)) if each.any() else "joint states"} '
        'of their time' for each in kinds])[kind.ravel()]


def _scan(
    bag: ArmBag, found: BagSummary, seen: set[str], progress: Callable[[int], None],
) -> Synchronized:
    topics = bag.topics
    rows, commands = _Series(0), _Series(len(topics.motors))
    states = {name: _Series(len(topics.names)) for name in topics.states}
    for entry in bag.read(pixels=False):
        seen.add(entry.topic)
        value = entry.value
        if isinstance(value, dict):
            known = [value.get(name, math.nan) for name in topics.names]
            if any(map(math.isfinite, known)):
                states[entry.topic].add(entry, known)
        elif not isinstance(value, Picture) and all(map(math.isfinite, value)):
            commands.add(entry, value)
        if entry.topic == topics.rows:
            found.images += 1
            if isinstance(value, Picture):
                found.size = value.size if found.size == (0, 0) else found.size
                if value.size != found.size:
                    width, height = value.size
                    raise ValueError(
                        f'{bag.path}: image {found.images} is {width} x {height} pixels, those '
                        f'before it {found.size[0]} x {found.size[1]}; a data set has one size')
            rows.add(entry)
            progress(found.images)
    if not len(rows.stamps):
        broken = '; '.join(f'{count} x {why}' for why, count in bag.refused.most_common(3))
        advice = '; --no-images --resample --fps 10 exports the rest'
        raise ValueError(f'{bag.path}: no {"image" if topics.has_camera else "message"} on '
                         f'{topics.rows}{broken and ": " + broken}'
                         f'{advice if topics.has_camera else ""}')
    state = np.full((len(rows.stamps), len(topics.names)), np.nan)
    for each in states.values():
        values = each.at(rows, _STALE_NS)
        state = np.where(np.isfinite(values), values, state)
    if not np.isfinite(state).any():
        raise ValueError(f'{bag.path}: {len(rows.stamps)} images, but no '
                         f'{" or ".join(topics.states)} at their times: the positions of the '
                         'joints are unknown')
    return Synchronized(rows.stamps, state, rows.logged, (commands.logged, commands.values))


def _rate(bag: ArmBag, found: BagSummary) -> int:
    if not found.measured:
        return _DEFAULT_RATE
    if found.measured < 0.75:
        raise ValueError(f'{bag.path}: an image every {1.0 / found.measured:.1f} s; a data set '
                         'has at least one a second')
    return max(1, round(found.measured))
