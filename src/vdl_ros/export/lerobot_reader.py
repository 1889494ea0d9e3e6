"""Read a LeRobotDataset v3.0: the numbers of its rows, its episodes, and their pictures."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.images import check_size
from vdl_ros.common.memory import limited_memory
from vdl_ros.common.quoting import quoted
from vdl_ros.common.schema import matching, read_json
from vdl_ros.export.lerobot_check import TOLERANCE_S, load_pyarrow, place

INFO = 'meta/info.json'
_STATE, _ACTION, _EPISODE = 'observation.state', 'action', 'episode_index'
_REWARD, _DONE, SUCCESS = 'next.reward', 'next.done', 'next.success'


class _Feature(msgspec.Struct):
    names: Any = None
    dtype: str = ''


class _Info(msgspec.Struct):
    codebase_version: Annotated[str, matching(
        r'v3\..*', 'v3.0 of LeRobotDataset; its convert_dataset_v21_to_v30 makes it of v2.1')]
    fps: Annotated[float, msgspec.Meta(ge=0.1, le=1000.0)]
    features: dict[str, _Feature]
    robot_type: str | None = None
    video_path: str | None = None


@dataclass(frozen=True)
class LeRobotData:
    """The rows of a data set.

    Attributes:
        fps: rows per second.
        state_names, action_names: of the numbers; () if the data set does not name them.
        states: float32 [N, D]; ``actions`` likewise.
        episodes: number of each row's episode, int64 [N].
        rewards, done: float32 and bool [N], the reward of each row's action, and whether it
            terminated the episode; None if the data set does not have both.
        success: bool [N], whether the task was done there; None if the data set does not say it.
        features: kind of each feature by name, such as ``float32`` or ``video``.
        video_path: pattern of the files of videos.
    """

    robot: str
    fps: float
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    states: NDArray[np.float32]
    actions: NDArray[np.float32]
    episodes: NDArray[np.int64]
    rewards: NDArray[np.float32] | None = None
    done: NDArray[np.bool_] | None = None
    success: NDArray[np.bool_] | None = None
    features: Mapping[str, str] = field(default_factory=dict)
    video_path: str = ''


def read_lerobot(folder: Path) -> LeRobotData:
    """Return the rows of the data set in a folder; ValueError: it has none."""
    info = read_json(folder / INFO, _Info)
    has_outcomes = {_REWARD, _DONE} <= info.features.keys()
    has_success = SUCCESS in info.features
    columns = _columns(folder, (_STATE, _ACTION, *((_REWARD, _DONE) if has_outcomes else ()),
                                *((SUCCESS,) if has_success else ())))
    names = []
    for feature in (_STATE, _ACTION):
        given = info.features.get(feature, _Feature()).names
        fits = isinstance(given, list) and len(given) == columns[feature].shape[1]
        names.append(tuple(map(str, given)) if fits else ())
    rewards, done = (columns[_REWARD][:, 0], columns[_DONE][:, 0] > 0.5) if has_outcomes else (
        None, None)
    return LeRobotData(
        info.robot_type or '', info.fps, names[0], names[1], columns[_STATE], columns[_ACTION],
        columns[_EPISODE], rewards, done, columns[SUCCESS][:, 0] > 0.5 if has_success else None,
        {name: each.dtype for name, each in info.features.items()}, info.video_path or '')


def _columns(folder: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return ``names`` of numbers, float32 [N, D], and the numbers of episodes, int64 [N]."""
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in (*names, _EPISODE)}

    def take(table: Any) -> None:
        found[_EPISODE].append(np.asarray(table[_EPISODE].to_numpy(), np.int64))
        for name in names:
            found[name].append(_vectors(table[name]))

    # A column of equal numbers has hardly any bytes in a file, whatever the file says of its size.
    with limited_memory(str(folder)):
        _read_tables(folder, 'data/*/*.parquet', list(found), take)
        if not sum(map(len, found[_EPISODE])):
            raise ValueError(f'{folder}: no rows are in data/*/*.parquet')
        return {name: np.concatenate(parts) for name, parts in found.items()}


