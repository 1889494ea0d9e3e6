"""robomimic's HDF5 is read back by h5py, with the names that robomimic's reader uses."""

import json

import h5py
import numpy as np
from bag_files import MS, START_NS, command, picture, positions

from vdl_ros.arm.joints import JOINTS
from vdl_ros.export.formats import export
from vdl_ros.export.synchronizer import ExportOptions
from vdl_ros.pose.frames import FrameWriter


def read(output):
    """Open a file as robomimic does."""
    return h5py.File(output / 'dataset.hdf5', 'r', swmr=True, libver='latest')


def test_exported_rows_are_read_back_exactly(teleop, tmp_path):
    bag, takes = teleop
    found = export(bag, tmp_path / 'out', 'hdf5', ExportOptions())
    assert (found.rows, found.episodes) == (65, 2)
    with read(tmp_path / 'out') as file:
        assert file['data'].attrs['total'] == 65
        assert sorted(file['data']) == ['demo_0', 'demo_1']
        for number, take in enumerate(takes):
            demo = file[f'data/demo_{number}']
            assert demo.attrs['num_samples'] == len(take)
            images = demo['obs/camera_image']
            assert images.dtype == np.uint8
            np.testing.assert_array_equal(images[:], [picture(each) for each in range(len(take))])
            np.testing.assert_allclose(
                demo['obs/joint_positions'][:], [positions(ns) for ns in take], atol=1e-5)
            np.testing.assert_array_equal(demo['actions'][:], [command(ns) for ns in take])
            assert demo['actions'].dtype == np.float32
            assert demo['rewards'][:].tolist() == [0.0] * len(take)
            assert demo['dones'][:].tolist() == [0] * (len(take) - 1) + [1]
            assert demo['stamps'][:].tolist() == take
            assert len(demo['states']) == len(take)


def test_next_observations_arguments_and_splits_are_written(teleop, tmp_path):
    export(teleop[0], tmp_path / 'out', 'hdf5',
           ExportOptions(episode_seconds=0.25, valid=0.3, task='lift the cup'))
    # Under another name and in another place it is still in its own file.
    moved = tmp_path / 'other.hdf5'
    (tmp_path / 'out/dataset.hdf5').rename(moved)
    with h5py.File(moved, 'r', swmr=True, libver='latest') as file:
        for demo in file['data'].values():
            for name, table in demo['obs'].items():
                following = demo['next_obs'][name]
                assert following.is_virtual, 'each image is stored once'
                assert following.dtype == table.dtype
                np.testing.assert_array_equal(following[:-1], table[1:])
                np.testing.assert_array_equal(following[-1], table[-1])
        arguments = json.loads(file['data'].attrs['env_args'])
        assert (arguments['env_name'], arguments['type']) == ('vdl_ros', 2)
        kwargs = arguments['env_kwargs']
        assert (kwargs['joints'], kwargs['fps'], kwargs['task']) == (
            list(JOINTS), 20, 'lift the cup')
        demos = {f'demo_{number}' for number in range(13)}
        assert set(file['data']) == demos
        train, valid = ({each.decode() for each in file[f'mask/{name}'][:]}
                        for name in ('train', 'valid'))
        assert train | valid == demos
        assert not train & valid
        assert len(valid) == 4


def test_frames_of_a_captured_data_set_have_the_camera_pose(tmp_path):
    cameras = [(0.6 + 0.01 * number, 0.1 * number, -3.0 + 0.5 * number) for number in range(12)]
    writer = FrameWriter(tmp_path / 'frames', (32, 48), [], {})
    for number, camera in enumerate(cameras):
        writer.write(picture(number), [0.1 * number, -0.2, 0.3, 0.0, 0.1], camera, 1.0, {})
    writer.close()
    export(tmp_path / 'frames', tmp_path / 'out', 'hdf5', ExportOptions())
    with read(tmp_path / 'out') as file:
        demo = file['data/demo_0']
        assert 'actions' not in demo
        np.testing.assert_allclose(demo['obs/camera_pose'][:], cameras, rtol=1e-6)
        np.testing.assert_allclose(demo['obs/joint_positions'][:, 0], np.arange(12) * 0.1,
                                   atol=1e-6)
        np.testing.assert_array_equal(demo['obs/camera_image'][:],
                                      [picture(number) for number in range(12)])


def test_an_episode_may_be_one_row_and_another_encoding_becomes_rgb(builder, tmp_path):
    for number in range(3):
        ns = START_NS + number * 5_000 * MS
        builder.image(ns, picture(number)[:, :, ::-1], encoding='bgr8')
        builder.joints(ns, [0.1] * 5)
    builder.motors(START_NS - 1, [0, 0, 0, 0, 1])
    export(builder.write(), tmp_path / 'out', 'hdf5', ExportOptions(fps=10))
    with read(tmp_path / 'out') as file:
        for number, demo in enumerate(file['data'].values()):
            assert demo.attrs['num_samples'] == 1
            assert demo['actions'][:].tolist() == [[0, 0, 0, 0, 1]], 'kept without new ones'
            for name in ('obs', 'next_obs'):
                np.testing.assert_array_equal(demo[name]['camera_image'][0], picture(number))
