"""Write a LeRobotDataset v3.0: rows as Parquet, images as H.264, statistics of both."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.video_writer import PIXEL_FORMAT, VideoWriter
from vdl_ros.export.lerobot_check import ARROW, COUNTERS, VERSION, check_dataset, load_pyarrow

#: Longer episodes are split: LeRobot finds a video's pictures by float32 seconds within 0.0001 s,
#: a resolution that float32 does not have beyond 1024 s.
MAX_EPISODE_S = 600.0


@dataclass
class Layout:
    """Layout of the rows of a data set.

    Attributes:
        size: width and height of the images; (0, 0): there are none.
        joints: names of the numbers in ``state``.
        motors: names of the motors in ``action``; none if the bag holds no commands.
        fps: rows per second.
        tasks: what the arm does in the episodes, in words, each text once.
        rewards: whether rows have rewards and ends.
        successes: whether episodes say if their task was done.
    """

    size: tuple[int, int] = (0, 0)
    joints: tuple[str, ...] = ()
    motors: tuple[str, ...] = ()
    fps: int = 0
    tasks: tuple[str, ...] = ()
    robot: str = 'owi535'
    rewards: bool = False
    successes: bool = False

    @property
    def has_images(self) -> bool:
        return self.size != (0, 0)


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        image: RGB, uint8 [height, width, 3]; None without images.
        state: float32 [D]; of the arm the positions of its joints, rad.
        action: commands of the motors, float32 [motors]; None without commands.
        reward, done: of the action, and whether it terminated the episode.
    """

    image: NDArray[np.uint8] | None
    state: NDArray[np.float32]
    action: NDArray[np.float32] | None
    reward: float = 0.0
    done: bool = False


_QUANTILES = {'q01': 0.01, 'q10': 0.10, 'q50': 0.50, 'q90': 0.90, 'q99': 0.99}
# Larger images are subsampled to about this size.
_COUNTED_SIZE = 160
# By name: min, max, mean, std, the quantiles, and count, int64 [1].
Statistics = dict[str, NDArray[Any]]


def _of_values(values: NDArray[Any]) -> Statistics:
    """Return the statistics, float64 [1] or [D] each, of an episode's [rows] or [rows, D]."""
    table = values.reshape(len(values), -1).astype(np.float64)
    found: Statistics = {
        'min': table.min(axis=0), 'max': table.max(axis=0), 'mean': table.mean(axis=0),
        'std': table.std(axis=0), 'count': np.array([len(table)])}
    quantiles = np.quantile(table, list(_QUANTILES.values()), axis=0)
    return found | dict(zip(_QUANTILES, quantiles, strict=True))


