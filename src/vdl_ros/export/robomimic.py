"""Write robomimic's HDF5: a group per episode, images without loss."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vdl_ros.export.writer import Layout, Row, require_module

FILE_NAME = 'dataset.hdf5'
_IMAGE, _STATE, _CAMERA = 'obs/camera_image', 'obs/joint_positions', 'obs/camera_pose'
_ACTIONS = 'actions'
# Tables with a value of each row.
_OF_ROW = {_IMAGE: 'image', _STATE: 'state', _CAMERA: 'camera', _ACTIONS: 'action',
           'stamps': 'stamp_ns'}
# Rows that are written at once, and numbers in an HDF5 chunk.
_AT_ONCE = 64
_CHUNK = 1024
# robomimic's number for an environment of Gymnasium.
_GYM = 2
_SEED = 0


class RobomimicWriter:
    """Writer of one HDF5 file; keeps at most ``_AT_ONCE`` rows in memory."""

    def __init__(self, root: Path, layout: Layout) -> None:
        self._h5py: Any = require_module('h5py', 'h5py', 'hdf5')
        self._path, self._layout = root / FILE_NAME, layout
        self._file: Any = self._h5py.File(self._path, 'w', libver='latest')
        self._data: Any = self._file.create_group('data')
        self._count = self._total = 0
        width, height = layout.size
        # Shape and type of a row of each table.
        self._tables: dict[str, tuple[tuple[int, ...], type]] = {
            _IMAGE: ((height, width, 3), np.uint8), _STATE: ((len(layout.joints),), np.float32),
            _CAMERA: ((3,), np.float32), _ACTIONS: ((len(layout.motors),), np.float32),
            'rewards': ((), np.float32), 'dones': ((), np.int64), 'stamps': ((), np.int64)}
        for name, is_there in ((_IMAGE, layout.has_images), (_CAMERA, layout.camera),
                               (_ACTIONS, layout.motors)):
            if not is_there:
                del self._tables[name]

    def write(self, task: str, rows: Iterable[Row]) -> None:
        demo, length = self._data.create_group(f'demo_{self._count}'), 0
        for name, (shape, kind) in self._tables.items():
            # One image per chunk: readers fetch single images.
            options = {'chunks': (1, *shape), 'compression': 'gzip', 'compression_opts': 1} \
                if name == _IMAGE else {'chunks': (_CHUNK, *shape)}
            demo.create_dataset(name, (0, *shape), kind, maxshape=(None, *shape), **options)
        rows = iter(rows)
        while part := list(itertools.islice(rows, _AT_ONCE)):
            first, length = length, length + len(part)
            for name in self._tables:
                demo[name].resize(length, axis=0)  # rewards and dones stay 0
                if name in _OF_ROW:
                    demo[name][first:] = np.asarray([getattr(row, _OF_ROW[name]) for row in part])
        demo['dones'][-1] = 1
        # robomimic requires states; without a simulation they are zeros.
        demo.create_dataset('states', data=np.zeros((length, 1), np.float32))
        demo.attrs['task'], demo.attrs['num_samples'] = task, length
        self._link_next(demo)
        self._count += 1
        self._total += length

    def close(self) -> None:
        self._data.attrs['total'] = self._total
        arguments = {'fps': self._layout.fps, 'joints': list(self._layout.joints),
                     'motors': list(self._layout.motors), 'task': '; '.join(self._layout.tasks)}
        self._data.attrs['env_args'] = json.dumps({
            'env_name': 'vdl_ros', 'type': _GYM, 'env_type': _GYM, 'env_kwargs': arguments})
        names = np.array([f'demo_{number}' for number in range(self._count)], dtype='S')
        # At least one episode remains for training.
        aside = min(self._count - 1, round(self._count * self._layout.valid))
        valid = np.zeros(self._count, bool)
        valid[np.random.default_rng(_SEED).permutation(self._count)[:aside]] = True
        mask = self._file.create_group('mask')
        mask['train'] = names[~valid]
        if aside:
            mask['valid'] = names[valid]
        self._file.close()

    def abandon(self) -> None:
        self._file.close()

    def verify(self) -> tuple[int, int]:
        """Read the finished file; return rows and episodes, or raise ValueError."""
        total = 0
        with self._h5py.File(self._path, 'r') as file:
            data = file['data']
            for name, demo in data.items():
                length = int(demo.attrs['num_samples'])
                total += length
                tables = [each for each in demo.values() if isinstance(each, self._h5py.Dataset)]
                tables += [*demo['obs'].values(), *demo['next_obs'].values()]
                short = [each.name for each in tables if len(each) != length]
                if short:
                    raise ValueError(f'{short[0]} has not {length} rows')
                if not np.all(np.diff(demo['stamps'][:]) > 0):
                    raise ValueError(f'the times of {name} do not increase')
            if int(data.attrs['total']) != total:
                raise ValueError(f'{total} rows, but total is {data.attrs["total"]}')
            return total, len(data)

    def _link_next(self, demo: Any) -> None:
        """Add the observations after each row as a virtual data set, without copying."""
        following = demo.create_group('next_obs')
        for name, table in demo['obs'].items():
            source = self._h5py.VirtualSource('.', table.name, table.shape, dtype=table.dtype)
            view = self._h5py.VirtualLayout(table.shape, dtype=table.dtype)
            view[:-1] = source[1:]
            # The last row has no successor: it is repeated.
            view[-1:] = source[-1:]
            following.create_virtual_dataset(name, view)
