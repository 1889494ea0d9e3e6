"""Capture frames for the pose network.

Frames of the simulated arm are rendered in this process and written with their labels as a data
set (pose/frames.py). With ``labels:=false`` the images of a node ``camera`` are recorded in a bag.
"""

import contextlib
import threading
import time
from pathlib import Path

from rclpy.executors import Executor

from vdl_ros.arm.geometry import GeometryConfig, Positions
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.bags.reader import read_part
from vdl_ros.common.command_line import EXIT_DISK
from vdl_ros.common.files import lock_folder
from vdl_ros.common.settings import SettingError
from vdl_ros.pose.domain_randomization import LOOK, RandomizedScene, sample
from vdl_ros.pose.frames import FrameWriter
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import CaptureConfig
from vdl_ros.ros.process import EXIT_OK, call_back


class SimulatedCapture:
    """Renders frames of the simulated arm; the frame of a number is always the same."""

    def __init__(self, config: CaptureConfig, description: GeometryConfig) -> None:
        self._config, self._geometry = config, description.load()
        self._arm = ArmSimulation(geometry=self._geometry)
        self._writer = FrameWriter(
            Path(config.output), (config.image_height, config.image_width), LOOK,
            {'domain': config.domain, 'seed': config.seed, 'split': config.split,
             'urdf': description.urdf, 'xacro_args': description.xacro_args})
        self._scene = RandomizedScene(self._geometry, config.image_width, config.image_height)

    @property
    def frames(self) -> int:
        """How many there are, those of earlier captures included."""
        return self._writer.frames

    def step(self, _: Executor) -> None:
        config, scene = self._config, self._scene
        frame = sample(config.split, config.seed, self.frames, config.domain, self._geometry,
                       self._fits)
        # The focal length is that of the picture just drawn.
        image = scene.draw(frame)
        self._writer.write(image, frame.positions, frame.camera,
                           scene.matrix[1, 1] / scene.height, frame.look)

    def _fits(self, positions: Positions) -> bool:
        try:
            self._arm.check_collision(positions)
        except PoseError:
            return False
        return True

    def close(self) -> None:
        self._scene.close()
        self._writer.close()


class CameraCapture:
    """Records images of the camera and their camera info in a bag, a new file for each capture."""

    _TOPICS = ('camera/camera_info', 'camera/image_raw')

    def __init__(self, config: CaptureConfig, node: BaseNode) -> None:
        path = Path(config.output)
        # Before its files are read; a new folder is made by one process alone.
        lock = lock_folder(path) if any(path.glob('*.mcap')) else None
        parts = [read_part(file) for file in sorted(
            path.glob('*.mcap'), key=lambda file: (len(file.name), file.name))]
        if any(topic.name.lstrip('/') not in self._TOPICS
               for part in parts for topic in part.topics):
            raise SettingError(f'{path} exists and is no capture; name another folder')
        self.frames = sum(part.count for part in parts) // len(self._TOPICS)
        self._bag: BagWriter | None = None
        self._info = b''
        self._failure: OSError | None = None
        if self.frames >= config.frames:
            return
        self._bag = BagWriter(path, compression=config.compression, earlier=parts)
        self._lock = lock or lock_folder(path)
        self._handles = []
        for name, callback in zip(self._TOPICS, (self._on_info, self._on_image), strict=True):
            topic = qos.TABLE[name]
            self._handles.append(self._bag.add_topic(
                f'/{name}', topic.type.replace('/', '/msg/'), [topic.offered]))
            node.create_subscription(topic.message, name, callback, topic.offered, raw=True)

    def _on_info(self, data: bytes) -> None:
        self._info = data

    def _on_image(self, data: bytes) -> None:
        # The camera sends the info of an image before it, with its stamp.
        if self._bag is None or self._info[4:12] != data[4:12]:
            return
        stamp_ns = int.from_bytes(data[4:8], 'little') * 10**9 + int.from_bytes(
            data[8:12], 'little')
        try:
            for handle, part in zip(self._handles, (self._info, data), strict=True):
                self._bag.write(handle, stamp_ns, part)
            self.frames += 1
        except OSError as error:
            self._failure = error

    def step(self, executor: Executor) -> None:
        call_back(executor, 0.1)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if self._bag is not None:
            self._bag.close()


class CaptureNode(BaseNode):
    """Captures frames until all are written."""

    NAME = 'capture'
    SETTINGS = (CaptureConfig, GeometryConfig)

    def __init__(self) -> None:
        super().__init__()
        config = self.settings(CaptureConfig)
        if not config.output:
            raise SettingError('output: none is given: output:=<folder of the data set>')
        self._total = config.frames
        self._capture: SimulatedCapture | CameraCapture
        if config.labels:
            self._capture = SimulatedCapture(config, self.settings(GeometryConfig))
        else:
            self._capture = CameraCapture(config, self)
            self.get_logger().warning('pictures without labels: the joint positions are unknown')

    def work(self, executor: Executor, stop: threading.Event) -> int:
        capture, log, total = self._capture, self.get_logger(), self._total
        first = capture.frames
        if first:
            log.info(f'{first:,} frames are there already')
        begun = logged = time.monotonic()
        try:
            while not stop.is_set() and capture.frames < total:
                capture.step(executor)
                if time.monotonic() - logged >= 1.0:
                    logged = time.monotonic()
                    rate = (capture.frames - first) / (logged - begun)
                    end = f'{(total - capture.frames) / rate:6.0f} s left' if rate else 'waiting'
                    log.info(f'frames {capture.frames:>9,} / {total:,}  {rate:7.1f}/s  {end}')
            capture.close()
        except OSError as error:
            log.error(f'{error}; the same command resumes')
            with contextlib.suppress(OSError):
                capture.close()
            return EXIT_DISK
        rate = (capture.frames - first) / max(time.monotonic() - begun, 1e-9)
        log.info(f'{capture.frames:,} of {total:,} frames captured, {rate:.1f}/s'
                 + ('' if capture.frames >= total else '; the same command resumes'))
        return EXIT_OK


main = CaptureNode.main
