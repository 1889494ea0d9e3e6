"""Capture frames for the pose network.

Frames of the simulated arm are rendered in this process and written with their labels as a data
set (pose/frames.py). With ``labels:=false`` the images of a node ``camera`` are recorded in a bag.
Parameters: docs/settings.md, or ``ros2 run vdl_ros capture --help``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image

from vdl_ros.arm.geometry import GeometryConfig, Positions
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.bags.reader import read_part
from vdl_ros.common.settings import SettingError, select
from vdl_ros.pose.domain_randomization import LOOK, RandomizedScene, sample
from vdl_ros.pose.frames import FrameWriter
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.node_settings import CaptureConfig, ProcessConfig
from vdl_ros.ros.process import EXIT_OK, make_executor, run_node, take_settings

SETTINGS = (CaptureConfig, GeometryConfig, ProcessConfig)
EXIT_DISK = 3


class SimulatedCapture:
    """Renders frames of the simulated arm; the frame of a number is always the same.

    ``frames`` is the number of frames, those of earlier captures included.
    """

    def __init__(self, config: CaptureConfig, description: GeometryConfig) -> None:
        self._config, self._geometry = config, description.load()
        self._arm = ArmSimulation(geometry=self._geometry)
        self._writer = FrameWriter(
            Path(config.output), (config.image_height, config.image_width), LOOK,
            {'domain': config.domain, 'seed': config.seed, 'split': config.split,
             'urdf': description.urdf, 'xacro_args': description.xacro_args})
        self._scene = RandomizedScene(self._geometry, config.image_width, config.image_height)

        self.frames = self._writer.frames

    def step(self) -> None:
        """Write a frame.

        Raises:
            OSError: the disk is full.
        """
        config, scene = self._config, self._scene
        frame = sample(config.split, config.seed, self.frames, config.domain, self._geometry,
                       self._fits)
        # The focal length is that of the picture just drawn.
        image = scene.draw(frame)
        self._writer.write(image, frame.positions, frame.camera,
                           scene.matrix[1, 1] / scene.height, frame.look)
        self.frames += 1

    def _fits(self, positions: Positions) -> bool:
        try:
            self._arm.check_collision(positions)
        except PoseError:
            return False
        return True

    def close(self) -> None:
        """Finish the files, also after an error."""
        self._scene.close()
        self._writer.close()


class CameraCapture:
    """Records images of the camera and their camera info in a bag, a new file for each capture."""

    _TYPES = {'camera/camera_info': CameraInfo, 'camera/image_raw': Image}

    def __init__(self, node: Node, config: CaptureConfig, executor: str) -> None:
        path = Path(config.output)
        parts = [read_part(file) for file in sorted(
            path.glob('*.mcap'), key=lambda file: (len(file.name), file.name))]
        if any(topic.name.lstrip('/') not in self._TYPES
               for part in parts for topic in part.topics):
            raise SettingError(f'{path} exists and is no capture; name another folder')
        self.frames = sum(part.count for part in parts) // len(self._TYPES)
        self._bag: BagWriter | None = None
        self._handles: dict[str, int] = {}
        if self.frames < config.frames:
            self._bag = BagWriter(path, compression=config.compression, earlier=parts)
            self._handles = {name: self._bag.add_topic(
                f'/{name}', f'sensor_msgs/msg/{kind.__name__}', [qos.TOPICS[name]])
                for name, kind in self._TYPES.items()}
        self._info = b''
        self._executor = make_executor(executor)
        self._executor.add_node(node)
        for name, kind in self._TYPES.items():
            node.create_subscription(
                kind, name, self._on_image if kind is Image else self._on_info, qos.TOPICS[name],
                raw=True)

    def _on_info(self, data: bytes) -> None:
        self._info = data

    def _on_image(self, data: bytes) -> None:
        # The camera sends the info of an image before it, with its stamp.
        if self._bag is None or self._info[4:12] != data[4:12]:
            return
        stamp_ns = int.from_bytes(data[4:8], 'little') * 10**9 + int.from_bytes(
            data[8:12], 'little')
        for handle, part in zip(self._handles.values(), (self._info, data), strict=True):
            self._bag.write(handle, stamp_ns, part)
        self.frames += 1

    def step(self) -> None:
        """Wait for a message."""
        self._executor.spin_once(timeout_sec=0.1)

    def close(self) -> None:
        """Finish the bag."""
        self._executor.shutdown()
        if self._bag is not None:
            self._bag.close()


class CaptureNode(Node):
    """Captures frames.

    Raises:
        ValueError: a parameter or a folder that cannot be used.
        OpenGLError: nothing can be drawn on this machine.
    """

    def __init__(self) -> None:
        super().__init__('capture')
        given, self.process = take_settings(self, *SETTINGS)
        config = select(CaptureConfig, given)
        if not config.output:
            raise SettingError('output: none is given: output:=<folder of the data set>')
        self.total = config.frames
        self.capture: SimulatedCapture | CameraCapture
        if config.labels:
            self.capture = SimulatedCapture(config, select(GeometryConfig, given))
        else:
            self.capture = CameraCapture(self, config, self.process.executor)
            self.get_logger().warning('pictures without labels: the joint positions are unknown')


def capture(node: CaptureNode, stop: threading.Event) -> int:
    """Capture until all frames are written, or until stopped."""
    work, log, total = node.capture, node.get_logger(), node.total
    first = work.frames
    if first:
        log.info(f'{first:,} frames are there already')
    begun = logged = time.monotonic()
    try:
        while not stop.is_set() and work.frames < total:
            work.step()
            if time.monotonic() - logged >= 1.0:
                logged = time.monotonic()
                rate = (work.frames - first) / (logged - begun)
                end = f'{(total - work.frames) / rate:6.0f} s left' if rate else 'waiting'
                log.info(f'frames {work.frames:>9,} / {total:,}  {rate:7.1f}/s  {end}')
        work.close()
    except OSError as error:
        log.error(f'{error}; the same command resumes')
        with contextlib.suppress(OSError):
            work.close()
        return EXIT_DISK
    rate = (work.frames - first) / max(time.monotonic() - begun, 1e-9)
    log.info(f'{work.frames:,} of {total:,} frames captured, {rate:.1f}/s'
             + ('' if work.frames >= total else '; the same command resumes'))
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('capture', CaptureNode, capture, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
