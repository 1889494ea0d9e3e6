"""Image sources (devices, videos, folders), their reader thread and settings."""

import os
import threading
import time
from errno import ENODEV
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from PIL import ExifTags, Image
from processes import until

from vdl_ros.arm import geometry
from vdl_ros.camera import image_sources
from vdl_ros.camera.camera_config import CameraConfig, CameraPlacement
from vdl_ros.camera.image_sources import RateLimiter, Reader, SourceError, TimedImage, open_source
from vdl_ros.common import images, video_file
from vdl_ros.common.settings import SettingError, build


def write_video(path, count, **metadata):
    """Write ``count`` grey images, each lighter than the one before."""
    with av.open(str(path), 'w', options={'movflags': 'faststart'}) as container:
        container.metadata.update(metadata)
        stream = container.add_stream('libx264', rate=Fraction(25), options={'g': '1'})
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        for index in range(count):
            grey = np.full((48, 64, 3), 20 + 4 * index, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format='rgb24')))
        container.mux(stream.encode(None))


def greys(source):
    """Return the mean of each image until the end."""
    return [float(image.pixels.mean()) for image in iter(source.read, None)]


# Always the same, as one in thousands looks like the begin of a video to FFmpeg.
NOISE = np.random.default_rng(0).bytes(5000)
# Longest wait for the thread of a reader, s.
PATIENCE = 60.0


@pytest.fixture
def notices():
    return []


def test_images_of_a_folder_are_in_the_order_of_their_names(tmp_path):
    rng = np.random.default_rng(0)
    wanted = [rng.integers(0, 256, (6, 9, 3), np.uint8) for _ in range(3)]
    # A name that FFmpeg would take for a pattern is a name.
    for name, pixels in zip(('b.bmp', 'a%03d.png', 'c.PNG'), wanted, strict=True):
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / 'notes.txt').write_text('not an image')
    source = open_source(str(tmp_path))
    assert not source.live
    for index in (1, 0, 2):
        np.testing.assert_array_equal(source.read().pixels, wanted[index])
    assert source.read() is None
    np.testing.assert_array_equal(source.read().pixels, wanted[1], 'again from the first')
    assert source.damaged == 0
    # It is scaled only on request.
    Image.fromarray(np.full((40, 80, 3), 70, np.uint8)).save(tmp_path / '0.png')
    assert open_source(str(tmp_path)).read().pixels.shape == (40, 80, 3)
    scaled = open_source(str(tmp_path), (32, 24)).read().pixels
    assert scaled.shape == (24, 32, 3)
    assert set(np.unique(scaled)) == {70}


