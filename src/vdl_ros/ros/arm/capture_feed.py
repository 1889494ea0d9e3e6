"""Camera feed of a capture: renders each requested frame, with its stamp."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.node import Node
from sensor_msgs.msg import JointState

from vdl_ros.arm.geometry import ArmGeometry, Positions
from vdl_ros.camera.camera_config import CameraConfig
from vdl_ros.msg import CaptureScene
from vdl_ros.pose.domain_randomization import RandomizedScene
from vdl_ros.ros import qos
from vdl_ros.ros.arm.camera_feeds import ImageCallback
from vdl_ros.ros.base_node import Health
from vdl_ros.ros.messages.images import pinhole
from vdl_ros.ros.messages.joint_messages import positions_of

__all__ = ['CaptureFeed']

T = TypeVar('T')

# Limit of incomplete frames; a capture has fewer under way.
_WAITING = 64
# Limit of the parameters of a scene; a capture sends about 50.
_PARAMETERS = 1000


class CaptureFeed:
    """Renders a frame once its scene and its joint states, with the same stamp, have arrived.

    Must be made, used and closed by one thread.

    Raises:
        ValueError: a description that cannot be rendered, or a machine without OpenGL.
    """

    poll_timeout = 0.1

    def __init__(
        self, node: Node, config: CameraConfig, geometry: ArmGeometry, publish: ImageCallback,
    ) -> None:
        assert config.size is not None
        width, height = config.size
        self._node, self._publish = node, publish
        try:
            self._renderer = RandomizedScene(geometry, width, height)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._scenes: dict[tuple[int, int], CaptureScene] = {}
        self._positions: dict[tuple[int, int], Positions] = {}
        self._refused = 0
        node.create_subscription(
            CaptureScene, 'capture/scene', self._on_scene, qos.TOPICS['capture/scene'])
        # Every message, not only the latest.
        node.create_subscription(JointState, 'arm/joint_states', self._on_joint_states,
                                 qos.TOPICS['arm/joint_states'])

    def _on_scene(self, message: CaptureScene) -> None:
        if max(len(message.name), len(message.value)) > _PARAMETERS:
            self._refuse(f'capture/scene: more than {_PARAMETERS} parameters')
            return
        self._keep(self._scenes, message.header.stamp, message)

    def _on_joint_states(self, message: JointState) -> None:
        try:
            positions = positions_of(message)
        except ValueError as error:
            self._refuse(str(error))
            return
        self._keep(self._positions, message.header.stamp, positions)

    def _keep(self, kept: dict[tuple[int, int], T], stamp: Time, what: T) -> None:
        """Keep one half of a frame; render it if the other half is there."""
        key = stamp.sec, stamp.nanosec
        kept[key] = what
        if key in self._scenes and key in self._positions:
            self._draw(self._scenes.pop(key), self._positions.pop(key), stamp)
        while len(kept) > _WAITING:
            del kept[next(iter(kept))]

    def _draw(self, scene: CaptureScene, positions: Positions, stamp: Time) -> None:
        try:
            if len(scene.name) != len(scene.value):
                raise ValueError(f'{len(scene.name)} names and {len(scene.value)} values')
            parameters = dict(zip(scene.name, scene.value, strict=True))
            pixels = self._renderer.draw(
                positions, scene.camera_distance, scene.camera_elevation, scene.camera_azimuth,
                parameters, out=self._pixels)
        except (ValueError, KeyError) as error:
            self._refuse(f'capture/scene {scene.index}: {error}')
            return
        renderer = self._renderer
        info = pinhole(renderer.matrix, renderer.width, renderer.height)
        self._publish(pixels, info, stamp)

    def _refuse(self, reason: str) -> None:
        self._refused += 1
        if self._refused <= 20:
            self._node.get_logger().error(f'refused: {reason}')

    def poll(self) -> None:
        """Do nothing: frames are rendered in callbacks."""

    def health(self) -> Health:
        """Return how many frames could not be rendered."""
        return '', {'frames refused': self._refused}

    def close(self) -> None:
        """Free the OpenGL context."""
        self._renderer.close()
