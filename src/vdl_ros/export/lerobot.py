"""Write a LeRobotDataset v3: rows in Parquet, images in MP4."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from vdl_ros.common.video_writer import VideoWriter
from vdl_ros.export import lerobot_tables as tables
from vdl_ros.export.messages import ExportError
from vdl_ros.export.resampling import MAX_EPISODE_S
from vdl_ros.export.statistics import ImageCounts, Statistics, merge, of_values
from vdl_ros.export.writer import Layout, Row, require_module

__all__ = ['LeRobotWriter']

_FILES_PER_CHUNK = 1000
_DATA_BYTES = 100 << 20
_VIDEO_BYTES = 200 << 20
# With the longest episode after it, a video stays below 1024 s; see MAX_EPISODE_S.
_VIDEO_S = 1000.0 - MAX_EPISODE_S
_EPISODES_AT_ONCE = 100
# How videos are encoded: the codec's name for readers, the encoder of FFmpeg and its options.
# Every second picture is a key frame, so that any is found fast.
_CODEC, _ENCODER = 'h264', 'libx264'
_VIDEO_OPTIONS: dict[str, str | int] = {'g': 2, 'crf': 18, 'preset': 'veryfast'}


class LeRobotWriter:
    """
    Writer of a LeRobotDataset.

    The rows of an episode are kept until it ends; of its images only histograms.
    """

    def __init__(self, root: Path, layout: Layout) -> None:
        """
        Start in a folder that exists.

        Raises:
            ExportError: pyarrow or PyAV is missing, or the images' size cannot be encoded.
        """
        self._av: Any = require_module('av', 'av', 'lerobot')
        self._arrow: Any = require_module('pyarrow', 'pyarrow', 'lerobot')
        self._parquet: Any = require_module('pyarrow.parquet', 'pyarrow', 'lerobot')
        if layout.size[0] % 2 or layout.size[1] % 2:
            raise ExportError(
                f'images of {layout.size[0]} x {layout.size[1]} pixels make no {_CODEC} video: '
                'width and height must be even; --format hdf5 takes any')
        self._root, self._layout = root, layout
        self._features = tables.features(layout, _CODEC, _VIDEO_OPTIONS)
        self._schema = tables.data_schema(self._arrow, self._features)
        self._data: Any = None
        self._episodes: Any = None
        self._video: VideoWriter | None = None
        self._data_file = self._video_file = -1
        self._videos: list[tuple[Path, int]] = []
        self._meta: list[dict[str, Any]] = []
        self._total: dict[str, Statistics] = {}
        self._frames = self._count = 0
        self._from_picture = 0
        self._task = ''
        self._rows: dict[str, list[Any]] = {}
        self._images = ImageCounts()

    def begin(self, task: str) -> None:
        """Begin an episode of one of the tasks."""
        self._task = task
        if self._data is None or self._data_path().stat().st_size >= _DATA_BYTES:
            self._next_data()
        if self._layout.has_images and (
                self._video is None or self._video.count >= _VIDEO_S * self._layout.fps
                or self._video.bytes_written >= _VIDEO_BYTES):
            self._next_video()
        self._from_picture = 0 if self._video is None else self._video.count
        self._rows = {name: [] for name in self._schema.names}
        self._images = ImageCounts()

    def add(self, row: Row) -> None:
        """Add a row to the episode."""
        number = len(self._rows['index'])
        values: dict[str, Any] = {
            'observation.state': row.state, 'action': row.action, tables.CAMERA: row.camera,
            'timestamp': number / self._layout.fps, 'frame_index': number,
            'episode_index': self._count, 'index': self._frames + number,
            'task_index': self._layout.tasks.index(self._task)}
        for name, column in self._rows.items():
            column.append(values[name])
        if row.image is not None:
            assert self._video is not None
            self._images.add(row.image)
            self._video.add(row.image)

    def end(self) -> None:
        """End the episode."""
        length = len(self._rows['index'])
        columns = {name: np.array(values, self._features[name]['dtype'])
                   for name, values in self._rows.items()}
        self._data.write_table(self._arrow.table(
            [self._column(name, values) for name, values in columns.items()],
            schema=self._schema))
        statistics = {name: of_values(values) for name, values in columns.items()}
        if self._layout.has_images:
            statistics[tables.IMAGE] = self._images.statistics()
        for name, found in statistics.items():
            self._total[name] = merge(self._total.get(name), found)
        key, fps = f'videos/{tables.IMAGE}', self._layout.fps
        video = {
            f'{key}/chunk_index': self._video_file // _FILES_PER_CHUNK,
            f'{key}/file_index': self._video_file % _FILES_PER_CHUNK,
            f'{key}/from_timestamp': self._from_picture / fps,
            f'{key}/to_timestamp': (self._from_picture + length) / fps}
        self._meta.append({
            'episode_index': self._count, 'tasks': [self._task], 'length': length,
            'data/chunk_index': self._data_file // _FILES_PER_CHUNK,
            'data/file_index': self._data_file % _FILES_PER_CHUNK,
            'dataset_from_index': self._frames, 'dataset_to_index': self._frames + length,
            **(video if self._layout.has_images else {}), **tables.flat_statistics(statistics),
            'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0})
        self._frames += length
        self._count += 1
        if len(self._meta) >= _EPISODES_AT_ONCE:
            self._write_episodes()

    def close(self) -> None:
        """Finish all files."""
        self._write_episodes()
        self._episodes.close()
        self._data.close()
        self._close_video()
        tables.write_tasks(self._arrow, self._parquet, self._root, self._layout.tasks)
        tables.write_statistics(self._root, self._total)
        tables.write_info(
            self._root, self._layout, self._features, self._frames, self._count)

    def abandon(self) -> None:
        """Close all files after an error."""
        for each in (self._data, self._episodes):
            if each is not None:
                each.close()
        if self._video is not None:
            self._video.close(discard=True)

    def verify(self) -> tuple[int, int]:
        """
        Read the finished files; return rows and episodes.

        Raises:
            ExportError: rows or pictures are missing, or times do not increase.
        """
        rows, episode, last = 0, -1, 0.0
        for path in sorted(self._root.glob('data/*/*.parquet')):
            for batch in self._parquet.ParquetFile(path).iter_batches(
                    columns=['index', 'episode_index', 'timestamp']):
                for index, number, time in zip(*(each.to_pylist() for each in batch.columns),
                                               strict=True):
                    begins = number == episode + 1 and time == 0.0
                    if index != rows or not (begins or (number == episode and time > last)):
                        raise ExportError(f'{path.name}: row {index} after row {rows - 1} is not '
                                          'the next one, or its time does not increase')
                    rows, episode, last = rows + 1, number, time
        for video, count in self._videos:
            self._check_video(video, count)
        pictures = sum(count for _, count in self._videos)
        if self._layout.has_images and pictures != rows:
            raise ExportError(f'{rows} rows, but {pictures} pictures in the videos')
        return rows, episode + 1

    def _check_video(self, path: Path, count: int) -> None:
        """
        Read the times of a finished video without decoding it.

        Raises:
            ExportError: it does not have ``count`` pictures, or one is not at its time.
        """
        found = 0
        with self._av.open(str(path)) as container:
            for packet in container.demux(container.streams.video[0]):
                if packet.pts is None:
                    continue
                if packet.pts * packet.time_base != Fraction(found, self._layout.fps):
                    raise ExportError(f'{path.name}: picture {found} is not at its time')
                found += 1
        if found != count:
            raise ExportError(f'{path.name}: {found} pictures instead of {count}')

    def _column(self, name: str, values: np.ndarray[Any, Any]) -> Any:
        if values.ndim == 1:
            return self._arrow.array(values)
        return self._arrow.FixedSizeListArray.from_arrays(
            self._arrow.array(values.reshape(-1)), values.shape[1])

    def _data_path(self) -> Path:
        chunk, file = divmod(self._data_file, _FILES_PER_CHUNK)
        return self._root / tables.DATA.format(chunk_index=chunk, file_index=file)

    def _next_data(self) -> None:
        if self._data is not None:
            self._data.close()
        self._data_file += 1
        path = self._data_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._data = self._parquet.ParquetWriter(path, self._schema, compression='snappy')

    def _next_video(self) -> None:
        self._close_video()
        self._video_file += 1
        chunk, file = divmod(self._video_file, _FILES_PER_CHUNK)
        self._video = VideoWriter(
            self._root / tables.VIDEO.format(
                video_key=tables.IMAGE, chunk_index=chunk, file_index=file),
            self._layout.fps, {**_VIDEO_OPTIONS, 'bf': 0}, _ENCODER)

    def _close_video(self) -> None:
        if self._video is not None:
            self._video.close()
            self._videos.append((self._video.path, self._video.count))
            self._video = None

    def _write_episodes(self) -> None:
        if not self._meta:
            return
        table = self._arrow.Table.from_pylist(self._meta)
        if self._episodes is None:
            path = self._root / tables.EPISODES.format(chunk_index=0, file_index=0)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._episodes = self._parquet.ParquetWriter(path, table.schema, compression='snappy')
        self._episodes.write_table(table)
        self._meta = []