def test_images_are_turned_as_their_metadata_say(tmp_path):
    """As phones store them: EXIF of a picture, the display matrix of a video."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20, :30] = 255
    exif = Image.Exif()
    mirrored = pixels[:, ::-1]
    for orientation, wanted in enumerate((
            pixels, mirrored, np.rot90(pixels, 2), pixels[::-1], np.rot90(mirrored),
            np.rot90(pixels, -1), np.rot90(mirrored, -1), np.rot90(pixels)), 1):
        exif[ExifTags.Base.Orientation] = orientation
        Image.fromarray(pixels).save(tmp_path / 'a.png', exif=exif)
        for path in (tmp_path, tmp_path / 'a.png'):
            np.testing.assert_array_equal(open_source(str(path)).read().pixels, wanted)
        np.testing.assert_array_equal(images.decode((tmp_path / 'a.png').read_bytes()), wanted)
    assert open_source(str(tmp_path), (20, 30)).read().pixels.shape == (30, 20, 3)
    with av.open(str(tmp_path / 'v.mp4'), 'w') as container:
        stream = container.add_stream('libx264', rate=10)
        stream.width, stream.height, stream.pix_fmt = 60, 40, 'yuv420p'
        stream.set_display_rotation(90)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format='rgb24')))
        container.mux(stream.encode(None))
    found = open_source(str(tmp_path / 'v.mp4')).read().pixels
    assert np.abs(found.astype(float) - np.rot90(pixels)).mean() < 10


def test_corrupt_image_is_skipped_counted_and_reported_once(tmp_path, notices):
    for name, grey in (('a.png', 10), ('c.png', 30)):
        Image.fromarray(np.full((8, 8, 3), grey, np.uint8)).save(tmp_path / name)
    (tmp_path / 'b.png').write_bytes(b'\x89PNG\r\n\x1a\n' + NOISE[:300])
    (tmp_path / 'd.png').write_text('words')
    source = open_source(str(tmp_path), notice=notices.append)
    for _ in range(2):
        assert greys(source) == [10, 30]
    assert source.damaged == 4
    for name, line in zip(('b.png', 'd.png'), notices, strict=True):
        assert str(tmp_path / name) in line
        assert '\n' not in line


# Texts by which FFmpeg would open another file, or ports.
PLAYLIST = b'ffconcat version 1.0\nfile o.ts\n'
SESSION = (b'v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n'
           b'm=video 40404 RTP/AVP 96\na=rtpmap:96 H264/90000\n')


def test_what_holds_no_images_is_refused_in_one_line(tmp_path):
    for number, (files, reason) in enumerate((
            ({'a.txt': b'words', '.hidden.png': b''}, 'no image in this folder'),
            ({'a.png': b'words', 'b.jpg': b''}, 'none of 2 images in this folder can be decoded'),
            ({'a.mp4': b''}, 'no video and no image'),
            ({'o.ts': b'', 'a.mp4': PLAYLIST}, 'no video and no image: of none of the formats'),
            ({'a.mp4': SESSION}, 'no video and no image: of none of the formats'),
            ({'a.mp4': NOISE}, 'no video and no image'),
            ({'a.txt': b'words, words\n' * 500}, 'no video and no image'))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        path = folder if 'folder' in reason else folder / file
        with pytest.raises(SourceError, match=rf'^{path}: {reason}.*\Z'):
            open_source(str(path))
    with pytest.raises(SourceError, match=r"source: 'sym' is not allowed: .*/dev/videoN"):
        open_source('sym')
    with pytest.raises(OSError, match='/dev/no-such-video'):
        open_source('/dev/no-such-video').read()


def test_an_image_larger_than_the_memory_is_not_decoded(tmp_path, monkeypatch, notices):
    for name, size in (('a.png', 300), ('b.png', 100)):
        Image.fromarray(np.full((size, size, 3), size % 256, np.uint8)).save(tmp_path / name)
    monkeypatch.setattr(video_file, 'memory_limit', lambda: 16 * 200 * 200)
    assert greys(open_source(str(tmp_path), notice=notices.append)) == [100]
    assert f'left out: {tmp_path / "a.png"}: ' in notices[0]


def test_every_image_of_a_video_is_read_once_a_round_and_its_file_closed(tmp_path, notices):
    path = tmp_path / 'film.mp4'
    write_video(path, 20, title='Gruss')
    # A title that is not UTF-8 is ignored.
    path.write_bytes(path.read_bytes().replace(b'Gruss', 'Gr\u00fc\u00dfe'.encode('latin-1')))
    source = open_source(str(path), notice=notices.append)
    for _ in range(2):
        np.testing.assert_allclose(greys(source), 20 + 4 * np.arange(20), atol=2.0)

    def times_open():
        return sum(each.is_symlink() and os.readlink(each) == str(path)
                   for each in Path('/proc/self/fd').iterdir())

    source.read()
    assert times_open() == 1
    source.close()
    assert times_open() == 0
    assert (source.damaged, notices) == (0, [])


def test_damaged_video_gives_its_intact_images(tmp_path, notices):
    path = tmp_path / 'a.mp4'
    write_video(path, 40)
    whole = path.read_bytes()
    path.write_bytes(whole[:-len(whole) // 3])
    found = greys(open_source(str(path), notice=notices.append))
    assert 10 < len(found) < 40
    np.testing.assert_allclose(found[:10], 20 + 4 * np.arange(10), atol=2.0)
    line, = notices
    assert str(path) in line
    assert f'cut off after {(len(found) - 1) / 25:.1f} of 1.6 s' in line
    notices.clear()
    middle = len(whole) * 2 // 3
    path.write_bytes(whole[:middle] + bytes(400) + whole[middle + 400:])
    source = open_source(str(path), notice=notices.append)
    found = greys(source)
    assert 20 < len(found) < 40
    assert source.damaged > 0
    assert notices == [f'{path}: {source.damaged} damaged images left out']
    assert found[-1] == pytest.approx(20 + 4 * 39, abs=2.0)


class Camera:
    """What stands in for a device and its container: it is there, or it is not."""

    def __init__(self, monkeypatch):
        self.plugged = True
        self.options = []
        monkeypatch.setattr(image_sources, 'open_container', self.open)

    def open(self, device, options):
        self.options.append(options)
        if not self.plugged:
            raise FileNotFoundError(2, 'No such file or directory', device)
        size, rate = options.get('video_size', '160x120'), options['framerate']
        container = av.open(f'testsrc=size={size}:rate={rate},realtime', format='lavfi')
        return SimpleNamespace(streams=container.streams, close=container.close,
                               demux=lambda stream: self.packets(container, stream))

    def packets(self, container, stream):
        for packet in container.demux(stream):
            if not self.plugged:
                raise OSError(ENODEV, 'No such device')
            yield packet


def test_device_gets_requested_size_and_rate(monkeypatch):
    camera = Camera(monkeypatch)
    source = open_source('/dev/video7', (64, 48), 60.0)
    assert source.live
    begun = time.monotonic()
    pixels, moment = source.read()
    assert begun <= moment <= time.monotonic()
    assert pixels.shape == (48, 64, 3)
    assert camera.options == [{'framerate': '60', 'video_size': '64x48'}]
    source.close()

    def forbidden(device, options):
        raise PermissionError(13, 'Permission denied', device)

    monkeypatch.setattr(image_sources, 'open_container', forbidden)
    with pytest.raises(OSError, match='must be in the group video.*/dev/video0'):
        open_source('/dev/video0').read()


def test_device_is_retried_after_each_loss(monkeypatch, notices):
    monkeypatch.setattr('vdl_ros.camera.image_sources.RETRY_S', 0.1)
    camera = Camera(monkeypatch)
    camera.plugged = False
    reader = Reader(lambda: open_source('/dev/video0', rate=50.0), 50.0, notice=notices.append)
    until(lambda: len(camera.options) > 2, 'tried again')
    assert reader.take(0.0) is None
    assert 'No such file' in reader.fault
    assert len(notices) == 1, 'reported once'
    for _ in range(2):
        reader.take(0.0)  # perhaps one of before it went
        camera.plugged = True
        assert reader.take(PATIENCE).pixels.shape == (120, 160, 3)
        assert reader.fault == ''
        camera.plugged = False
        until(lambda: reader.fault, 'detected the loss')
        assert 'No such device' in reader.fault or 'No such file' in reader.fault
    assert notices[1] == 'images again'
    reader.close()


def test_only_the_latest_image_of_a_device_is_kept(monkeypatch):
    Camera(monkeypatch)
    reader = Reader(lambda: open_source('/dev/video0', rate=100.0), 100.0)
    until(lambda: reader.missed > 10, 'images that are not taken')
    before, missed = time.monotonic(), reader.missed
    # The first of them may have been on its way; the one after it was not.
    until(lambda: reader.missed > missed + 1, 'images in the place of others')
    assert reader.take(0.0).moment >= before
    reader.close()


def test_a_file_is_not_read_faster_than_the_rate_and_ends_without_loop(tmp_path, notices):
    write_video(tmp_path / 'a.mp4', 5)
    reader = Reader(lambda: open_source(str(tmp_path / 'a.mp4')), 50.0)
    moments = [reader.take(PATIENCE).moment for _ in range(20)]
    reader.close()
    assert not reader.ended
    assert moments[-1] - moments[0] > 19 / 50 - 0.1
    reader = Reader(lambda: open_source(str(tmp_path / 'a.mp4')), 100.0, loop=False,
                    notice=notices.append)
    count = 0
    while not notices:  # which it does last
        count += reader.take(0.02) is not None
    count += reader.take(0.0) is not None
    assert (count + reader.missed, reader.ended, reader.fault) == (5, True, '')
    assert notices == ['end of the source; no more images']
    reader.close()


def test_hanging_source_does_not_block_close():
    hangs, release = threading.Event(), threading.Event()

    def read():
        hangs.set()
        release.wait()
        return TimedImage(np.zeros((1, 1, 3), np.uint8), 0.0)

    source = SimpleNamespace(live=True, damaged=0, read=read, close=lambda: None)
    reader = Reader(lambda: source, 30.0)
    assert hangs.wait(PATIENCE)
    assert reader.take(0.1) is None
    reader.close()  # it would not return before the release
    release.set()


def test_rate_is_limited_for_any_source():
    for source, expected in ((30.0, 30.0), (90.0, 30.0), (50.0, 30.0), (31.0, 30.0),
                             (1000.0, 30.0), (25.0, 25.0), (7.0, 7.0)):
        rng = np.random.default_rng(1)
        moments = 5.0 + np.arange(int(20 * source)) / source
        moments += rng.uniform(-0.05, 0.05, moments.shape) / source
        beat = RateLimiter(30.0)
        shown = np.array([moment for moment in moments if beat.due(moment)])
        assert len(shown) / 20.0 == pytest.approx(expected, rel=0.01), source
        # Never two at once, and at the most one left out.
        gaps = np.diff(shown) * min(30.0, source)
        assert gaps.min() > 0.4, source
        assert gaps.max() < 2.1, source
        assert gaps.std() < 0.05 or source % 30.0, 'an even source gives an even image'


def test_late_event_is_not_made_up_for_and_time_may_jump_back():
    beat = RateLimiter(10.0)
    assert [beat.due(at) for at in (0.0, 5.0, 5.02, 5.1)] == [True, True, False, True]
    assert beat.wait(5.12) == pytest.approx(0.08)
    assert beat.wait(9.0) == 0.0
    beat = RateLimiter(10.0)
    assert [beat.due(at) for at in (100.0, 100.1, 3.0, 3.05, 3.1)] == [
        True, True, True, False, True]


def test_settings_of_camera_and_placement():
    for values, size in (
            ({}, (320, 240)), ({'source': '/dev/video0'}, None),
            ({'source': 'a.mp4', 'image_width': 64, 'image_height': 48}, (64, 48))):
        assert build(CameraConfig, values).size == size
    for values, names in (({'image_width': 64}, '64 x 0'),
                          ({'image_width': 4, 'image_height': 48}, '4 x 48')):
        with pytest.raises(SettingError, match=names):
            build(CameraConfig, values)
    # The URDF has the same defaults as the placement.
    given = {name: getattr(CameraPlacement, name) for name in (
        'camera_distance', 'camera_elevation', 'camera_azimuth')}
    assert CameraPlacement().arguments == {}
    np.testing.assert_allclose(
        geometry.load(given).joints['camera_mount_joint'].origin,
        geometry.load().joints['camera_mount_joint'].origin, atol=1e-9)
    moved = build(CameraPlacement, {'camera_distance': 1.5, 'camera_azimuth': 0.2})
    assert moved.arguments == {'camera_distance': 1.5, 'camera_azimuth': 0.2}
