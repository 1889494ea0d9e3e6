"""Stamps of a device's images, whatever the clock and the thread do."""

from types import SimpleNamespace

import numpy as np
from rclpy.logging import get_logger
from rclpy.time import Time

from vdl_ros.camera.camera_config import CameraConfig
from vdl_ros.camera.image_sources import TimedImage
from vdl_ros.ros.arm import camera_feeds


class Camera:
    """A feed of a device on a machine whose time, s, the test sets."""

    monotonic, wall, held_up = 50.0, 1000.0, 0.0

    def __init__(self, monkeypatch):
        monkeypatch.setattr(camera_feeds, 'Reader', lambda *args, **more: SimpleNamespace())
        monkeypatch.setattr(
            camera_feeds, 'time', SimpleNamespace(monotonic=lambda: self.monotonic))
        self._stamps = []
        node = SimpleNamespace(get_clock=lambda: self, get_logger=lambda: get_logger('camera'))
        self._feed = camera_feeds.RealFeed(
            node, CameraConfig(source='/dev/video9'),
            lambda pixels, info, stamp: self._stamps.append(Time.from_msg(stamp).nanoseconds))

    def now(self):
        """Return the time of the node; its thread is held up before it is read."""
        return Time(nanoseconds=round((self.wall + self.held_up) * 1e9))

    def show(self, age):
        """Return the stamp, ns, of an image taken ``age`` s ago."""
        image = TimedImage(np.zeros((2, 2, 3), np.uint8), self.monotonic - age)
        self._feed._reader.take = lambda timeout: image
        self._feed.poll()
        return self._stamps[-1]


def test_a_stamp_is_when_the_picture_was_taken_and_never_runs_backwards(monkeypatch):
    camera = Camera(monkeypatch)
    assert camera.show(0.25) == 999_750_000_000
    # A thread is held up between its looks at two clocks.
    camera.held_up = 0.5
    late = camera.show(0.0)
    assert late == 1000_500_000_000
    camera.monotonic, camera.wall, camera.held_up = 50.51, 1000.51, 0.0
    # Taken while it was held up.
    assert camera.show(0.4) > late
    camera.monotonic, camera.wall = 50.6, 1000.6
    assert camera.show(0.0) == 1000_600_000_000
    # Simulated time that jumps back is followed.
    camera.wall = 3.0
    assert camera.show(0.25) <= 3_000_000_000
    camera.wall = 0.0
    assert camera.show(0.25) == 0
    camera.wall = 10.0
    assert camera.show(0.25) == 9_750_000_000
