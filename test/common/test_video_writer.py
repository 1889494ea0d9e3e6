"""Videos: constant frame rate, one size, and no file after an error."""

import contextlib
from fractions import Fraction

import av
import numpy as np
import pytest

from vdl_ros.common.video_writer import VideoWriter


def read(path):
    """Return the time of each picture, s, and the pictures uint8 [N, H, W, 3]."""
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return ([frame.pts * frame.time_base for frame in frames],
            np.stack([frame.to_ndarray(format='rgb24') for frame in frames]))


@pytest.mark.parametrize('fps', [25, 59.94])
def test_pictures_are_shown_at_exact_times(tmp_path, fps):
    path = tmp_path / 'folder' / 'some.mp4'
    with VideoWriter(path, fps, {'bf': 0}) as video:
        for number in range(50):
            video.add(np.full((64, 96, 3), 4 * number, np.uint8))
            assert not path.exists()
    assert video.count == 50
    assert list(path.parent.iterdir()) == [path]
    times, pictures = read(path)
    rate = Fraction(fps).limit_denominator(1001)
    assert times == [number / rate for number in range(50)]
    assert abs(pictures.mean(axis=(1, 2, 3)) - 4 * np.arange(50)).max() < 5


def test_pictures_must_have_one_even_size_and_be_uint8(tmp_path):
    path = tmp_path / 'some.mp4'
    with VideoWriter(path, 25) as video:
        video.add(np.full((330, 400, 3), 90, np.uint8))
        with pytest.raises(ValueError, match='of the first'):
            video.add(np.zeros((330, 500, 3), np.uint8))
        with pytest.raises(ValueError, match='401 x 330 pixels make no libx264 video'):
            video.add(np.zeros((330, 401, 3), np.uint8))
        for height, width in ((0, 400), (2, 16386), (8192, 8192)):
            with pytest.raises(ValueError, match=f'images of {width} x {height} pixels make no'):
                video.add(np.broadcast_to(np.uint8(0), (height, width, 3)))
        with pytest.raises(ValueError, match=r'float64 .* is not uint8'):
            video.add(np.zeros((330, 400, 3)))
    pictures = read(path)[1]
    assert pictures.shape == (1, 330, 400, 3)
    assert abs(pictures.astype(int) - 90).max() < 5


def test_no_file_remains_without_pictures_or_after_an_error(tmp_path):
    with VideoWriter(tmp_path / 'none.mp4', 25):
        pass
    with contextlib.suppress(KeyError), VideoWriter(tmp_path / 'some.mp4', 25) as video:
        video.add(np.zeros((64, 64, 3), np.uint8))
        raise KeyError
    assert not list(tmp_path.iterdir())
