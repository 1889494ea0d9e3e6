"""Capture frames for the pose network.

They are rendered in this process, of the simulated arm, and written with their labels as a data
set (pose/frames.py).
"""

import contextlib
import threading
import time
from pathlib import Path

from rclpy.executors import Executor

from vdl_ros.arm.geometry import GeometryConfig, Positions
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.common.command_line import EXIT_DISK
from vdl_ros.common.settings import SettingError
from vdl_ros.pose.domain_randomization import LOOK, RandomizedScene, sample
from vdl_ros.pose.frames import FrameWriter
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import CaptureConfig
from vdl_ros.ros.process import EXIT_OK


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

    def step(self) -> None:
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
        self._capture = SimulatedCapture(config, self.settings(GeometryConfig))

    def work(self, _: Executor, stop: threading.Event) -> int:
        capture, log, total = self._capture, self.get_logger(), self._total
        first = capture.frames
        if first:
            log.info(f'{first:,} frames are there already')
        begun = logged = time.monotonic()
        try:
            while not stop.is_set() and capture.frames < total:
                capture.step()
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
