"""Pictures and cameras as messages: there and back, and what is refused."""

import array
import sys
import types
import zlib

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image

from vdl_ros.arm import geometry
from vdl_ros.ros.messages import images
from vdl_ros.ros.messages.images import ImageError, from_image, to_compressed_image, to_image

STAMP = Time(sec=12, nanosec=345)


def picture(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def refused(function, *arguments):
    """Return the reason, of one line."""
    with pytest.raises(ImageError) as caught:
        function(*arguments)
    assert '\n' not in str(caught.value)
    return str(caught.value)


def test_a_picture_there_and_back():
    pixels = picture(5, 7, 3)
    message = to_image(pixels, STAMP)
    assert (message.height, message.width, message.step) == (5, 7, 21)
    assert (message.encoding, message.is_bigendian) == ('rgb8', 0)
    assert (message.header.stamp, message.header.frame_id) == (STAMP, 'camera_optical_frame')
    assert message.header.frame_id in geometry.load().links
    assert isinstance(message.data, array.array)
    assert message.data.tobytes() == pixels.tobytes()
    back = from_image(message)
    np.testing.assert_array_equal(back, pixels)
    # A view: nothing is copied, and nobody can change the message through it.
    assert np.shares_memory(back, np.frombuffer(message.data, np.uint8))
    assert not back.flags.writeable
    in_pieces = picture(8, 10, 3)[::2, ::-1]
    np.testing.assert_array_equal(from_image(to_image(in_pieces, STAMP)), in_pieces)


def ramp(height, width):
    """Return a picture without edges, of which JPEG keeps nearly all."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, 255 - rows], axis=2).astype(np.uint8)


def claims(width, height):
    data = bytearray(to_compressed_image(ramp(16, 16), STAMP).data)
    at = data.index(b'\xff\xc0') + 5
    data[at:at + 4] = height.to_bytes(2, 'big') + width.to_bytes(2, 'big')
    return bytes(data)


def png(width, height):
    """Return a PNG that claims to be so large."""
    size = width.to_bytes(4, 'big') + height.to_bytes(4, 'big') + b'\x08\x02\0\0\0'
    return b'\x89PNG\r\n\x1a\n' + b''.join(
        len(data).to_bytes(4, 'big') + kind + data + zlib.crc32(kind + data).to_bytes(4, 'big')
        for kind, data in ((b'IHDR', size), (b'IDAT', zlib.compress(bytes(1000)))))


def test_a_compressed_picture_there_and_back_and_what_is_refused():
    pixels = ramp(120, 160)
    message = to_compressed_image(pixels, STAMP)
    assert (message.header.stamp, message.header.frame_id) == (STAMP, 'camera_optical_frame')
    assert message.format == 'rgb8; jpeg compressed bgr8'
    assert len(message.data) < pixels.size / 10
    back = from_image(message)
    assert back.shape == pixels.shape
    assert np.abs(back.astype(int) - pixels).max() <= 8
    cut = bytes(to_compressed_image(picture(64, 64, 3), STAMP).data)[:2000]
    for data, reason in (
            (b'', 'neither JPEG nor PNG'), (b'GIF89a' + bytes(20), 'neither JPEG nor PNG'),
            (cut, 'damaged'), (claims(65_535, 65_535), 'neither JPEG nor PNG'),
            (png(10_000, 10_000), '10000 x 10000 is not allowed'),
            (claims(9000, 9000), '9000 x 9000 is not allowed: at most 16777216 pixels')):
        line = refused(from_image, CompressedImage(format='jpeg', data=array.array('B', data)))
        assert f'image: {reason}' in line


def test_every_encoding_is_read_as_rgb_with_and_without_padding():
    for encoding, channels, red, blue, padding in (
            ('rgb8', 3, 0, 2, 5), ('bgr8', 3, 2, 0, 0), ('rgba8', 4, 0, 2, 5),
            ('bgra8', 4, 2, 0, 0), ('mono8', 1, 0, 0, 5)):
        pixels = picture(3, 4, channels)
        rows = np.zeros((3, 4 * channels + padding), np.uint8)
        rows[:, :4 * channels] = pixels.reshape(3, -1)
        back = from_image(Image(height=3, width=4, encoding=encoding, step=rows.shape[1],
                                data=array.array('B', rows.tobytes())))
        assert back.shape == (3, 4, 3)
        assert back.flags.c_contiguous, encoding
        for channel, source in enumerate((red, min(1, channels - 1), blue)):
            np.testing.assert_array_equal(
                back[:, :, channel], pixels[:, :, source], f'{encoding}, channel {channel}')


def test_a_message_that_is_no_picture_is_refused():
    for changes, reason in (
            ({'height': 0}, '4 x 0 has no pixels'),
            ({'width': 0}, '0 x 3 has no pixels'),
            ({'height': 70_000}, '4 x 70000 is not allowed: at most 16777216 pixels, 16384'),
            ({'height': 4}, '36 bytes are not the 48 of 4 rows of 12'),
            ({'width': 5}, '12 bytes a row are fewer than the 15'),
            ({'step': 13}, '36 bytes are not the 39'),
            ({'data': array.array('B')}, '0 bytes are not the 36'),
            ({'encoding': 'RGB8'}, "encoding 'RGB8' is not one of rgb8,"),
            ({'encoding': 'bayer_rggb8'}, 'install cv_bridge to convert others')):
        message = to_image(picture(3, 4, 3), STAMP)
        for name, value in changes.items():
            setattr(message, name, value)
        assert reason in refused(from_image, message), changes


def test_what_cannot_be_sent_is_refused():
    for pixels in (np.zeros((3, 4, 3), np.float32), np.zeros((3, 4), np.uint8),
                   np.zeros((0, 4, 3), np.uint8)):
        assert 'uint8 (height, width, 3)' in refused(to_image, pixels, STAMP)


def test_a_cv_bridge_is_asked_for_other_encodings(monkeypatch):
    """With a stand-in for cv_bridge, which answers as the test says."""
    answers = {'good': picture(3, 4, 3)}
    module = types.ModuleType('cv_bridge')
    module.CvBridge = lambda: types.SimpleNamespace(
        imgmsg_to_cv2=lambda message, desired_encoding: answers[message.header.frame_id])
    module.CvBridgeError = KeyError
    monkeypatch.setitem(sys.modules, 'cv_bridge', module)
    message = Image(height=3, width=4, encoding='mono16', step=8, data=array.array('B', bytes(24)))
    message.header.frame_id = 'no\nidea'
    assert "'mono16': " in refused(from_image, message)
    message.header.frame_id = 'good'
    np.testing.assert_array_equal(from_image(message), answers['good'])


def test_a_pinhole_and_an_uncalibrated_camera():
    matrix = [[300.0, 0.0, 159.5], [0.0, 310.0, 119.5], [0.0, 0.0, 1.0]]
    unstamped = images.pinhole(matrix, 320, 240)
    info = images.stamped(unstamped, STAMP)
    assert (info.width, info.height, info.distortion_model) == (320, 240, 'plumb_bob')
    assert (info.header.stamp, info.header.frame_id) == (STAMP, 'camera_optical_frame')
    assert unstamped.header.stamp.sec == 0, 'a stamp is for one message'
    np.testing.assert_array_equal(np.reshape(info.k, (3, 3)), matrix)
    np.testing.assert_array_equal(np.reshape(info.p, (3, 4)), np.c_[matrix, np.zeros(3)])
    np.testing.assert_array_equal(np.reshape(info.r, (3, 3)), np.eye(3))
    assert list(info.d) == [0.0] * 5
    assert not np.any(images.uncalibrated(64, 48).k)
