"""Capture labelled frames of the simulated arm: request each, collect its messages, write a bag.

Publishes ``capture/scene`` (vdl_ros/CaptureScene: camera and look) and ``capture/pose``
(sensor_msgs/JointState) with one stamp for each frame; ``sim_arm`` sets the pose, ``camera``
draws it, and ``arm/joint_states``, ``camera/image_raw`` and ``camera/camera_info`` are published
with that stamp. With ``labels:=false`` pictures of a real arm are recorded without labels.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros capture --help``.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from builtin_interfaces.msg import Time
from rclpy.node import Node
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Header

from vdl_ros.arm.geometry import GeometryConfig, Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.common.settings import SettingError, select
from vdl_ros.msg import CaptureScene
from vdl_ros.pose.domain_randomization import sample
from vdl_ros.pose.pending_frames import FrameTracker, UnsolicitedFrames
from vdl_ros.ros import qos
from vdl_ros.ros.bags.capture_bag import CaptureBag
from vdl_ros.ros.node_settings import CaptureConfig, ProcessConfig
from vdl_ros.ros.process import EXIT_OK, make_executor, run_node, take_settings

SETTINGS = (CaptureConfig, GeometryConfig, ProcessConfig)
EXIT_DISK = 3
# Topics of a frame, in the order in which they are written.
PARTS = {
    'capture/scene': 'vdl_ros/msg/CaptureScene',
    'arm/joint_states': 'sensor_msgs/msg/JointState',
    'camera/camera_info': 'sensor_msgs/msg/CameraInfo',
    'camera/image_raw': 'sensor_msgs/msg/Image',
}
# Pending frames: fewer than the depth of the shortest queue; see ros/qos.py.
WINDOW = 4
PATIENCE_S = 2.0
# Stamp of frame n: FIRST_NS + n * PERIOD_NS.
PERIOD_NS, FIRST_NS = 33_333_333, 10**9
_STAMP = struct.Struct('<4xiI')


class CaptureNode(Node):
    """Requests frames and writes them.

    Raises:
        ValueError: a parameter or a folder that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('capture')
        given, self.process = take_settings(self, *SETTINGS)
        self._config = select(CaptureConfig, given)
        if not self._config.output:
            raise SettingError('output: none is given: output:=<folder of the bag>')
        description = select(GeometryConfig, given)
        self._geometry = description.load()
        self._arm = ArmSimulation(geometry=self._geometry)
        self._labels = self._config.labels
        settings = {name: getattr(self._config, name) for name in (
            'domain', 'seed', 'split', 'labels')}
        topics = PARTS if self._labels else {
            name: kind for name, kind in PARTS.items() if name.startswith('camera/')}
        self.bag = CaptureBag(
            Path(self._config.output), topics,
            settings | {'urdf': description.urdf, 'xacro_args': description.xacro_args},
            self._config.compression)
        self.first = self.bag.frames
        self.frames: FrameTracker | UnsolicitedFrames
        if self._labels:
            self.frames = FrameTracker(self.first, self._config.frames, tuple(topics),
                                       window=WINDOW, patience=PATIENCE_S)
        else:
            self.frames = UnsolicitedFrames(self.first, self._config.frames, tuple(topics))
            self.get_logger().warning('pictures without labels: the joint positions are unknown')
        self._scenes = self.create_publisher(
            CaptureScene, 'capture/scene', qos.TOPICS['capture/scene'])
        self._poses = self.create_publisher(
            JointState, 'capture/pose', qos.TOPICS['capture/pose'])
        if self._labels:
            self.create_subscription(
                JointState, 'arm/joint_states', self._collect('arm/joint_states'),
                qos.TOPICS['arm/joint_states'], raw=True)
        self.create_subscription(
            CameraInfo, 'camera/camera_info', self._collect('camera/camera_info'),
            qos.TOPICS['camera/camera_info'], raw=True)
        self.create_subscription(
            Image, 'camera/image_raw', self._collect('camera/image_raw'),
            qos.TOPICS['camera/image_raw'], raw=True)

    @property
    def total(self) -> int:
        """Return the number of frames in the end."""
        return self._config.frames

    @property
    def is_connected(self) -> bool:
        """Return whether arm and camera are connected."""
        requested = self._poses.get_subscription_count() and self._scenes.get_subscription_count()
        return bool((requested or not self._labels) and self.count_publishers('camera/image_raw'))

    def request(self) -> None:
        """Request the frames that are due."""
        for index in self.frames.due_requests(time.monotonic()):
            frame = sample(self._config.split, self._config.seed, index, self._config.domain,
                           self._geometry, self._fits)
            nanoseconds = FIRST_NS + index * PERIOD_NS
            header = Header(frame_id='base_link', stamp=Time(
                sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9))
            scene = CaptureScene(
                header=header, index=index, seed=self._config.seed, split=self._config.split,
                domain=self._config.domain, camera_distance=frame.distance,
                camera_elevation=frame.elevation, camera_azimuth=frame.azimuth,
                name=list(frame.look), value=[float(each) for each in frame.look.values()])
            self.frames.put(index, 'capture/scene', serialize_message(scene))
            self._scenes.publish(scene)
            self._poses.publish(JointState(
                header=header, name=list(JOINTS), position=frame.positions.tolist()))

    def write(self) -> None:
        """Write the complete frames.

        Raises:
            OSError: the disk is full.
        """
        for number, parts in self.frames.pop_complete():
            self.bag.write(FIRST_NS + number * PERIOD_NS if self._labels else number, parts)

    def _collect(self, part: str) -> Callable[[bytes], None]:
        def receive(data: bytes) -> None:
            if len(data) >= _STAMP.size:
                seconds, nanoseconds = _STAMP.unpack_from(data)
                stamp_ns = seconds * 10**9 + nanoseconds
                index, rest = divmod(stamp_ns - FIRST_NS, PERIOD_NS)
                if not self._labels:
                    self.frames.put(stamp_ns, part, data)
                elif not rest:
                    self.frames.put(index, part, data)
        return receive

    def _fits(self, positions: Positions) -> bool:
        try:
            self._arm.check_collision(positions)
        except PoseError:
            return False
        return True


