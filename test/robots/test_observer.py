"""What a robot sees of its images."""

import numpy as np
import pytest

from vdl_ros.common.images import ImageError
from vdl_ros.robots.contract import ImageTopic
from vdl_ros.robots.observer import frame


def seen(pixels, **options):
    return frame(ImageTopic(name='eye', topic='eye', **options), pixels)


def test_a_frame_is_the_mean_of_each_area_of_the_part_that_counts():
    pixels = np.zeros((80, 120, 3), np.uint8)
    pixels[:, ::2] = 200, 100, 0  # lines of one pixel
    pixels[:, 80:] = 255
    found = seen(pixels, size=(40, 40), crop=(0, 0, 80, 80))
    np.testing.assert_array_equal(found, np.broadcast_to([100, 50, 0], (40, 40, 3)))
    assert seen(pixels, size=(60, 40)).shape == (40, 60, 3)
    grey = seen(pixels, size=(60, 40), grayscale=True)
    assert grey.shape == (40, 60, 1)
    assert grey[0, -1, 0] == 255
    assert seen(pixels, size=(40, 40), crop=(118, 0, 2, 1)).min() == 255
    with pytest.raises(ImageError, match='120 x 80 has no part 100, 0, 40, 40, the crop'):
        seen(pixels, size=(40, 40), crop=(100, 0, 40, 40))