def _count_levels(counts: NDArray[np.int64], image: NDArray[np.uint8]) -> None:
    """Add the pixels of an image to histograms by colour, [3, 256]."""
    step = max(1, max(image.shape[:2]) // _COUNTED_SIZE)
    pixels = image[::step, ::step].reshape(-1, 3)
    for channel in range(3):
        counts[channel] += np.bincount(pixels[:, channel], minlength=256)


def _of_counts(counts: NDArray[np.int64], images: int) -> Statistics:
    """Return the statistics, float64 [3, 1, 1] each, of values from 0 to 1."""
    levels = np.arange(256) / 255.0
    total = counts.sum(axis=1)
    mean = counts @ levels / total
    found: Statistics = {
        'min': levels[(counts > 0).argmax(axis=1)],
        'max': levels[255 - (counts[:, ::-1] > 0).argmax(axis=1)],
        'mean': mean, 'std': np.sqrt(np.maximum(0.0, counts @ levels**2 / total - mean**2))}
    below = counts.cumsum(axis=1)
    for name, share in _QUANTILES.items():
        found[name] = levels[(below >= share * total[:, None]).argmax(axis=1)]
    found = {name: value.reshape(3, 1, 1) for name, value in found.items()}
    return found | {'count': np.array([images])}


def _merge(first: Statistics | None, second: Statistics) -> Statistics:
    """Return the statistics of two sets of rows together.

    Quantiles cannot be merged; the outer one of the two is a bound.
    """
    if first is None:
        return second
    counts = float(first['count'][0]), float(second['count'][0])
    share = counts[1] / sum(counts)
    distance = second['mean'] - first['mean']
    mean = first['mean'] + share * distance
    variance = ((1.0 - share) * first['std']**2 + share * second['std']**2
                + share * (1.0 - share) * distance**2)
    found: Statistics = {
        'min': np.minimum(first['min'], second['min']),
        'max': np.maximum(first['max'], second['max']), 'mean': mean, 'std': np.sqrt(variance),
        'count': first['count'] + second['count']}
    for name, share in _QUANTILES.items():
        outer = np.minimum if share <= 0.5 else np.maximum
        found[name] = outer(first[name], second[name])
    return found


_IMAGE = 'observation.images.camera'
_EPISODES = 'meta/episodes/chunk-000/file-000.parquet'
_DATA = 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
_VIDEO = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'


def _features(layout: Layout) -> dict[str, dict[str, Any]]:
    """Return the features as ``meta/info.json`` describes them."""
    def vector(names: tuple[str, ...]) -> dict[str, Any]:
        return {'dtype': 'float32', 'shape': [len(names)], 'names': list(names)}

    width, height = layout.size
    found: dict[str, dict[str, Any]] = {'observation.state': vector(layout.joints)}
    if layout.motors:
        found['action'] = vector(layout.motors)
    if layout.rewards:
        found |= {'next.reward': {'dtype': 'float32', 'shape': [1], 'names': None},
                  'next.done': {'dtype': 'bool', 'shape': [1], 'names': None}}
    if layout.successes:
        found['next.success'] = {'dtype': 'bool', 'shape': [1], 'names': None}
    video = {
        'dtype': 'video', 'shape': [height, width, 3], 'names': ['height', 'width', 'channels'],
        'info': {
            'video.height': height, 'video.width': width, 'video.codec': _CODEC,
            'video.pix_fmt': PIXEL_FORMAT, 'video.fps': layout.fps, 'video.channels': 3,
            **{f'video.{name}': value for name, value in _VIDEO_OPTIONS.items()},
            'has_audio': False, 'is_depth_map': False}}
    if layout.has_images:
        found[_IMAGE] = video
    return found | {name: {'dtype': kind, 'shape': [1], 'names': None}
                    for name, kind in COUNTERS.items()}


def _tasks_table(arrow: Any, tasks: Sequence[str]) -> Any:
    """Return the content of ``meta/tasks.parquet``.

    LeRobot reads it with pandas and finds a task by the data frame's index, so the metadata of
    pandas about the index is added.
    """
    def column(name: str, pandas_type: str, numpy_type: str) -> dict[str, Any]:
        return {'name': name, 'field_name': name, 'pandas_type': pandas_type,
                'numpy_type': numpy_type, 'metadata': None}

    note = {
        'index_columns': ['task'], 'column_indexes': [],
        'columns': [column('task_index', 'int64', 'int64'), column('task', 'unicode', 'object')],
        'creator': {'library': 'pyarrow', 'version': arrow.__version__}, 'pandas_version': '2.0.0'}
    schema = arrow.schema([('task_index', arrow.int64()), ('task', arrow.string())],
                          metadata={'pandas': json.dumps(note)})
    return arrow.table({'task_index': range(len(tasks)), 'task': list(tasks)}, schema=schema)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4) + '\n')


_FILES_PER_CHUNK = 1000
_DATA_BYTES = 100 << 20
_VIDEO_BYTES = 200 << 20
# With the longest episode after it, a video stays below 1024 s; see MAX_EPISODE_S.
_VIDEO_S = 1000.0 - MAX_EPISODE_S
_EPISODES_AT_ONCE = 100
# How videos are encoded: the codec's name for readers, and options of the encoder.
# Every second picture is a key frame, so that any is found fast.
_CODEC = 'h264'
_VIDEO_OPTIONS: dict[str, str | int] = {'g': 2, 'crf': 18, 'preset': 'veryfast'}


def _place(number: int) -> dict[str, int]:
    return dict(zip(('chunk_index', 'file_index'), divmod(number, _FILES_PER_CHUNK), strict=True))