def capture(node: CaptureNode, stop: threading.Event) -> int:
    """Capture until all frames are written, or until stopped."""
    executor = make_executor(node.process.executor)
    executor.add_node(node)
    log = node.get_logger()
    if node.first:
        log.info(f'{node.first:,} frames are there already')
    while not stop.is_set() and not node.is_connected and not node.frames.finished:
        executor.spin_once(timeout_sec=0.1)
    begun = logged = time.monotonic()
    failure: OSError | None = None
    try:
        while not stop.is_set() and not node.frames.finished:
            node.request()
            executor.spin_once(timeout_sec=0.1)
            node.write()
            if time.monotonic() - logged >= 1.0:
                logged = time.monotonic()
                done = node.frames.done - node.first
                rate = done / (logged - begun)
                end = (f'{(node.total - node.frames.done) / rate:6.0f} s left' if done
                       else f'waiting for {", ".join(node.frames.missing) or "a whole frame"}')
                log.info(f'frames {node.frames.done:>9,} / {node.total:,}  {rate:7.1f}/s  {end}')
        node.bag.close()
    except OSError as error:
        failure = error
    executor.remove_node(node)
    if failure is not None:
        log.error(f'{node.bag.frames:,} frames captured, then: {failure}; '
                  'the same command resumes')
        return EXIT_DISK
    rate = (node.frames.done - node.first) / max(time.monotonic() - begun, 1e-9)
    end = '' if node.frames.finished else '; the same command resumes'
    log.info(f'{node.bag.frames:,} of {node.total:,} frames captured, {rate:.1f}/s, '
             f'{node.frames.repeated} requested again{end}')
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('capture', CaptureNode, capture, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
