"""Export bags to a data set: scan, write rows, check, rename to the output folder."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from vdl_ros.bags.reader import EpisodeLabels, find_bags, read_labels
from vdl_ros.common.files import new_folder
from vdl_ros.export.lerobot import LeRobotWriter, Row
from vdl_ros.export.lerobot_check import load_pyarrow
from vdl_ros.export.messages import ARM, ArmBag, BagTopics, Picture
from vdl_ros.export.synchronizer import BagSummary, ExportOptions, Synchronized, scan_bags

# Where neither the user nor the bag names one.
_TASK = 'move the arm'
#: Called with the name of the stage, what is done of it, and its total (0: unknown).
Progress = Callable[[str, int, int], None]


def export(
    path: Path, output: Path, options: ExportOptions, topics: BagTopics = ARM,
    progress: Progress = lambda *_: None,
) -> BagSummary:
    """Write a data set; memory does not grow with the bag.

    Args:
        path: of the bag, or of a folder of episodes.
        output: a folder that does not exist yet.

    Raises:
        ValueError: nothing was exported.
    """
    load_pyarrow()  # known to be missing before the bags are read
    bags, labels, failures = _bags(path, options, topics)
    with new_folder(output) as root:
        found, scans = scan_bags(bags, options, lambda count: progress('reading', count, 0))
        tasks = [options.task or each.task or _TASK for each in labels]
        found.tasks = tuple(dict.fromkeys(tasks))
        found.successes = all(each.success is not None for each in labels)
        writer = LeRobotWriter(root, found)
        numbers = itertools.count(1)

        def reported(row: Row) -> Row:
            progress('writing', next(numbers), found.rows)
            return row

        for bag, scan, task, label in zip(bags, scans, tasks, labels, strict=True):
            # Of a bag that a gap divides only the last episode comes to the end.
            last = sum(each.begins for each in scan.placements if not each.dropped)
            for number, episode in itertools.groupby(_rows(bag, scan, found), itemgetter(0)):
                writer.write(task, (reported(row) for _, row in episode),
                             success=bool(label.success) and number == last)
        rows, episodes = writer.close()
        if (rows, episodes) != (found.rows, found.episodes):
            raise ValueError(f'{path}: {rows} rows in {episodes} episodes were written instead '
                             f'of {found.rows} in {found.episodes}; did the bag change?')
    found.notes = _notes(bags, found)
    if failures:
        found.notes.append(f'{failures} episodes were left out that were saved as a failure')
    return found


def _bags(
    path: Path, options: ExportOptions, topics: BagTopics,
) -> tuple[list[ArmBag], list[EpisodeLabels], int]:
    """Return the bags, the labels of each, and how many were left out as failures."""
    bags, labels, failures = [], [], 0
    for each in find_bags(path):
        found = read_labels(each)
        if options.only_successes and not found.success:
            failures += 1
            continue
        bags.append(ArmBag(each, options.namespace, topics))
        labels.append(found)
    if not bags:
        raise ValueError(f'{path}: none of {failures} episodes was saved as a success')
    return bags, labels, failures


def _rows(bag: ArmBag, scan: Synchronized, found: BagSummary) -> Iterator[tuple[int, Row]]:
    """Yield the number of its episode in the bag and each row."""
    columns = [bag.topics.names.index(name) for name in found.joints]
    state = scan.state[:, columns].astype(np.float32)
    command = scan.executed(bag.topics.parts, found.fps).astype(np.float32)
    images = (entry.value for entry in bag.read(pixels=True) if entry.topic == bag.topics.rows)
    last: Row | None = None
    episode = 0
    for index, (value, placement) in enumerate(zip(images, scan.placements, strict=False)):
        if placement.dropped:
            continue
        for _ in range(placement.repeats):
            assert last is not None
            yield episode, last
        episode += placement.begins
        last = Row(value.pixels if isinstance(value, Picture) else None, state[index],
                   command[index] if found.motors else None)
        yield episode, last


def _notes(bags: Sequence[ArmBag], found: BagSummary) -> list[str]:
    notes = [fault for bag in bags for fault in bag.faults]
    refused = sum((bag.refused for bag in bags), Counter())
    notes += [f'left out {count} messages: {why}' for why, count in refused.most_common(5)]
    noun = 'images' if bags[0].topics.has_camera else 'messages'
    notes += [f'{count} {noun} became no row: {why}' for why, count in found.dropped.items()]
    missing = [each for each in bags[0].topics.names if each not in found.joints]
    if missing:
        notes.append(f'never known, so that rows do not have it: {", ".join(missing)}')
    if found.repeated:
        notes.append(f'{found.repeated} rows repeat the image before')
    if not found.motors:
        notes.append(f'no {bags[0].topics.command}: rows have no action')
    if abs(found.measured - found.fps) > 0.01 * found.fps and not found.repeated:
        notes.append(f'{noun} came at {found.measured:.2f} Hz, rows are numbered at {found.fps}')
    return notes
