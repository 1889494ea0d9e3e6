"""Data sets of frames: random access, continuing, damage; and how frames are drawn."""

import json

import numpy as np
import pytest

from vdl_ros.arm.geometry import load
from vdl_ros.pose.dataset import PoseDataset
from vdl_ros.pose.domain_randomization import DISTANCE, ELEVATION, LOOK, RandomizedScene, sample
from vdl_ros.pose.frames import DOMAINS, SPLITS, Frames, FrameWriter


def check(data, data_sets, row, index):
    camera, joints = data_sets.labels(index)
    np.testing.assert_array_equal(data.pictures([row])[0], data_sets.picture(index))
    np.testing.assert_allclose(data.targets[row], [*camera, *joints[:3]], rtol=1e-6)
    np.testing.assert_allclose(data.joints[row], joints)
    assert data.roll[row] == 0.01 * index
    assert data.focal[row] == 160.0 / 128


def test_every_frame_of_data_sets_can_be_read_in_any_order(data_sets, tmp_path):
    data_sets.write('all/one', 30)
    data_sets.write('all/two', 12)
    data = PoseDataset([tmp_path / 'all'])
    assert data.report() == '42 frames of 2 data set(s)'
    for row in np.random.default_rng(0).permutation(42).tolist():
        check(data, data_sets, row, row % 30)
    chosen = [35, 3, 29, 3, 30, 0]
    for picture, row in zip(data.pictures(chosen), chosen, strict=True):
        np.testing.assert_array_equal(picture, data_sets.picture(row % 30))
    # NumPy reads the arrays, too.
    assert np.load(tmp_path / 'all/one/images.npy', mmap_mode='r').shape == (30, 128, 128, 3)
    assert np.isnan(Frames(tmp_path / 'all/one').look[:, 1]).all()


def test_a_data_set_that_was_not_closed_is_continued_with_whole_frames(data_sets, tmp_path):
    folder = data_sets.write('some', 5)
    with (folder / 'images.npy').open('ab') as file:  # what a killed process wrote last
        file.write(bytes(70_000))
    assert len(PoseDataset([folder])) == 5
    data = PoseDataset([data_sets.write('some', 8)])
    assert len(data) == 8
    for index in range(8):
        check(data, data_sets, index, index)
    for change, reason in (({'seed': 8}, 'seed: 8 is not allowed: the capture in .* with 7'),
                           ({'size': (64, 64)}, 'height: 64 is not allowed')):
        with pytest.raises(ValueError, match=reason):
            data_sets.write('some', 9, **change)
    with pytest.raises(ValueError, match='exists and is no data set'):
        FrameWriter(tmp_path, (8, 8), [], {})


def test_damaged_data_sets_are_errors_of_one_line(data_sets, tmp_path):
    def info(**changes):
        def change(folder):
            path = folder / 'frames.json'
            path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return change

    def content(name, data):
        return lambda folder: (folder / name).write_bytes(data)

    def saved(name, array):
        return lambda folder: np.save(folder / f'{name}.npy', array, allow_pickle=True)

    def cut(folder):
        data = (folder / 'images.npy').read_bytes()
        (folder / 'images.npy').write_bytes(data[:-1])

    header = b'\x93NUMPY\x01\x00\x76\x00'
    for number, (damage, reason) in enumerate((
            (content('frames.json', b'[' * 100_000), 'frames.json cannot be read: '),
            (info(version=2), 'frames.json: version: 2 is not allowed: a whole number <= 1'),
            (info(look=[1]), r'look\[0\]: 1 is not allowed: text'), (cut, 'images.npy: damaged'),
            (lambda folder: (folder / 'joints.npy').unlink(), 'No such file'),
            (content('look.npy', header + b'(' * 118), 'not an array of NumPy'),
            (saved('focal', np.array([print] * 4, object)), 'not an array of NumPy'),
            (saved('focal', np.float64(1.0)), 'is not allowed'),
            (saved('focal', np.ones(4, np.float32)), 'float32 .* is not allowed'),
            (saved('camera', np.ones((4, 2))), r'\(4, 2\) is not allowed: float64 \(n, 3'),
            (saved('focal', np.full(4, np.inf)), 'labels are not finite'))):
        folder = data_sets.write(f'set_{number}', 4)
        damage(folder)
        with pytest.raises(ValueError, match=rf'^{folder}.*{reason}.*\Z'):
            PoseDataset([folder])
    for folder, reason in ((data_sets.write('none', 0), 'no frame is there'),
                           (data_sets.write('small', 3, size=(64, 64)),
                            'images of 64x64 instead of 128x128 pixels'),
                           (tmp_path / 'nowhere', 'no data set is there')):
        with pytest.raises(ValueError, match=reason):
            PoseDataset([folder])


GEOMETRY = load()


def draw(split='train', seed=0, index=0, domain='random'):
    return sample(split, seed, index, domain, GEOMETRY)


@pytest.fixture(scope='module')
def renderer():
    renderer = RandomizedScene(GEOMETRY, 64, 64)
    yield renderer
    renderer.close()


def test_frames_differ_between_splits_seeds_and_numbers_but_their_poses_not_between_domains():
    frames = [draw(split, seed, index, 'basic') for split in SPLITS for seed in range(3)
              for index in range(20)]
    assert len({(*frame.camera, *frame.positions) for frame in frames}) == len(frames)
    for domain in DOMAINS:
        one, other = draw(domain=domain), draw(domain=domain)
        assert one.look == other.look
        np.testing.assert_array_equal(one.positions, frames[0].positions)
        assert one.camera == frames[0].camera


def test_samples_cover_the_whole_ranges():
    frames = [draw(index=index, domain='basic') for index in range(1000)]
    positions = np.array([frame.positions for frame in frames])
    span = GEOMETRY.upper - GEOMETRY.lower
    assert (positions.min(0) < GEOMETRY.lower + 0.01 * span).all()
    assert (positions.max(0) > GEOMETRY.upper - 0.01 * span).all()
    for values, (low, high) in zip(zip(*(frame.camera for frame in frames), strict=True),
                                   (DISTANCE, ELEVATION, (-np.pi, np.pi)), strict=True):
        assert low <= min(values) < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < max(values) <= high
    assert not any(frame.look for frame in frames)


def test_colliding_poses_are_drawn_again_and_looks_have_known_names():
    frame = sample('train', 0, 0, 'basic', GEOMETRY, lambda positions: positions[1] > 1.2)
    assert frame.positions[1] > 1.2
    with pytest.raises(RuntimeError, match='frame 0: no pose of 1000 fits'):
        sample('train', 0, 0, 'basic', GEOMETRY, lambda positions: False)
    assert set().union(*(draw(index=index).look for index in range(300))) <= set(LOOK)


@pytest.mark.parametrize('domain', DOMAINS)
def test_a_picture_does_not_depend_on_those_before(renderer, domain):
    frames = [draw(index=index, domain=domain) for index in range(6)]
    first = [renderer.draw(frame) for frame in frames]
    renderer.draw(draw(index=77))
    again = [renderer.draw(frame) for frame in reversed(frames)][::-1]
    np.testing.assert_array_equal(first, again)
    assert len({each.tobytes() for each in first}) == len(first)
    plain = [renderer.draw(draw(index=index, domain='basic')) for index in range(6)]
    changed = [not np.array_equal(one, other) for one, other in zip(first, plain, strict=True)]
    assert changed == [domain != 'basic'] * 6
    # Somebody could see something.
    assert all(20 < each.mean() < 235 and each.std() > 8 for each in first)
