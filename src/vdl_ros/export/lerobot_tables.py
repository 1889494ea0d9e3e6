"""Tables and JSON files of a LeRobotDataset v3: names, types and shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vdl_ros.common.video_writer import PIXEL_FORMAT
from vdl_ros.export.statistics import Statistics
from vdl_ros.export.writer import Layout

__all__ = [
    'CAMERA', 'DATA', 'EPISODES', 'IMAGE', 'VIDEO', 'data_schema', 'features', 'flat_statistics',
    'write_info', 'write_statistics', 'write_tasks',
]

IMAGE = 'observation.images.camera'
#: LeRobot's name for the state of the environment.
CAMERA = 'observation.environment_state'
EPISODES = 'meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
DATA = 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
VIDEO = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'
_VERSION = 'v3.0'
_COUNTERS = {'timestamp': 'float32', 'frame_index': 'int64', 'episode_index': 'int64',
             'index': 'int64', 'task_index': 'int64'}


def features(
    layout: Layout, codec: str, options: Mapping[str, str | int],
) -> dict[str, dict[str, Any]]:
    """Return the features as ``meta/info.json`` describes them, videos by codec and options."""
    width, height = layout.size
    found: dict[str, dict[str, Any]] = {'observation.state': _vector(layout.joints)}
    if layout.motors:
        found['action'] = _vector(layout.motors)
    if layout.camera:
        found[CAMERA] = _vector(('camera_distance', 'camera_elevation', 'camera_azimuth'))
    video = {
        'dtype': 'video', 'shape': [height, width, 3], 'names': ['height', 'width', 'channels'],
        'info': {
            'video.height': height, 'video.width': width, 'video.codec': codec,
            'video.pix_fmt': PIXEL_FORMAT, 'video.fps': layout.fps, 'video.channels': 3,
            **{f'video.{name}': value for name, value in options.items()},
            'has_audio': False, 'is_depth_map': False}}
    if layout.has_images:
        found[IMAGE] = video
    return found | {name: {'dtype': kind, 'shape': [1], 'names': None}
                    for name, kind in _COUNTERS.items()}


def _vector(names: tuple[str, ...]) -> dict[str, Any]:
    return {'dtype': 'float32', 'shape': [len(names)], 'names': list(names)}


def data_schema(arrow: Any, described: dict[str, dict[str, Any]]) -> Any:
    """Return the Arrow schema of the rows: every feature but the video."""
    fields = []
    for name, feature in described.items():
        if feature['dtype'] == 'video':
            continue
        kind = getattr(arrow, feature['dtype'])()
        vector = feature['names'] is not None
        fields.append((name, arrow.list_(kind, feature['shape'][0]) if vector else kind))
    return arrow.schema(fields)


def flat_statistics(by_feature: dict[str, Statistics]) -> dict[str, list[Any]]:
    """Return an episode's statistics as columns ``stats/<feature>/<name>``."""
    return {f'stats/{feature}/{name}': value.tolist()
            for feature, statistics in by_feature.items()
            for name, value in statistics.items()}


def write_statistics(root: Path, by_feature: dict[str, Statistics]) -> None:
    """Write ``meta/stats.json``."""
    _write_json(root / 'meta' / 'stats.json', {
        feature: {name: np.asarray(value).tolist() for name, value in statistics.items()}
        for feature, statistics in by_feature.items()})


def write_tasks(arrow: Any, parquet: Any, root: Path, tasks: Sequence[str]) -> None:
    """
    Write ``meta/tasks.parquet``.

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
    parquet.write_table(arrow.table(
        {'task_index': range(len(tasks)), 'task': list(tasks)}, schema=schema),
                        root / 'meta' / 'tasks.parquet')


def write_info(
    root: Path, layout: Layout, described: dict[str, dict[str, Any]], frames: int, episodes: int,
) -> None:
    """Write ``meta/info.json``; ``described``: the :func:`features`."""
    _write_json(root / 'meta' / 'info.json', {
        'codebase_version': _VERSION, 'robot_type': layout.robot, 'total_episodes': episodes,
        'total_frames': frames, 'total_tasks': 1, 'chunks_size': 1000,
        'data_files_size_in_mb': 100, 'video_files_size_in_mb': 200, 'fps': layout.fps,
        'splits': {'train': f'0:{episodes}'}, 'data_path': DATA, 'video_path': VIDEO,
        'features': described})


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4) + '\n')
