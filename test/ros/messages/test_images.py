"""Pictures and calibrations as messages: there and back, and what is refused."""

import array
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import yaml
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image

from vdl_ros.arm.model import geometry
from vdl_ros.common.settings import SettingError
from vdl_ros.ros.messages import camera_info, images
from vdl_ros.ros.messages.images import ImageError, from_image, to_compressed_image, to_image

STAMP = Time(sec=12, nanosec=345)


def picture(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def test_a_picture_there_and_back():
    pixels = picture(5, 7, 3)
    message = to_image(pixels, STAMP)
    assert (message.height, message.width, message.step) == (5, 7, 21)
    assert (message.encoding, message.is_bigendian) == ('rgb8', 0)
    assert (message.header.stamp, message.header.frame_id) == (STAMP, 'camera_optical_frame')
    assert isinstance(message.data, array.array)
    assert message.data.tobytes() == pixels.tobytes()
    back = from_image(message)
    np.testing.assert_array_equal(back, pixels)
    # A view: nothing is copied, and nobody can change the message through it.
    assert np.shares_memory(back, np.frombuffer(message.data, np.uint8))
    assert not back.flags.writeable


def ramp(height, width):
    """Return a picture without edges, of which JPEG keeps nearly all."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, 255 - rows], axis=2).astype(np.uint8)


def test_a_compressed_picture_there_and_back():
    pixels = ramp(120, 160)
    message = to_compressed_image(pixels, STAMP, 95)
    assert (message.header.stamp, message.header.frame_id) == (STAMP, 'camera_optical_frame')
    assert message.format == 'rgb8; jpeg compressed bgr8'
    assert len(message.data) < pixels.size / 10
    back = from_image(message)
    assert back.shape == pixels.shape
    assert np.abs(back.astype(int) - pixels).max() <= 8


def claims(width, height):
    """Return a JPEG whose header claims a size."""
    data = bytearray(to_compressed_image(ramp(16, 16), STAMP, 95).data)
    at = data.index(b'\xff\xc0') + 5
    data[at:at + 4] = height.to_bytes(2, 'big') + width.to_bytes(2, 'big')
    return bytes(data)


@pytest.mark.parametrize(('data', 'reason'), [
    (b'', 'neither JPEG nor PNG'), (b'GIF89a' + bytes(20), 'neither JPEG nor PNG'),
    (bytes(to_compressed_image(picture(64, 64, 3), STAMP, 95).data)[:2000], 'damaged'),
    (claims(65_535, 65_535), 'neither JPEG nor PNG'),
    (claims(9000, 9000), '9000 x 9000 is not allowed: at most 16777216 pixels'),
    (claims(12_000, 12_000), '12000 x 12000 is not allowed: at most 16777216 pixels')])
def test_compressed_pictures_that_are_refused(data, reason):
    with pytest.raises(ImageError, match=f'^compressed image: {reason}'):
        from_image(CompressedImage(format='jpeg', data=array.array('B', data)))


def test_what_is_sent_is_a_copy():
    pixels = picture(4, 4, 3)
    message = to_image(pixels, STAMP)
    before = message.data.tobytes()
    pixels[:] = 0
    assert message.data.tobytes() == before


def test_a_picture_that_is_not_in_one_piece():
    pixels = picture(8, 10, 3)[::2, ::-1]
    np.testing.assert_array_equal(from_image(to_image(pixels, STAMP)), pixels)


@pytest.mark.parametrize(('encoding', 'channels', 'red', 'blue'), [
    ('rgb8', 3, 0, 2), ('bgr8', 3, 2, 0), ('rgba8', 4, 0, 2), ('bgra8', 4, 2, 0),
    ('mono8', 1, 0, 0)])
@pytest.mark.parametrize('padding', [0, 5])
def test_every_encoding_is_read_as_rgb(encoding, channels, red, blue, padding):
    pixels = picture(3, 4, channels)
    message = to_image(pixels, STAMP, encoding=encoding)
    rows = np.zeros((3, 4 * channels + padding), np.uint8)
    rows[:, :4 * channels] = pixels.reshape(3, -1)
    message.step, message.data = rows.shape[1], array.array('B', rows.tobytes())
    back = from_image(message)
    assert back.shape == (3, 4, 3)
    np.testing.assert_array_equal(back[:, :, 0], pixels[:, :, red])
    np.testing.assert_array_equal(back[:, :, 1], pixels[:, :, min(1, channels - 1)])
    np.testing.assert_array_equal(back[:, :, 2], pixels[:, :, blue])
    assert back.flags.c_contiguous


@pytest.mark.parametrize(('changes', 'names'), [
    ({'height': 0}, '4 x 0 has no pixels'),
    ({'width': 0}, '0 x 3 has no pixels'),
    ({'height': 4}, '36 bytes are not the 48 of 4 rows of 12'),
    ({'height': 2**32 - 1}, '36 bytes are not the'),
    ({'width': 5}, '12 bytes a row are fewer than the 15'),
    ({'step': 0}, '36 bytes are not the 0'),
    ({'step': 13}, '36 bytes are not the 39'),
    ({'data': array.array('B')}, '0 bytes are not the 36'),
    ({'encoding': ''}, "encoding ''"),
    ({'encoding': 'RGB8'}, "encoding 'RGB8' is not one of rgb8,"),
    ({'encoding': 'bayer_rggb8'}, "'bayer_rggb8' .*; install cv_bridge to convert others"),
])
def test_a_message_that_is_no_picture_is_refused(changes, names):
    message = to_image(picture(3, 4, 3), STAMP)
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(ImageError, match=names) as error:
        from_image(message)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize(('pixels', 'encoding'), [
    (np.zeros((3, 4, 3), np.float32), 'rgb8'), (np.zeros((3, 4, 4), np.uint8), 'rgb8'),
    (np.zeros((3, 4), np.uint8), 'rgb8'), (np.zeros((0, 4, 3), np.uint8), 'rgb8'),
    (np.zeros((2, 3, 4, 3), np.uint8), 'rgb8'), (np.zeros((3, 4, 3), np.uint8), 'mono8'),
    (np.zeros((3, 4, 3), np.uint8), 'mono16')])
def test_what_cannot_be_sent_is_refused(pixels, encoding):
    with pytest.raises(ImageError, match=encoding):
        to_image(pixels, STAMP, encoding=encoding)


class TestCvBridge:
    @pytest.fixture
    def bridge(self, monkeypatch):
        """Put a cv_bridge in place that answers with ``bridge.answer``."""
        module = types.ModuleType('cv_bridge')

        class CvBridge:
            def imgmsg_to_cv2(self, message, desired_encoding):
                assert (message.encoding, desired_encoding) == ('mono16', 'rgb8')
                if isinstance(module.answer, Exception):
                    raise module.answer
                return module.answer

        module.CvBridge, module.CvBridgeError = CvBridge, type('CvBridgeError', (Exception,), {})
        monkeypatch.setitem(sys.modules, 'cv_bridge', module)
        return module

    message = Image(height=3, width=4, encoding='mono16', step=8,
                    data=array.array('B', bytes(24)))

    def test_it_is_asked_for_other_encodings(self, bridge):
        bridge.answer = picture(3, 4, 3)
        np.testing.assert_array_equal(from_image(self.message), bridge.answer)

    def test_what_it_does_not_know_is_refused(self, bridge):
        bridge.answer = bridge.CvBridgeError('no\nidea')
        with pytest.raises(ImageError, match="'mono16': no idea"):
            from_image(self.message)

    def test_a_wrong_shape_is_refused(self, bridge):
        bridge.answer = picture(3, 4)
        with pytest.raises(ImageError, match='cv_bridge returned shape'):
            from_image(self.message)


def test_the_frame_is_the_urdfs():
    assert images.CAMERA_FRAME in geometry.load().links


def test_a_pinhole():
    matrix = [[300.0, 0.0, 159.5], [0.0, 310.0, 119.5], [0.0, 0.0, 1.0]]
    info = camera_info.stamped(camera_info.pinhole(matrix, 320, 240), STAMP)
    assert (info.width, info.height, info.distortion_model) == (320, 240, 'plumb_bob')
    assert (info.header.stamp, info.header.frame_id) == (STAMP, 'camera_optical_frame')
    np.testing.assert_array_equal(np.reshape(info.k, (3, 3)), matrix)
    np.testing.assert_array_equal(np.reshape(info.p, (3, 4))[:, :3], matrix)
    assert list(np.reshape(info.p, (3, 4))[:, 3]) == [0, 0, 0]
    np.testing.assert_array_equal(np.reshape(info.r, (3, 3)), np.eye(3))
    assert list(info.d) == [0.0] * 5


def test_a_stamp_is_for_one_message():
    info = camera_info.pinhole(np.eye(3), 32, 24)
    first = camera_info.stamped(info, STAMP)
    second = camera_info.stamped(info, Time(sec=99))
    assert (first.header.stamp.sec, second.header.stamp.sec) == (12, 99)
    assert info.header.stamp.sec == 0


def test_uncalibrated_is_what_the_message_says_it_is():
    info = camera_info.uncalibrated(64, 48)
    assert (info.width, info.height) == (64, 48)
    assert not np.any(info.k)


GOOD = {
    'image_width': 640, 'image_height': 480, 'camera_name': 'webcam',
    'camera_matrix': {'rows': 3, 'cols': 3, 'data': [600.5, 0, 320, 0, 601, 240, 0, 0, 1]},
    'distortion_model': 'plumb_bob',
    'distortion_coefficients': {'rows': 1, 'cols': 5, 'data': [0.1, -0.2, 0.001, 0, 0]},
    'rectification_matrix': {'rows': 3, 'cols': 3, 'data': [1, 0, 0, 0, 1, 0, 0, 0, 1]},
    'projection_matrix': {'rows': 3, 'cols': 4,
                          'data': [590, 0, 321, 0, 0, 595, 241, 0, 0, 0, 1, 0]},
}


def test_a_calibration(tmp_path):
    path = tmp_path / 'webcam.yaml'
    path.write_text(yaml.safe_dump(GOOD))
    info = camera_info.load_calibration(str(path))
    assert (info.width, info.height, info.distortion_model) == (640, 480, 'plumb_bob')
    assert list(info.d) == [0.1, -0.2, 0.001, 0, 0]
    assert list(info.k) == GOOD['camera_matrix']['data']
    assert list(info.p) == GOOD['projection_matrix']['data']


@pytest.mark.parametrize(('name', 'value', 'says'), [
    ('image_width', None, 'image_width: None'),
    ('image_width', 64.5, 'image_width: 64.5'),
    ('image_height', -1, 'image_height: -1'),
    ('image_height', True, 'image_height: True'),
    ('distortion_model', 'fish', "distortion_model: 'fish' .*plumb_bob"),
    ('distortion_coefficients', {'data': [1, 2]}, 'distortion_coefficients'),
    ('camera_matrix', {'data': [600, 0, 320]}, 'camera_matrix: .*9 finite numbers'),
    ('camera_matrix', [1] * 9, 'camera_matrix'),
    ('camera_matrix', {'data': ['x'] * 9}, 'camera_matrix'),
    ('camera_matrix', {'data': [float('nan')] * 9}, 'camera_matrix'),
    ('camera_matrix', {'data': [0] * 9}, 'camera_matrix: focal lengths 0, 0'),
    ('camera_matrix', {'data': [600, 0, 320, 0, 600, 240, 1, 0, 1]}, 'not of the form'),
    ('rectification_matrix', {'data': [2, 0, 0, 0, 1, 0, 0, 0, 1]}, 'not a rotation'),
    ('rectification_matrix', {'data': [-1, 0, 0, 0, 1, 0, 0, 0, 1]}, 'not a rotation'),
    ('projection_matrix', {'data': [600] * 12}, 'projection_matrix'),
])
def test_a_calibration_that_is_nonsense_is_refused(tmp_path, name, value, says):
    path = tmp_path / 'webcam.yaml'
    path.write_text(yaml.safe_dump({**GOOD, name: value}))
    with pytest.raises(SettingError, match=says) as error:
        camera_info.load_calibration(str(path))
    assert f'calibration: {path}: ' in str(error.value)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('content', [b'', b'words', b'- 1', b'{', b'\xff\xfe\x00'])
def test_a_file_that_is_no_calibration_is_refused(tmp_path, content):
    path = tmp_path / 'webcam.yaml'
    path.write_bytes(content)
    with pytest.raises(SettingError, match=f'calibration: {path}: ') as error:
        camera_info.load_calibration(str(path))
    assert '\n' not in str(error.value)


def test_a_calibration_that_is_missing_is_refused():
    with pytest.raises(SettingError, match=r'no-such\.yaml: .*No such file'):
        camera_info.load_calibration(str(Path('no-such.yaml')))
