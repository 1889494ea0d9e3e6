"""A LeRobotDataset v3 is read back from its files, as LeRobot's loader reads it."""

import json

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from bag_files import MS, START_NS, command, picture, positions

from vdl_ros.arm.joints import JOINTS
from vdl_ros.export import lerobot
from vdl_ros.export.bag_export import export
from vdl_ros.export.synchronizer import ExportOptions

TOLERANCE_S = 1e-4  # LeRobot's own


class Loader:
    """What LeRobot does with a folder.

    info.json names features and path templates; every Parquet file below ``data`` and below
    ``meta/episodes`` is read in the order of its name; a row's pictures are those of its episode's
    video at from_timestamp + timestamp, both as float32.
    """

    def __init__(self, root):
        self.root = root
        self.info = json.loads((root / 'meta/info.json').read_text())
        self.stats = json.loads((root / 'meta/stats.json').read_text())
        assert self.info['codebase_version'] == 'v3.0'
        self.features = self.info['features']
        self.episodes = self._tables('meta/episodes')
        self.rows = self._tables('data')

    def _tables(self, folder):
        paths = sorted((self.root / folder).glob('*/*.parquet'))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def check_picture(self, row, shown, key='observation.images.camera'):
        episode = self.episodes[row['episode_index']]
        assert episode['episode_index'] == row['episode_index']
        path = self.root / self.info['video_path'].format(
            video_key=key, chunk_index=episode[f'videos/{key}/chunk_index'],
            file_index=episode[f'videos/{key}/file_index'])
        expected = np.float32(episode[f'videos/{key}/from_timestamp'] + row['timestamp'])
        assert expected < episode[f'videos/{key}/to_timestamp']
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            info = self.features[key]['info']
            assert (info['video.codec'], info['video.pix_fmt'], info['video.fps']) == (
                stream.codec.canonical_name, stream.pix_fmt, stream.average_rate)
            container.seek(round(float(expected) / stream.time_base) - 1, stream=stream)
            best = None
            for frame in container.decode(stream):
                distance = abs(np.float32(frame.pts * stream.time_base) - expected)
                if best is None or distance < best[0]:
                    best = distance, frame.to_ndarray(format='rgb24')
                if frame.pts * stream.time_base >= float(expected):
                    break
        assert best[0] <= TOLERANCE_S
        # It is compressed, each picture still its own and not its neighbour's.
        assert abs(best[1].astype(int) - shown).mean() < 3.0


@pytest.fixture
def loader(teleop, tmp_path):
    """Return the data set of ``teleop``."""
    found = export(teleop[0], tmp_path / 'out', ExportOptions(task='lift the cup'))
    assert (found.rows, found.episodes, found.images) == (65, 2, 65)
    return Loader(tmp_path / 'out')