class LeRobotWriter:
    """Writer of a LeRobotDataset; keeps the rows of an episode, of its images histograms."""

    def __init__(self, root: Path, layout: Layout) -> None:
        self._arrow = load_pyarrow()
        if layout.size[0] % 2 or layout.size[1] % 2:
            raise ValueError(
                f'images of {layout.size[0]} x {layout.size[1]} pixels make no {_CODEC} video: '
                'width and height must be even')
        self._root, self._layout = root, layout
        self._features = _features(layout)
        types = {name: getattr(self._arrow, ARROW.get(each['dtype'], each['dtype']))()
                 for name, each in self._features.items() if each['dtype'] != 'video'}
        # LeRobot has one number as a column of numbers, not of lists.
        self._schema = self._arrow.schema([
            (name, kind if (size := self._features[name]['shape'][0]) == 1
             else self._arrow.list_(kind, size)) for name, kind in types.items()])
        self._data: Any = None
        self._episodes: Any = None
        self._video: VideoWriter | None = None
        self._data_file = self._video_file = -1
        self._meta: list[dict[str, Any]] = []
        self._total: dict[str, Statistics] = {}
        self._frames = self._count = 0

    def write(self, task: str, rows: Iterable[Row], success: bool = False) -> None:
        """Write an episode; ``success`` is of its last row."""
        if self._data is None or self._data_path().stat().st_size >= _DATA_BYTES:
            self._next_data()
        if self._layout.has_images and (
                self._video is None or self._video.count >= _VIDEO_S * self._layout.fps
                or self._video.bytes_written >= _VIDEO_BYTES):
            self._next_video()
        first_picture = 0 if self._video is None else self._video.count
        lists: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        counts, length = np.zeros((3, 256), np.int64), 0
        for row in rows:
            values: dict[str, Any] = {
                'observation.state': row.state, 'action': row.action,
                'next.reward': row.reward, 'next.done': row.done, 'next.success': False,
                'timestamp': length / self._layout.fps, 'frame_index': length,
                'episode_index': self._count, 'index': self._frames + length,
                'task_index': self._layout.tasks.index(task)}
            for name, found in lists.items():
                found.append(values[name])
            if row.image is not None:
                assert self._video is not None
                _count_levels(counts, row.image)
                self._video.add(row.image)
            length += 1
        if self._layout.successes:
            lists['next.success'][-1] = success
        columns = {name: np.array(found, self._features[name]['dtype'])
                   for name, found in lists.items()}
        self._data.write_table(self._arrow.table(
            [self._column(each) for each in columns.values()], schema=self._schema))
        statistics = {name: _of_values(values) for name, values in columns.items()}
        if self._layout.has_images:
            statistics[_IMAGE] = _of_counts(counts, length)
        for name, each in statistics.items():
            self._total[name] = _merge(self._total.get(name), each)
        self._meta.append(self._episode(task, length, first_picture, statistics))
        self._frames += length
        self._count += 1
        if len(self._meta) >= _EPISODES_AT_ONCE:
            self._write_episodes()

    def _episode(
        self, task: str, length: int, first_picture: int, statistics: dict[str, Statistics],
    ) -> dict[str, Any]:
        key, fps = f'videos/{_IMAGE}', self._layout.fps
        video = {
            **{f'{key}/{name}': value for name, value in _place(self._video_file).items()},
            f'{key}/from_timestamp': first_picture / fps,
            f'{key}/to_timestamp': (first_picture + length) / fps}
        return {
            'episode_index': self._count, 'tasks': [task], 'length': length,
            **{f'data/{name}': value for name, value in _place(self._data_file).items()},
            'dataset_from_index': self._frames, 'dataset_to_index': self._frames + length,
            **(video if self._layout.has_images else {}),
            **{f'stats/{feature}/{name}': value.tolist()
               for feature, found in statistics.items() for name, value in found.items()},
            'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0}

    def close(self) -> tuple[int, int]:
        """Finish the files and read them; return rows and episodes, or raise ValueError."""
        self._write_episodes()
        self._episodes.close()
        self._data.close()
        self._close_video()
        layout, meta = self._layout, self._root / 'meta'
        self._arrow.parquet.write_table(
            _tasks_table(self._arrow, layout.tasks), meta / 'tasks.parquet')
        _write_json(meta / 'stats.json', {
            feature: {name: np.asarray(value).tolist() for name, value in statistics.items()}
            for feature, statistics in self._total.items()})
        _write_json(meta / 'info.json', {
            'codebase_version': VERSION, 'robot_type': layout.robot,
            'total_episodes': self._count, 'total_frames': self._frames,
            'total_tasks': len(layout.tasks), 'chunks_size': _FILES_PER_CHUNK,
            'data_files_size_in_mb': 100, 'video_files_size_in_mb': 200, 'fps': layout.fps,
            'splits': {'train': f'0:{self._count}'}, 'data_path': _DATA,
            'video_path': _VIDEO, 'features': self._features})
        found = check_dataset(self._root)
        if found.problems:
            raise ValueError(found.problems[0])
        return found.rows, found.episodes

    def _column(self, values: np.ndarray[Any, Any]) -> Any:
        if values.ndim == 1 or values.shape[1] == 1:
            return self._arrow.array(values.reshape(-1))
        return self._arrow.FixedSizeListArray.from_arrays(
            self._arrow.array(values.reshape(-1)), values.shape[1])

    def _data_path(self) -> Path:
        return self._root / _DATA.format(**_place(self._data_file))

    def _next_data(self) -> None:
        if self._data is not None:
            self._data.close()
        self._data_file += 1
        path = self._data_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._data = self._arrow.parquet.ParquetWriter(path, self._schema)

    def _next_video(self) -> None:
        self._close_video()
        self._video_file += 1
        self._video = VideoWriter(
            self._root / _VIDEO.format(video_key=_IMAGE, **_place(self._video_file)),
            self._layout.fps, {**_VIDEO_OPTIONS, 'bf': 0})

    def _close_video(self) -> None:
        if self._video is not None:
            self._video.close()
            self._video = None

    def _write_episodes(self) -> None:
        if not self._meta:
            return
        table = self._arrow.Table.from_pylist(self._meta)
        if self._episodes is None:
            path = self._root / _EPISODES
            path.parent.mkdir(parents=True, exist_ok=True)
            self._episodes = self._arrow.parquet.ParquetWriter(path, table.schema)
        self._episodes.write_table(table)
        self._meta = []
