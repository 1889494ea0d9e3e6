"""Export a bag: survey, rows, check, and only then the name that was asked for."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.export.bag_scan import Choices, Survey, reason_against, survey, timeline_of
from vdl_ros.export.lerobot import LeRobotWriter
from vdl_ros.export.messages import Bag, ExportError
from vdl_ros.export.robomimic import RobomimicWriter
from vdl_ros.export.synchronizer import Frame, join
from vdl_ros.export.writer import Layout, Row, Writer, library

__all__ = ['FORMATS', 'Report', 'export']

FORMATS: dict[str, Callable[[Path, Layout], Writer]] = {
    'lerobot': LeRobotWriter, 'hdf5': RobomimicWriter}
_NEEDS = {'lerobot': 'pyarrow', 'hdf5': 'h5py'}
#: ArmStatus what is done, how much of it, and of how much, 0 if that is not known.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Report:
    """
    What was exported.

    Attributes:
        survey: what the bag holds.
        rows, episodes: counted in the finished files.
        notes: what the user should know, in words.
    """

    survey: Survey
    rows: int
    episodes: int
    notes: list[str]


def export(
    path: Path, output: Path, format_name: str, choices: Choices, *, task: str = 'move the arm',
    namespace: str = '', valid: float = 0.0, progress: Progress = lambda *_: None,
) -> Report:
    """
    Write a data set; its memory does not grow with the bag.

    Args:
        path: of the bag.
        output: a folder that does not exist yet.
        format_name: one of :data:`FORMATS`.
        choices: rate and episodes.
        task: what the arm does, in words.
        namespace: of the topics, where a bag holds several arms.
        valid: share of the episodes for validation (hdf5).
        progress: called for every image.

    Raises:
        ExportError: nothing was exported; why.
        OSError: a disk that is full, a folder that may not be written.
    """
    if output.exists():
        raise ExportError(f'{output} exists; name another output')
    library(_NEEDS[format_name], _NEEDS[format_name], format_name)
    bag = Bag(path, namespace)
    output.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that the last step is one rename.
    folder = Path(tempfile.mkdtemp(prefix=f'.{output.name}.partial-', dir=output.parent))
    try:
        root = folder / 'dataset'
        root.mkdir()
        found = survey(bag, choices, lambda count: progress('reading', count, 0))
        layout = Layout(found.size, found.joints, JOINTS if found.commanded else (),
                        found.captured, found.fps, task, valid)
        writer = FORMATS[format_name](root, layout)
        try:
            for row, begins in _rows(bag, found, choices, progress):
                if begins is None:
                    writer.end()
                    continue
                if begins:
                    writer.begin()
                assert row is not None
                writer.add(row)
            writer.close()
        except BaseException:
            # What the files have to say now is less than why they are abandoned.
            with contextlib.suppress(Exception):
                writer.abandon()
            raise
        rows, episodes = writer.verify()
        if (rows, episodes) != (found.rows, found.episodes):
            raise ExportError(f'{path}: {rows} rows in {episodes} episodes were written instead '
                              f'of {found.rows} in {found.episodes}; did the bag change?')
        root.rename(output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Report(found, rows, episodes, _notes(bag, found))


def _rows(
    bag: Bag, found: Survey, choices: Choices, progress: Progress,
) -> Iterator[tuple[Row | None, bool | None]]:
    """Yield each row and whether it begins an episode; (None, None) after an episode's last."""
    timeline = timeline_of(found, choices)
    last: Row | None = None
    written = 0
    for frame in join(bag.read(pixels=True)):
        if reason_against(found, frame):
            continue
        placement = timeline.place(frame.stamp_ns)
        if placement.dropped:
            continue
        if placement.begins and last is not None:
            yield None, None
        row = _row(found, frame)
        period = 1e9 / found.fps
        for number in range(placement.repeats):
            assert last is not None
            again = last.stamp_ns + round((number + 1) * period)
            # Not beyond the image that follows.
            yield replace(last, stamp_ns=min(
                again, row.stamp_ns - placement.repeats + number)), False
        yield row, placement.begins
        last = row
        written += 1 + placement.repeats
        progress('writing', written, found.rows)
    if last is not None:
        yield None, None


def _row(found: Survey, frame: Frame) -> Row:
    assert frame.joints is not None
    return Row(
        frame.picture.pixels(),
        np.array([frame.joints[name] for name in found.joints], np.float32),
        np.array(frame.motors, np.float32) if found.commanded else None,
        np.array(frame.camera, np.float32) if found.captured else None,
        frame.stamp_ns)


def _notes(bag: Bag, found: Survey) -> list[str]:
    notes = []
    if bag.cut_off:
        notes.append(f'{bag.cut_off}: exported up to there')
    notes += [f'left out {count} messages: {why}' for why, count in bag.refused.most_common(5)]
    notes += [f'{count} images became no row: {why}'
              for why, count in found.dropped.items() if count]
    if found.repeated:
        notes.append(f'{found.repeated} rows show the image before once more')
    if not found.commanded:
        notes.append('no arm/motors_sent: rows have no action')
    if found.captured:
        notes.append('captured frame by frame: rows are no film, their times only number them')
    elif abs(found.measured - found.fps) > 0.01 * found.fps and not found.repeated:
        notes.append(f'images came at {found.measured:.2f} Hz, rows are numbered at {found.fps}')
    return notes
