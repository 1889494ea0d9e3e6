"""Where the camera's images come from, and how nodes subscribe to them."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time as Stamp
from geometry_msgs.msg import PoseStamped
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, JointState

from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.arm.joints import JOINTS
from vdl_ros.camera.camera_config import CameraConfig
from vdl_ros.camera.image_sources import ImageSource, RateLimiter, Reader, is_device, open_source
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import MotorCommand
from vdl_ros.ros.base_node import BaseNode, Health
from vdl_ros.ros.messages.images import pinhole, uncalibrated
from vdl_ros.ros.messages.joint_messages import pose_of, positions_of, seconds

Pixels = NDArray[np.uint8]
#: Called with an image, uint8 [height, width, 3], its camera info, and its time.
ImageCallback = Callable[[Pixels, CameraInfo, Stamp], None]

_QUIET_S = 2.0  # time without an image that gives a warning, s
# A skipped joint state is rendered after this time without another, s: the arm has stopped.
_SETTLED_S = 0.5


class SimulatedFeed:
    """Renders the arm at its latest joint positions, whose stamp it keeps; for one thread."""

    #: Longest wait of the executor between calls of :meth:`poll`, s.
    poll_timeout = 0.1

    def __init__(
        self, node: BaseNode, config: CameraConfig, geometry: ArmGeometry, publish: ImageCallback,
    ) -> None:
        assert config.size is not None
        width, height = config.size
        self._node, self._publish = node, publish
        self._geometry, self._field_of_view = geometry, config.field_of_view
        self._renderer, matrix = _renderer(geometry, config.field_of_view, width, height)
        self._info = pinhole(matrix, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._limiter = RateLimiter(config.rate)
        self._lamp = False
        self._next: JointState | None = None
        self._shown: JointState | None = None
        self._shown_at = self._received_at = -np.inf
        # None until a simulation has one.
        self._cube: NDArray[np.float64] | None = None
        node.sub('arm/joint_states', self._on_joint_states)
        node.sub('arm/motors_sent', self._on_motors_sent)
        node.sub('cube/pose', self._on_cube)
        node.get_logger().info(f'{width} x {height} of the simulated arm: waiting for '
                               f'{node.resolve_topic_name("arm/joint_states")}')

    def _on_motors_sent(self, message: MotorCommand) -> None:
        if message.lamp in (-1, 1):
            self._lamp = message.lamp == 1

    def _on_cube(self, message: PoseStamped) -> None:
        pose = pose_of(message.pose)
        if self._cube is None:
            # Only one renderer can be open.
            self._renderer.close()
            height, width, _ = self._pixels.shape
            self._renderer, _ = _renderer(
                self._geometry, self._field_of_view, width, height, with_cube=True)
        elif np.allclose(pose, self._cube, atol=1e-5):
            return
        # It moves with the arm, and falls and rolls without it.
        self._cube, self._shown = pose, None

    def _on_joint_states(self, message: JointState) -> None:
        missing = [name for name, value in zip(JOINTS, positions_of(message), strict=True)
                   if np.isnan(value)]
        if missing:
            raise ValueError(f'positions: none of {", ".join(missing)}')
        self._received_at = time.monotonic()
        last = self._shown
        if last and (message.header.stamp, message.position) == (last.header.stamp, last.position):
            return
        self._next = message
        # The arm's time, which may be slow, fast or stepped; wall time without a stamp.
        if self._limiter.due(seconds(message.header.stamp) or self._received_at):
            self._draw()

    def _draw(self) -> None:
        message, self._next = self._next, None
        assert message is not None
        self._shown, self._shown_at = message, time.monotonic()
        self._renderer.render(
            positions_of(message), self._lamp, out=self._pixels, cube=self._cube)
        self._publish(self._pixels, self._info, message.header.stamp)

    def poll(self) -> None:
        """Publish the last position of an arm that has stopped."""
        if self._next is not None and time.monotonic() - self._shown_at > _SETTLED_S:
            self._draw()

    def health(self) -> Health:
        quiet = time.monotonic() - self._received_at
        warning = '' if quiet < _QUIET_S else 'waiting for arm/joint_states' + (
            f', last received {quiet:.0f} s ago' if np.isfinite(quiet) else '')
        return warning, {'joint states refused': self._node.refused, 'lamp': self._lamp}

    def close(self) -> None:
        self._renderer.close()


class RealFeed:
    """Publishes the images of a device, video or folder, each with its time."""

    poll_timeout = 0.0

    def __init__(self, node: Node, config: CameraConfig, publish: ImageCallback) -> None:
        self._node, self._publish, self._source = node, publish, config.source
        self._last_at = time.monotonic()
        self._stamp = 0  # of the last image, ns

        def opened() -> ImageSource:
            return open_source(config.source, config.size, config.rate, self._notice)

        # A device may be plugged in later; an invalid file stays invalid.
        first = None if is_device(config.source) else opened()
        node.get_logger().info(f'images of {config.source}')
        self._reader = Reader(opened, config.rate, loop=config.loop, source=first,
                              notice=self._notice)

    def _notice(self, text: str) -> None:
        prefix = '' if self._source in text else f'{self._source}: '
        self._node.get_logger().warning(f'{prefix}{text}')

    def poll(self) -> None:
        """Publish the latest image; wait for it for 50 ms."""
        image = self._reader.take(0.05)
        if image is None:
            return
        self._last_at = time.monotonic()
        now = self._node.get_clock().now().nanoseconds
        age = round((self._last_at - image.moment) * 1e9)
        # A stamp is too late if this thread was suspended between reading the two clocks. Stamps
        # increase all the same, unless time jumps back; none is before simulated time 0.
        self._stamp = max(0, now - age, min(self._stamp + 1, now))
        height, width, _ = image.pixels.shape
        self._publish(image.pixels, uncalibrated(width, height),
                      Time(nanoseconds=self._stamp).to_msg())

    def health(self) -> Health:
        reader = self._reader
        quiet = time.monotonic() - self._last_at
        warning = reader.fault or ('end of the source' if reader.ended else '') or (
            f'no image for {quiet:.0f} s' if quiet > _QUIET_S else '')
        return warning, {'images damaged': reader.damaged, 'images missed': reader.missed}

    def close(self) -> None:
        self._reader.close()


def _renderer(
    geometry: ArmGeometry, field_of_view: float, width: int, height: int, with_cube: bool = False,
) -> tuple[Any, NDArray[np.float64]]:
    try:
        # Imported only here: the import needs OpenGL, and other sources need none.
        from vdl_ros.arm.simulation.render import ArmRenderer, camera_matrix
        from vdl_ros.arm.simulation.scene import add_cube, build_scene
        scene = build_scene(geometry, field_of_view=field_of_view,
                            furnish=add_cube if with_cube else None)
        return ArmRenderer(scene, width, height), camera_matrix(scene, width, height)
    except ValueError:
        raise  # the description cannot be rendered
    except Exception as error:  # each backend of OpenGL raises its own type
        raise SettingError(f'source: sim is not possible here: OpenGL: '
                           f'{" ".join(str(error).split())}') from error
