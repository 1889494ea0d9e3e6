"""Domain randomisation: reproducible frames within their ranges."""

import numpy as np
import pytest

from vdl_ros.arm.geometry import load
from vdl_ros.pose.domain_randomization import DISTANCE, ELEVATION, LOOK, RandomizedScene, sample
from vdl_ros.pose.frames import DOMAINS, SPLITS

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
