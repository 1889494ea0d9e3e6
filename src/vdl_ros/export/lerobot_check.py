"""What in a folder differs from the format LeRobotDataset v3.0, by path; without ``lerobot``.

Checked is what its readers rely on: the description in ``meta/info.json``, the columns of rows and
episodes, their counters and times, statistics, and the pictures of videos.
"""

import json
import re
from collections.abc import Generator, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted

VERSION = 'v3.0'
#: Features that every data set has, each one number.
COUNTERS = {'timestamp': 'float32', 'frame_index': 'int64', 'episode_index': 'int64',
            'index': 'int64', 'task_index': 'int64'}
#: Names of types that are others in Arrow.
ARROW = {'bool': 'bool_'}
_DTYPES = {*COUNTERS.values(), 'float64', 'bool', 'string', *(
    f'{sign}int{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64))}
_PICTURES = 'video', 'image'
_TOTALS = 'total_episodes', 'total_frames', 'total_tasks'
_STATISTICS = 'min', 'max', 'mean', 'std', 'count'
#: Largest distance of a time from its row's place, s, as readers allow by default.
TOLERANCE_S = 1e-4
_PARQUET = '*/*.parquet'
# So many differences are told.
_MOST = 50


def load_pyarrow() -> Any:
    """Return pyarrow, with ``parquet``; ValueError: it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError('data sets need pyarrow, which is not installed here: '
                         'pip install pyarrow') from None
    return pyarrow


class Checked(NamedTuple):
    """Rows and episodes of a data set, and a line for each difference: ``PATH: what``."""

    rows: int
    episodes: int
    problems: list[str]


def check_dataset(root: Path) -> Checked:
    """Compare a folder with the format; ValueError: pyarrow is not installed."""
    checker = _Checker(root)
    for what in checker.differences():
        checker.problems.append(what)
        if len(checker.problems) == _MOST:
            checker.problems.append(f'{root}: further differences are not told')
            break
    return Checked(checker.rows, checker.episodes, checker.problems)


class _Checker:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._arrow = load_pyarrow()
        self.rows = self.episodes = 0
        self.problems: list[str] = []
        self._info: dict[str, Any] = {}
        self._features: dict[str, dict[str, Any]] = {}

    def differences(self) -> Iterator[str]:
        yield from self._of_info()
        if self.problems:
            return  # the rest is read by it
        yield from self._of_tasks()
        episodes = yield from self._of_episodes()
        yield from self._of_rows(episodes)
        yield from self._of_statistics()
        if not self.problems:
            yield from self._of_videos(episodes)

    def _of_info(self) -> Iterator[str]:
        path = self._root / 'meta' / 'info.json'
        try:
            info = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            yield f'{path}: cannot be read: {quoted(str(error))}'
            return
        if not isinstance(info, dict) or not isinstance(info.get('features'), dict):
            yield f'{path}: features: missing'
            return
        self._info, self._features = info, info['features']
        if info.get('codebase_version') != VERSION:
            yield f'{path}: codebase_version: {quoted(info.get("codebase_version"))} is not ' \
                  f'{VERSION!r}'
        if not isinstance(info.get('fps'), int) or info['fps'] < 1:
            yield f'{path}: fps: {quoted(info.get("fps"))} is not a whole number above 0'
        for name in (*_TOTALS, 'chunks_size'):
            if not isinstance(info.get(name), int) or info[name] < 0:
                yield f'{path}: {name}: {quoted(info.get(name))} is not a whole number'
        for name, feature in self._features.items():
            yield from (f'{path}: features: {quoted(name)}: {what}'
                        for what in _of_feature(feature))
        for name, dtype in COUNTERS.items():
            counter: Any = self._features.get(name)
            if not isinstance(counter, dict) or (
                    counter.get('dtype'), counter.get('shape')) != (dtype, [1]):
                yield f'{path}: features: {name}: {dtype} of shape [1] is missing'
        for name, parts in (('data_path', ()), ('video_path', ('{video_key}',))):
            if name == 'video_path' and not self._videos:
                continue
            text = info.get(name)
            if not isinstance(text, str) or any(
                    part not in text for part in ('{chunk_index', '{file_index', *parts)):
                yield f'{path}: {name}: {quoted(text)} does not name chunk_index and file_index'
                continue
            for key in self._videos or ['']:
                place_of = Path(place(text, 0, 0, key))
                if place_of.is_absolute() or '..' in place_of.parts:
                    yield f'{path}: {name}: {quoted(str(place_of))} is not in this folder'

    @property
    def _videos(self) -> list[str]:
        return [name for name, each in self._features.items()
                if isinstance(each, dict) and each.get('dtype') == 'video']

    def _of_tasks(self) -> Iterator[str]:
        path = self._root / 'meta' / 'tasks.parquet'
        table = yield from self._read(path, {'task_index': 'int64'})
        if table is None:
            return
        if not np.array_equal(table['task_index'].to_numpy(), np.arange(table.num_rows)):
            yield f'{path}: task_index: not 0, 1, 2, ...'
        if table.num_rows != self._info['total_tasks']:
            yield f'{path}: {table.num_rows} tasks, total_tasks: {self._info["total_tasks"]}'
        # A task is found by the index of the data frame.
        columns = json.loads((table.schema.metadata or {}).get(b'pandas', b'{}')).get(
            'index_columns', [])
        if len(columns) != 1 or columns[0] not in table.column_names:
            yield f'{path}: the tasks are not the index of the data frame (metadata of pandas)'

    def _of_episodes(self) -> Generator[str, None, dict[str, list[Any]]]:
        """Return the columns by name, as lists."""
        folder = self._root / 'meta' / 'episodes'
        wanted = {'episode_index': 'int64', 'length': 'int64', 'dataset_from_index': 'int64',
                  'dataset_to_index': 'int64', 'data/chunk_index': 'int64',
                  'data/file_index': 'int64'} | {
            f'videos/{key}/{name}': kind for key in self._videos for name, kind in (
                ('chunk_index', 'int64'), ('file_index', 'int64'), ('from_timestamp', 'float64'),
                ('to_timestamp', 'float64'))}
        found: dict[str, list[Any]] = {name: [] for name in wanted}
        for path in sorted(folder.glob(_PARQUET)):
            table = yield from self._read(path, wanted | {'tasks': ''})
            for name in wanted if table is not None else ():
                found[name] += table[name].to_pylist()
        count = len(found['length'])
        if any(value is None for column in found.values() for value in column):
            yield f'{folder}: episodes without a value'
            return {name: [] for name in wanted}
        self.episodes = count
        if count != self._info['total_episodes']:
            yield f'{folder}: {count} episodes, total_episodes: {self._info["total_episodes"]}'
        ends = np.cumsum([0, *found['length']], dtype=np.int64)
        for name, values in (('episode_index', np.arange(count)),
                             ('dataset_from_index', ends[:-1]), ('dataset_to_index', ends[1:])):
            if not np.array_equal(found[name], values):
                yield f'{folder}: {name}: not that of the episodes one after the other'
        return found

    def _of_rows(self, episodes: dict[str, list[Any]]) -> Iterator[str]:
        stored = {name: each for name, each in self._features.items()
                  if each['dtype'] != 'video'}
        wanted = {name: '' if each['dtype'] == 'image' else each['dtype']
                  for name, each in stored.items()}
        paths = sorted((self._root / 'data').glob(_PARQUET))
        places = set()
        for path in paths:
            table = yield from self._read(path, wanted)
            if table is None:
                continue
            if more := set(table.column_names) - stored.keys():
                yield f'{path}: columns that are no features: {quoted(sorted(more))}'
            rows = {name: table[name].to_numpy() for name in COUNTERS}
            first, self.rows = self.rows, self.rows + table.num_rows
            yield from (f'{path}: {what}' for what in self._of_counters(rows, first, episodes))
            places |= {(int(each), path) for each in np.unique(rows['episode_index'])}
        if self.rows != self._info['total_frames']:
            yield f'{self._root / "data"}: {self.rows} rows, total_frames: ' \
                  f'{self._info["total_frames"]}'
        for number, place in enumerate(zip(
                episodes['data/chunk_index'], episodes['data/file_index'], strict=True)):
            path = self._path('data_path', *place)
            if self.episodes and (number, path) not in places:
                yield f'{path}: the rows of episode {number} are not there'

    def _of_counters(
        self, rows: dict[str, NDArray[Any]], first: int, episodes: dict[str, list[Any]],
    ) -> Iterator[str]:
        count, fps = len(rows['index']), self._info['fps']
        episode = rows['episode_index']
        if not np.array_equal(rows['index'], first + np.arange(count)):
            row = int(np.argmax(rows['index'] != first + np.arange(count)))
            yield f'index: {rows["index"][row]} in row {first + row} is not {first + row}'
        begins = np.array(episodes['dataset_from_index'], np.int64)
        if not ((episode >= 0) & (episode < len(begins))).all():
            yield f'episode_index: not from 0 to {len(begins) - 1}'
            return
        inside = first + np.arange(count) - begins[episode]
        lengths = np.array(episodes['length'], np.int64)[episode]
        for name, good in (
                ('episode_index', (inside >= 0) & (inside < lengths)),
                ('frame_index', rows['frame_index'] == inside),
                ('timestamp', abs(rows['timestamp'].astype(np.float64) - inside / fps)
                 <= TOLERANCE_S),
                ('task_index', (rows['task_index'] >= 0)
                 & (rows['task_index'] < self._info['total_tasks']))):
            if not good.all():
                row = int(np.argmin(good))
                yield f'{name}: {rows[name][row]} in row {first + row} is not that of its place ' \
                      'in the episode'

    def _of_statistics(self) -> Iterator[str]:
        path = self._root / 'meta' / 'stats.json'
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            yield f'{path}: cannot be read: {quoted(str(error))}'
            return
        for name, each in self._features.items():
            if each['dtype'] == 'string':
                continue
            # One number for each colour of pictures.
            shape = (3, 1, 1) if each['dtype'] in _PICTURES else tuple(each['shape'])
            own = found.get(name) if isinstance(found, dict) else None
            for kind in _STATISTICS:
                value = own.get(kind) if isinstance(own, dict) else None
                try:
                    has = np.array(value, np.float64).shape
                except (TypeError, ValueError):
                    has = ()
                if has != ((1,) if kind == 'count' else shape):
                    yield f'{path}: {name}: {kind}: no numbers of shape ' \
                          f'{[1] if kind == "count" else list(shape)}'

    def _of_videos(self, episodes: dict[str, list[Any]]) -> Iterator[str]:
        fps = self._info['fps']
        for key in self._videos:
            names = [f'videos/{key}/{name}' for name in (
                'chunk_index', 'file_index', 'from_timestamp', 'to_timestamp')]
            by_file: dict[Path, list[tuple[float, float, int]]] = {}
            for chunk, file, begin, end, length in zip(
                    *(episodes[name] for name in names), episodes['length'], strict=True):
                by_file.setdefault(self._path('video_path', chunk, file, key), []).append(
                    (begin, end, length))
            for path, parts in by_file.items():
                if any(abs(end - begin - length / fps) > TOLERANCE_S
                       for begin, end, length in parts):
                    yield f'{path}: an episode has another length than its times'
                yield from (f'{path}: {what}' for what in self._of_video(
                    path, self._features[key]['shape'],
                    round(max(end for _, end, _ in parts) * fps)))

    def _of_video(self, path: Path, shape: list[int], pictures: int) -> Iterator[str]:
        from vdl_ros.common.video_file import opened

        try:
            with opened(path) as container:
                stream = container.streams.video[0]
                size = [stream.height, stream.width]
                # Without decoding: the times of the packets.
                times = sorted(each.pts * each.time_base for each in container.demux(stream)
                               if each.pts is not None)
        except (OSError, IndexError, ValueError) as error:
            yield f'cannot be read: {quoted(str(error))}'
            return
        if size != shape[:2]:
            yield f'pictures of {size}, the feature has {shape[:2]}'
        if len(times) != pictures or any(
                abs(time - Fraction(number, self._info['fps'])) > TOLERANCE_S
                for number, time in enumerate(times)):
            yield f'{len(times)} pictures instead of {pictures}, or one is not at its time'

    def _path(self, pattern: str, chunk: int, file: int, key: str = '') -> Path:
        return self._root / place(self._info[pattern], chunk, file, key)

    def _read(self, path: Path, wanted: dict[str, str]) -> Generator[str, None, Any]:
        """Read columns of these types, '' for any; return the table, or None."""
        try:
            file = self._arrow.parquet.ParquetFile(path)
            schema = file.schema_arrow
            missing = [name for name in wanted if name not in schema.names]
            if missing:
                yield f'{path}: columns that are missing: {quoted(missing)}'
                return None
            wrong = 0
            for name, dtype in wanted.items():
                if what := self._of_type(schema.field(name).type, name, dtype):
                    wrong += 1
                    yield f'{path}: {name}: {what}'
            if wrong:
                return None
            table = file.read(use_threads=False)
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            yield f'{path}: cannot be read: {quoted(" ".join(str(error).split()))}'
            return None
        for name in wanted:
            column = table[name]
            if column.null_count:
                yield f'{path}: {name}: rows without a value'
                return None
            size = self._size(name)
            if size > 1 and len(column.combine_chunks().flatten()) != size * table.num_rows:
                yield f'{path}: {name}: rows of another length than {size}'
        return table

    def _size(self, name: str) -> int:
        """Return how many numbers a row has in a list; 1: no list."""
        shape = self._features.get(name, {}).get('shape', [1])
        return int(shape[0]) if len(shape) == 1 else 1

    def _of_type(self, found: Any, name: str, dtype: str) -> str:
        types = self._arrow.types
        if not dtype or len(self._features.get(name, {}).get('shape', [1])) > 1:
            return ''
        kind = getattr(self._arrow, ARROW.get(dtype, dtype))()
        size = self._size(name)
        if size == 1:
            return '' if found == kind else f'of type {found}, not {kind}'
        is_list = types.is_list(found) or types.is_large_list(found) or (
            types.is_fixed_size_list(found))
        return '' if is_list and found.value_type == kind else (
            f'of type {found}, not a list of {size} {kind}')


def _of_feature(each: Any) -> Iterator[str]:
    dtype, shape = (each.get(name) if isinstance(each, dict) else None
                    for name in ('dtype', 'shape'))
    if dtype not in {*_DTYPES, *_PICTURES}:
        yield f'dtype: {quoted(dtype)} is not allowed'
    elif not (isinstance(shape, list) and shape and all(
            isinstance(size, int) and size > 0 for size in shape)):
        yield f'shape: {quoted(shape)} is no list of sizes'
    elif dtype in _PICTURES and len(shape) != 3:
        yield f'shape: {shape} is not height, width and colours'


def place(pattern: str, chunk: int, file: int, key: str = '') -> str:
    """Return the name of a file by its pattern in ``meta/info.json``."""
    values = {'chunk_index': chunk, 'file_index': file, 'video_key': key}
    return re.sub(r'\{(\w+)(:\w+)?\}', lambda found: format(
        values.get(found[1], ''), (found[2] or ':')[1:]), pattern)
