"""Observations of an image and numbers in one row of bytes, and what counts as an image."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces

from vdl_ros.common.observation_spaces import ImageAndVector, is_image, number_error


def test_images_are_bytes_of_three_axes_and_large_enough():
    for space, image in (
            (spaces.Box(0, 255, (3, 36, 40), np.uint8), True),
            (spaces.Box(0, 255, (36, 40, 3), np.uint8), True),
            (spaces.Box(0, 255, (3, 35, 40), np.uint8), False),
            (spaces.Box(0, 255, (84, 84), np.uint8), False),
            (spaces.Box(0, 127, (21, 79, 80), np.uint8), False),
            (spaces.Box(0, 1, (3, 84, 84), np.float32), False),
            (spaces.MultiBinary((3, 84, 84)), False), (spaces.Discrete(3), False)):
        assert is_image(space) == image, space


@pytest.mark.parametrize('dtype', [np.float16, np.float32, np.float64])
def test_no_float_is_infinite_or_nan(dtype):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for value in (np.inf, -np.inf, np.nan):
            assert number_error(np.array([0.0, value], dtype)).startswith(f'{value} is not')
        assert number_error(np.array([0.0, 60_000.0, -60_000.0], dtype)) == ''


# The first row has no multiple of four bytes, so most float32 are not aligned.
@pytest.mark.parametrize('shape', [(1, 37, 37), (40, 36, 3)])
def test_a_row_is_the_bytes_of_the_numbers_and_then_of_the_image(shape):
    space = ImageAndVector(spaces.Box(0, 255, shape, np.uint8), 3)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 2, *shape), np.uint8)
    vectors = rng.normal(size=(4, 2, 3)).astype(np.float32)
    batch = np.zeros((4, 5, *space.shape), np.uint8)
    rows = batch[:, 1:3]
    parts = space.split(rows)
    parts[0][...], parts[1][...] = images, vectors
    for t, b in np.ndindex(4, 2):
        assert rows[t, b].tobytes() == vectors[t, b].tobytes() + images[t, b].tobytes()
        assert space.contains(rows[t, b])
    assert not batch[:, [0, 3, 4]].any()
    for found, wanted in zip(space.split(rows), (images, vectors), strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
    assert str(space) == f'ImageAndVector({list(shape)}, 3 numbers)'