def _read_tables(
    folder: Path, pattern: str, names: list[str], take: Callable[[Any], None],
) -> None:
    """Call ``take`` with columns of each file; ValueError: one cannot be read."""
    arrow = load_pyarrow()
    for file in sorted(folder.glob(pattern)):
        try:
            # Further threads would reserve memory that they do not use.
            table = arrow.parquet.ParquetFile(file).read(names, use_threads=False)
            if any(table[name].null_count for name in names):
                raise ValueError('rows without a value')
            take(table)
        except MemoryError:
            raise
        except (arrow.ArrowException, KeyError, OSError, TypeError, ValueError) as error:
            reason = ' '.join(str(error).split())[:200]
            raise ValueError(f'{file} cannot be read: {quoted(reason)}') from None


def _vectors(column: Any) -> NDArray[np.float32]:
    """Return a column of lists of numbers, or of numbers, float32 [rows, D]."""
    values = column.combine_chunks()
    if hasattr(column.type, 'value_type'):
        values = values.flatten()
    values = values.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in 'fiub':
        raise ValueError(f'rows of {column.type} instead of numbers, or lists of them')
    return np.asarray(values, np.float32).reshape(len(column), -1)


class LeRobotEpisode(NamedTuple):
    """An episode: its task, and file and begin, s, of its pictures by feature."""

    number: int
    task: str
    videos: dict[str, tuple[Path, float]]


def read_episodes(folder: Path, data: LeRobotData) -> list[LeRobotEpisode]:
    """Return the episodes of a data set that :func:`check_dataset` has found good."""
    videos = [name for name, kind in data.features.items() if kind == 'video']
    places = {name: [f'videos/{name}/{each}' for each in (
        'chunk_index', 'file_index', 'from_timestamp')] for name in videos}
    rows: list[dict[str, Any]] = []
    with limited_memory(str(folder)):
        _read_tables(folder, 'meta/episodes/*/*.parquet',
                     [_EPISODE, 'tasks', *itertools.chain(*places.values())],
                     lambda table: rows.extend(table.to_pylist()))
    found = []
    for row in rows:
        at = {name: [row[each] for each in keys] for name, keys in places.items()}
        found.append(LeRobotEpisode(row[_EPISODE], ' '.join(map(str, row['tasks'][:1])), {
            name: (folder / place(data.video_path, chunk, file, name), begin)
            for name, (chunk, file, begin) in at.items()}))
    return found


def read_pictures(
    path: Path, begin: float, count: int, fps: float,
) -> Iterator[NDArray[np.uint8]]:
    """Yield the pictures of an episode, uint8 [H, W, 3], from ``begin`` of a video, s.

    ValueError: one of ``count`` cannot be decoded, or is not at its time.
    """
    import av

    from vdl_ros.common.video_file import opened

    number, reason = 0, 'there is none at its time'
    try:
        with opened(path) as found:
            container: Any = found
            stream = container.streams.video[0]
            check_size(stream.width, stream.height)
            # To the last key frame before it.
            container.seek(int(begin / stream.time_base), stream=stream)
            for picture in container.decode(stream):
                late = float(picture.pts * stream.time_base) - begin - number / fps
                if late > TOLERANCE_S:
                    break
                if late >= -TOLERANCE_S:
                    yield picture.to_ndarray(format='rgb24')
                    number += 1
                    if number == count:
                        return
    except (av.FFmpegError, OSError, IndexError, TypeError, ValueError) as error:
        reason = ' '.join(str(error).removeprefix(f'{path}: ').split())[:200]
    raise ValueError(f'{path}: picture {number} of {count} from {begin:.3f} s on cannot be '
                     f'decoded: {quoted(reason)}')
