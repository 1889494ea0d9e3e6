"""What differs from the format of LeRobot is named, with its path."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bag_files import BagBuilder, add_scenario

from vdl_ros.export.bag_export import export
from vdl_ros.export.lerobot_check import check_dataset
from vdl_ros.export.synchronizer import ExportOptions
from vdl_ros.tools import check_dataset as tool

INFO, STATS, TASKS = 'meta/info.json', 'meta/stats.json', 'meta/tasks.parquet'
ROWS, EPISODES = (f'{folder}/chunk-000/file-000.parquet' for folder in ('data', 'meta/episodes'))
VIDEO = 'videos/observation.images.camera/chunk-000/file-000.mp4'


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp('data')
    builder = BagBuilder(folder / 'bag')
    add_scenario(builder, 20)
    export(builder.write(), folder / 'set', ExportOptions())
    return folder / 'set'


def in_json(**values):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


def feature(name, **values):
    def change(path):
        info = json.loads(path.read_text())
        info['features'][name] = info['features'].get(name, {}) | values
        path.write_text(json.dumps(info))
    return change


def column(name, make):
    """Return what replaces a column by ``make`` of it, or removes it if that is None."""
    def change(path):
        table = pq.read_table(path)
        made, place = make(table[name]), table.column_names.index(name)
        pq.write_table(table.remove_column(place) if made is None
                       else table.set_column(place, name, made), path)
    return change


def later(values, at=5):
    changed = values.to_numpy().copy()
    changed[at:] += changed.dtype.type(1)
    return pa.array(changed)


DIFFERENCES = [
    (INFO, lambda path: path.write_text('{'), 'cannot be read'),
    (INFO, in_json(codebase_version='v2.1'), "codebase_version: 'v2.1' is not 'v3.0'"),
    (INFO, in_json(fps='20'), "fps: '20' is not a whole number above 0"),
    (INFO, in_json(video_path=None), 'video_path: None does not name chunk_index'),
    (INFO, feature('action', shape=5), "'action': shape: 5 is no list of sizes"),
    (INFO, feature('action', dtype='float'), "'action': dtype: 'float' is not allowed"),
    (INFO, feature('index', shape=[2]), 'features: index: int64 of shape [1] is missing'),
    (TASKS, column('task_index', lambda values: later(values, 0)), 'task_index: not 0, 1, 2, ...'),
    (TASKS, lambda path: pq.write_table(pq.read_table(path).replace_schema_metadata(), path),
     'the tasks are not the index of the data frame'),
    (EPISODES, column('length', lambda _: None), "columns that are missing: ['length']"),
    (EPISODES, column('dataset_to_index', lambda values: later(values, 0)),
     'dataset_to_index: not that of the episodes'),
    (ROWS, lambda path: path.write_bytes(b'PAR1'), 'cannot be read'),
    (ROWS, column('index', later), 'index: 6 in row 5 is not 5'),
    (ROWS, column('timestamp', later), 'timestamp: 1.25 in row 5 is not that of its place'),
    (ROWS, column('task_index', later), 'task_index: 1 in row 5'),
    (ROWS, column('index', lambda values: values.cast('int32')),
     'index: of type int32, not int64'),
    (ROWS, column('action', lambda _: None), "columns that are missing: ['action']"),
    (ROWS, column('action', lambda values: pa.array([[0.0] * 4] * len(values),
                                                    pa.list_(pa.float32()))),
     'action: rows of another length than 5'),
    (ROWS, column('action', lambda values: pa.array([0.0] * len(values), pa.float32())),
     'action: of type float, not a list of 5 float'),
    (STATS, in_json(action={'mean': [0.0]}), 'action: mean: no numbers of shape [5]'),
    (VIDEO, lambda path: path.unlink(), 'cannot be read'),
    # How much is still there depends on the encoder.
    (VIDEO, lambda path: path.write_bytes(path.read_bytes()[:2000]), '')]


def test_a_difference_is_named_with_its_path(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / 'set')
    for file, change, what in DIFFERENCES:
        change(folder / file)
        problems = check_dataset(folder).problems
        place = folder / ('meta/episodes' if file == EPISODES and 'not that' in what else file)
        assert any(each.startswith(f'{place}: ') and what in each for each in problems), (
            file, what, problems)
        shutil.copy(exported / file, folder / file)


def test_it_says_that_a_data_set_is_as_it_should_be_and_ends_with_a_status(
        exported, tmp_path, capsys):
    assert tool.main([str(exported)]) == 0
    assert capsys.readouterr().out == (
        f'{exported}: 20 rows in 1 episodes: as LeRobotDataset v3.0\n')
    assert tool.main([str(tmp_path)]) == 1
    assert f'{tmp_path}/{INFO}: cannot be read: ' in capsys.readouterr().out


def test_other_forms_of_the_format_are_no_difference(exported, tmp_path):
    folder = tmp_path / 'set'
    shutil.copytree(exported, folder)
    # Of other writers: lists of any length, pictures in the rows, words.
    column('action', lambda values: pa.array(
        values.to_pylist(), pa.list_(pa.float32())))(folder / ROWS)
    table = pq.read_table(folder / ROWS)
    count = table.num_rows
    table = table.append_column('word', pa.array(['x'] * count))
    table = table.append_column('small', pa.array([{'bytes': b'x', 'path': 'x'}] * count))
    pq.write_table(table, folder / ROWS)
    feature('word', dtype='string', shape=[1])(folder / INFO)
    feature('small', dtype='image', shape=[4, 4, 3])(folder / INFO)
    one = np.zeros((3, 1, 1)).tolist()
    in_json(small={**dict.fromkeys(('min', 'max', 'mean', 'std'), one), 'count': [20]})(
        folder / STATS)
    assert check_dataset(folder).problems == []