def test_exported_rows_are_read_back(loader, teleop):
    # That the features mean these columns, the export has verified by check_dataset.
    schema = pq.read_schema(loader.root / 'data/chunk-000/file-000.parquet')
    assert {each.name: str(each.type) for each in schema} == {
        **dict.fromkeys(('observation.state', 'action'), 'fixed_size_list<element: float>[5]'),
        'timestamp': 'float', **dict.fromkeys(
            ('frame_index', 'episode_index', 'index', 'task_index'), 'int64')}
    info, frames = loader.info, [frame for count in (40, 25) for frame in range(count)]
    assert (info['fps'], info['total_frames'], info['total_episodes'], info['splits']) == (
        20, 65, 2, {'train': '0:2'})
    assert [(each['length'], each['dataset_from_index'], each['dataset_to_index'])
            for each in loader.episodes] == [(40, 0, 40), (25, 40, 65)]
    assert [(row['index'], row['episode_index'], row['frame_index'], row['task_index'])
            for row in loader.rows] == [
        (index, index // 40, frame, 0) for index, frame in enumerate(frames)]
    assert [row['timestamp'] for row in loader.rows] == pytest.approx(
        [frame / 20 for frame in frames])
    for name in ('action', 'observation.state'):
        assert loader.features[name]['names'] == list(JOINTS)
    stamps = teleop[1][0] + teleop[1][1]
    for number, (row, ns) in enumerate(zip(loader.rows, stamps, strict=True)):
        np.testing.assert_allclose(row['observation.state'], positions(ns), atol=1e-5)
        assert row['action'] == command(ns)
        if number % 7 == 0 or number in (39, 40, 64):
            loader.check_picture(row, picture(row['frame_index']))
    assert loader.episodes[0]['tasks'] == ['lift the cup']
    # Pandas finds the task by its index.
    table = pq.read_table(loader.root / 'meta/tasks.parquet')
    assert table.to_pylist() == [{'task_index': 0, 'task': 'lift the cup'}]
    note = json.loads(table.schema.metadata[b'pandas'])
    assert note['index_columns'] == ['task']
    assert {each['field_name'] for each in note['columns']} == {'task_index', 'task'}


def test_statistics_are_those_of_the_values(loader, teleop):
    state = np.array([row['observation.state'] for row in loader.rows])
    image = 'observation.images.camera'
    assert set(loader.stats) == set(loader.features)
    found = loader.stats['observation.state']
    for name in ('min', 'max', 'mean', 'std'):
        np.testing.assert_allclose(found[name], getattr(state, name)(0), rtol=1e-6, atol=1e-9)
    assert found['count'] == [65]
    first = loader.episodes[0]
    np.testing.assert_allclose(first['stats/observation.state/q50'], np.median(state[:40], axis=0))
    assert first['stats/index/max'] == [39.0]
    assert first['stats/timestamp/count'] == [40]
    pixels = np.stack([picture(number) for take in teleop[1]
                       for number in range(len(take))]) / 255.0
    for name in ('min', 'max', 'mean', 'std'):
        np.testing.assert_allclose(
            loader.stats[image][name],
            getattr(pixels, name)((0, 1, 2)).reshape(3, 1, 1), rtol=1e-6)
    quantile = np.quantile(pixels[:40], 0.9, axis=(0, 1, 2))
    np.testing.assert_allclose(np.ravel(first[f'stats/{image}/q90']), quantile, atol=1.5 / 255)


def test_full_files_are_continued_in_new_ones(teleop, tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, '_VIDEO_S', 0.5)
    monkeypatch.setattr(lerobot, '_DATA_BYTES', 1)
    monkeypatch.setattr(lerobot, '_FILES_PER_CHUNK', 3)
    monkeypatch.setattr(lerobot, '_EPISODES_AT_ONCE', 2)
    export(teleop[0], tmp_path / 'out', ExportOptions(episode_seconds=0.5))
    loader = Loader(tmp_path / 'out')
    assert [each['length'] for each in loader.episodes] == [10, 10, 10, 10, 10, 10, 5]
    places = [(each['data/chunk_index'], each['data/file_index']) for each in loader.episodes]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert len(loader.rows) == 65
    shown = [number for take in (40, 25) for number in range(take)]
    for index in range(0, 65, 9):
        loader.check_picture(loader.rows[index], picture(shown[index]))


def test_an_episode_may_be_one_row_and_another_encoding_becomes_rgb(builder, tmp_path):
    for number in range(3):
        ns = START_NS + number * 5_000 * MS
        builder.image(ns, picture(number)[:, :, ::-1], encoding='bgr8')
        builder.joints(ns, [0.1] * 5)
    builder.motors(START_NS - 1, [0, 0, 0, 0, 1])
    export(builder.write(), tmp_path / 'out', ExportOptions(fps=10))
    loader = Loader(tmp_path / 'out')
    assert [each['length'] for each in loader.episodes] == [1, 1, 1]
    for number, row in enumerate(loader.rows):
        assert row['action'] == [0, 0, 0, 0, 1], 'kept without new ones'
        loader.check_picture(row, picture(number))
