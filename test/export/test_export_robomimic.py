"""robomimic's HDF5 is read back with h5py alone, by the names that robomimic's reader asks for."""

import json

import h5py
import numpy as np
import pytest

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.export.bag_scan import Choices
from vdl_ros.export.pipeline import export


def read(output):
    """Open a file as robomimic does."""
    return h5py.File(output / 'dataset.hdf5', 'r', swmr=True, libver='latest')


def test_a_film_is_read_back_exactly(teleop, tmp_path, helpers):
    bag, takes = teleop
    report = export(bag, tmp_path / 'out', 'hdf5', Choices(), task='lift the cup')
    assert (report.rows, report.episodes) == (65, 2)
    with read(tmp_path / 'out') as file:
        assert file['data'].attrs['total'] == 65
        assert sorted(file['data']) == ['demo_0', 'demo_1']
        for number, take in enumerate(takes):
            demo = file[f'data/demo_{number}']
            assert demo.attrs['num_samples'] == len(take)
            images = demo['obs/camera_image']
            assert images.dtype == np.uint8
            np.testing.assert_array_equal(
                images[:], [helpers.picture(each) for each in range(len(take))])
            np.testing.assert_allclose(
                demo['obs/joint_positions'][:], [helpers.positions(ns) for ns in take], atol=1e-5)
            np.testing.assert_array_equal(demo['actions'][:],
                                          [helpers.command(ns) for ns in take])
            assert demo['actions'].dtype == np.float32
            assert demo['rewards'][:].tolist() == [0.0] * len(take)
            assert demo['dones'][:].tolist() == [0] * (len(take) - 1) + [1]
            assert demo['stamps'][:].tolist() == take
            assert len(demo['states']) == len(take)


def test_what_is_next_is_the_row_after_and_the_last_its_own(teleop, tmp_path):
    export(teleop[0], tmp_path / 'out', 'hdf5', Choices())
    # Under another name and in another place it is still in its own file.
    (tmp_path / 'out').rename(tmp_path / 'moved')
    (tmp_path / 'moved/dataset.hdf5').rename(tmp_path / 'moved/other.hdf5')
    with h5py.File(tmp_path / 'moved/other.hdf5', 'r', swmr=True, libver='latest') as file:
        for demo in file['data'].values():
            for name, table in demo['obs'].items():
                following = demo['next_obs'][name]
                assert (following.shape, following.dtype) == (table.shape, table.dtype)
                np.testing.assert_array_equal(following[:-1], table[1:])
                np.testing.assert_array_equal(following[-1], table[-1])
    stored = 65 * (32 * 48 * 3 + 40 + 30)
    assert (tmp_path / 'moved/other.hdf5').stat().st_size < stored + 300_000


def test_its_environment_and_splits(teleop, tmp_path):
    export(teleop[0], tmp_path / 'out', 'hdf5', Choices(episode_seconds=0.25), valid=0.3,
           task='lift the cup')
    with read(tmp_path / 'out') as file:
        told = json.loads(file['data'].attrs['env_args'])
        assert (told['env_name'], told['type']) == ('vdl_ros', 2)
        assert told['env_kwargs']['joints'] == list(JOINTS)
        assert (told['env_kwargs']['fps'], told['env_kwargs']['task']) == (20, 'lift the cup')
        demos = {f'demo_{number}' for number in range(13)}
        assert set(file['data']) == demos
        train = {each.decode() for each in file['mask/train'][:]}
        valid = {each.decode() for each in file['mask/valid'][:]}
        assert train | valid == demos
        assert not train & valid
        assert len(valid) == 4


def test_an_episode_may_be_one_row(film, tmp_path, helpers):
    for number in range(3):
        ns = helpers.START_NS + number * 5_000 * helpers.MS
        film.image(ns, helpers.picture(number))
        film.joints(ns, [0.1] * 5)
    export(film.write(), tmp_path / 'out', 'hdf5', Choices(fps=10))
    with read(tmp_path / 'out') as file:
        assert [demo.attrs['num_samples'] for demo in file['data'].values()] == [1, 1, 1]
        np.testing.assert_array_equal(file['data/demo_2/next_obs/camera_image'][0],
                                      helpers.picture(2))


def test_captured_frames_bring_their_camera(captured, tmp_path, helpers):
    bag, cameras = captured
    export(bag, tmp_path / 'out', 'hdf5', Choices())
    with read(tmp_path / 'out') as file:
        demo = file['data/demo_0']
        assert 'actions' not in demo
        np.testing.assert_allclose(demo['obs/camera_pose'][:], cameras, rtol=1e-6)
        np.testing.assert_allclose(demo['obs/joint_positions'][:, 0], np.arange(12) * 0.1,
                                   atol=1e-6)
        np.testing.assert_array_equal(demo['obs/camera_image'][:],
                                      [helpers.picture(number) for number in range(12)])


@pytest.mark.parametrize(('encoding', 'order'), [('bgr8', [2, 1, 0]), ('rgba8', [0, 1, 2])])
def test_other_encodings_become_rgb(film, tmp_path, helpers, encoding, order):
    shown = helpers.picture(3)
    sent = shown[:, :, order]
    if encoding == 'rgba8':
        sent = np.concatenate([sent, np.full((*sent.shape[:2], 1), 77, np.uint8)], axis=2)
    film.image(helpers.START_NS, sent, encoding=encoding)
    film.joints(helpers.START_NS, [0.1] * 5)
    export(film.write(), tmp_path / 'out', 'hdf5', Choices())
    with read(tmp_path / 'out') as file:
        np.testing.assert_array_equal(file['data/demo_0/obs/camera_image'][0], shown)
