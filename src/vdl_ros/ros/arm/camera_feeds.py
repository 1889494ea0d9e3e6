"""
What the node ``camera`` shows: the simulated arm, or the pictures of a device or file.

Subscribes for the simulated arm: ``arm/joint_states`` (sensor_msgs/JointState) and, to see the
lamp, ``arm/motors_sent`` (vdl_ros/MotorCommand).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from builtin_interfaces.msg import Time as Stamp
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, JointState

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.camera.camera_config import CameraConfig
from vdl_ros.camera.image_reader import RateLimiter, Reader
from vdl_ros.camera.image_sources import ImageSource, is_device, open_source
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.diagnostics import Health
from vdl_ros.ros.messages.camera_info import load_calibration, pinhole, uncalibrated
from vdl_ros.ros.messages.joint_messages import positions_of, seconds

__all__ = ['Feed', 'RealFeed', 'Show', 'SimulatedFeed']

Pixels = NDArray[np.uint8]
#: Takes a picture, uint8 [height, width, 3], what its pixels mean, and when it was taken.
Show = Callable[[Pixels, CameraInfo, Stamp], None]

# How long without a picture is worth a warning, s.
_QUIET_S = 2.0
# A state that was not due is shown when none has come for so long, s: an arm that has stopped.
_SETTLED_S = 0.5
_REASONS = 20


class Feed(Protocol):
    """Where pictures come from; each is handed to a :data:`Show`."""

    #: How long the executor may wait before :meth:`poll`, s.
    patience: float

    def poll(self) -> None:
        """Show what is there."""

    def health(self) -> Health:
        """Return a warning or '', and values, for diagnostics."""

    def close(self) -> None:
        """Show nothing more."""


class SimulatedFeed:
    """Draws the arm at its newest joint positions; a picture has the stamp of what it shows."""

    patience = 0.1

    def __init__(
        self, node: Node, config: CameraConfig, geometry: ArmGeometry, show: Show,
    ) -> None:
        """
        Listen; the first picture comes with the first joint positions.

        Must be made, used and closed by one thread.

        Raises:
            ValueError: a description that cannot be drawn, or a machine without OpenGL.
        """
        assert config.size is not None
        width, height = config.size
        self._node, self._show = node, show
        self._renderer, matrix = _renderer(geometry, config.field_of_view, width, height)
        self._info = pinhole(matrix, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._beat = RateLimiter(config.rate)
        self._lamp = False
        self._next: JointState | None = None
        self._shown: JointState | None = None
        self._shown_at = self._heard_at = -np.inf
        self._refused = 0
        self._reasons: set[str] = set()
        node.create_subscription(JointState, 'arm/joint_states', self._on_joint_states,
                                 qos.subscription('arm/joint_states'))
        node.create_subscription(MotorCommand, 'arm/motors_sent', self._on_motors_sent,
                                 qos.TOPICS['arm/motors_sent'])
        node.get_logger().info(f'{width} x {height} of the simulated arm: waiting for '
                               f'{node.resolve_topic_name("arm/joint_states")}')

    def _on_motors_sent(self, message: MotorCommand) -> None:
        if message.lamp in (-1, 1):
            self._lamp = message.lamp == 1

    def _on_joint_states(self, message: JointState) -> None:
        try:
            positions = positions_of(message)
            missing = [name for name, value in zip(JOINTS, positions, strict=True)
                       if np.isnan(value)]
            if missing:
                raise ValueError(f'positions: none of {", ".join(missing)}')
        except ValueError as error:
            self._refuse(str(error))
            return
        self._heard_at = time.monotonic()
        last = self._shown
        if (last is not None and message.header.stamp == last.header.stamp
                and message.position == last.position):
            return
        self._next = message
        # By the arm's own time, which may be slow, fast or stepped; without one by the wall's.
        if self._beat.due(seconds(message.header.stamp) or self._heard_at):
            self._draw()

    def _refuse(self, reason: str) -> None:
        self._refused += 1
        if reason not in self._reasons and len(self._reasons) < _REASONS:  # once each
            self._reasons.add(reason)
            self._node.get_logger().error(f'arm/joint_states refused: {reason}')

    def _draw(self) -> None:
        message, self._next = self._next, None
        assert message is not None
        self._shown, self._shown_at = message, time.monotonic()
        self._renderer.render(positions_of(message), self._lamp, out=self._pixels)
        self._show(self._pixels, self._info, message.header.stamp)

    def poll(self) -> None:
        """Show the last position of an arm that has stopped."""
        if self._next is not None and time.monotonic() - self._shown_at > _SETTLED_S:
            self._draw()

    def health(self) -> Health:
        """Return whether joint states come."""
        quiet = time.monotonic() - self._heard_at
        warning = '' if quiet < _QUIET_S else 'waiting for arm/joint_states' + (
            f', the last came {quiet:.0f} s ago' if np.isfinite(quiet) else '')
        return warning, {'joint states refused': self._refused, 'lamp': self._lamp}

    def close(self) -> None:
        """Free what OpenGL holds."""
        self._renderer.close()


class RealFeed:
    """Passes on the pictures of a device, video or folder, with the moment of each."""

    patience = 0.0

    def __init__(self, node: Node, config: CameraConfig, show: Show) -> None:
        """
        Open the file, or start to look for the device.

        Raises:
            ValueError: a calibration or a file that cannot be used.
        """
        self._node, self._show, self._source = node, show, config.source
        self._calibration = load_calibration(config.calibration) if config.calibration else None
        self._misfit = ''
        self._last_at = time.monotonic()
        self._stamp = 0  # of the last picture, ns

        def opened() -> ImageSource:
            return open_source(config.source, config.size, config.rate, self._notice)

        # A file that is none now is none later; a device may be plugged in.
        first = None if is_device(config.source) else opened()
        node.get_logger().info(f'pictures of {config.source}')
        self._reader = Reader(opened, config.rate, loop=config.loop, source=first,
                              notice=self._notice)

    def _notice(self, text: str) -> None:
        prefix = '' if self._source in text else f'{self._source}: '
        self._node.get_logger().warning(f'{prefix}{text}')

    def poll(self) -> None:
        """Show the newest picture; wait for it a moment."""
        picture = self._reader.take(0.05)
        if picture is None:
            return
        self._last_at = time.monotonic()
        now = self._node.get_clock().now().nanoseconds
        age = round((self._last_at - picture.moment) * 1e9)
        # A stamp is too late if this thread was held up between the two clocks: the next follows
        # it all the same, unless time has jumped back. Nothing is older than simulated time.
        self._stamp = max(0, now - age, min(self._stamp + 1, now))
        height, width, _ = picture.pixels.shape
        self._show(picture.pixels, self._info(width, height),
                   Time(nanoseconds=self._stamp).to_msg())

    def _info(self, width: int, height: int) -> CameraInfo:
        known = self._calibration
        if known is None:
            return uncalibrated(width, height)
        if (known.width, known.height) == (width, height):
            self._misfit = ''
            return known
        misfit = (f'calibration: it is for {known.width} x {known.height}, pictures are '
                  f'{width} x {height}')
        if misfit != self._misfit:
            self._misfit = misfit
            self._node.get_logger().error(f'{misfit}: camera_info says uncalibrated')
        return uncalibrated(width, height)

    def health(self) -> Health:
        """Return whether pictures come."""
        reader = self._reader
        quiet = time.monotonic() - self._last_at
        warning = reader.fault or ('the end was reached' if reader.ended else '') or (
            f'no picture for {quiet:.0f} s' if quiet > _QUIET_S else '') or self._misfit
        return warning, {'pictures damaged': reader.damaged, 'pictures missed': reader.missed}

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()


def _renderer(
    geometry: ArmGeometry, field_of_view: float, width: int, height: int,
) -> tuple[Any, NDArray[np.float64]]:
    """Return a renderer and the intrinsic matrix of its pictures."""
    try:
        # Only here: without OpenGL it cannot even be imported, and a device needs none.
        from vdl_ros.arm.simulation.render import ArmRenderer, camera_matrix
        from vdl_ros.arm.simulation.scene import build_scene
        scene = build_scene(
            geometry, field_of_view=field_of_view, width=width, height=height)
        return ArmRenderer(scene, width, height), camera_matrix(scene, width, height)
    except ValueError:
        raise  # the description cannot be drawn
    except Exception as error:  # every OpenGL is missing in its own way
        raise SettingError(f'source: sim is not possible here: OpenGL: '
                           f'{" ".join(str(error).split())}') from error
