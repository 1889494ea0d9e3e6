"""Files of arrays are read as they were written; a damaged one is one line, and runs no code."""

import numpy as np
import pytest

from vdl_ros.rl.runs.checkpoint import CheckpointError
from vdl_ros.rl.runs.run_folder import load_array_file, save_array_file

ARRAYS = {'a': np.arange(12.0).reshape(3, 4), 'b': np.array(5), 'c': np.zeros((0, 2), bool)}


def test_arrays_are_read_as_they_were_written(tmp_path):
    save_array_file(tmp_path / 'x.npz', ARRAYS)
    found = load_array_file(tmp_path / 'x.npz', 'replay')
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    assert [each.name for each in tmp_path.iterdir()] == ['x.npz']


def test_a_damaged_or_malicious_file_is_one_line(tmp_path):
    path = tmp_path / 'x.npz'
    save_array_file(path, ARRAYS)
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[data.index(ARRAYS['a'].tobytes()) + 20] ^= 1

    def save_one_array():
        with path.open('wb') as file:
            np.save(file, ARRAYS['a'])

    for damage, write in (
            ('cut', lambda: path.write_bytes(data[:len(data) // 2])),
            ('flipped', lambda: path.write_bytes(flipped)),
            ('text', lambda: path.write_text('x')),
            ('one array', save_one_array),
            ('pickle', lambda: np.savez(path, a=np.array([print], object))),
            ('bomb', lambda: np.savez_compressed(path, a=np.zeros(10**6)))):
        write()
        with pytest.raises(CheckpointError) as error:
            load_array_file(path, 'replay')
        assert str(error.value).startswith(f'{path}: not a readable replay: '), damage
        assert '\n' not in str(error.value), damage
