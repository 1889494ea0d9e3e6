"""Browser view of the arm, with buttons that move it, record episodes and judge them.

It commands the motors while a button is held, and publishes ``arm/viewer_alive`` while it handles
input.
"""

import math
import time
from collections.abc import Mapping

import numpy as np
from geometry_msgs.msg import PointStamped, PoseStamped
from rclpy.client import Client
from rclpy.task import Future
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty, Header, String
from std_srvs.srv import Trigger

from vdl_ros.arm.geometry import ArmGeometry, parse
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.camera.camera_config import ImageTransportConfig
from vdl_ros.common.consent import VIEWER_S, StandstillDetector
from vdl_ros.msg import (
    ArmPose,
    EmergencyStopState,
    JointTrajectoryStatus,
    MotorCommand,
    TargetStatus,
)
from vdl_ros.ros.arm.arm_topics import (
    NOT_RELEASED,
    MotorsPublisher,
    motors_from_message,
    release_request,
    stop_request,
)
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.images import AnyImage, from_image, subscribe_to_images
from vdl_ros.ros.messages.joint_messages import (
    pose_of,
    positions_of,
    seconds,
    trajectory_message,
)
from vdl_ros.ros.node_settings import ViewConfig
from vdl_ros.ros.statistics.statistics import TopicStatistics
from vdl_ros.srv import Confirm
from vdl_ros.view import panel
from vdl_ros.view.overlay import draw_arm
from vdl_ros.view.page_server import serve
from vdl_ros.view.state_text import ArmStatus, plain, state_text

# Period of processing the users' inputs, s.
INPUT_S = 0.02
# A button without repetition for this time is released, s: a browser may stutter.
RELEASE_S = 4.0 / panel.HOLD_HZ
# A longer pause of the view is a standstill, s: drawing may take a while.
STANDSTILL_S = 2.0
# Period of its heartbeat, and how old the page server's last answer may be for one, s.
ALIVE_S, ANSWER_S = 0.1, 0.5
# So long the answer to a verdict is waited for, and shown, s.
ANSWERED_S = 5.0
# Maximum age of an estimate that is shown, s.
GHOST_S = 1.0
# Period of the camera's images on the page, s.
_PICTURE_S = 0.1
# Speed of trajectories relative to the motors, which have to keep up.
SPEED_SHARE = 0.8
_BUTTON = 'a button of the view'


class Verdicts:
    """Verdicts of a person on a training's episodes, one at a time, and the answers to them."""

    def __init__(self, clients: Mapping[str, Client]) -> None:
        self._clients = clients
        self._outcome, self._asked_at = '', -math.inf
        self._answer: Future | None = None

    def ask(self, outcome: str, now: float) -> None:
        """Send a verdict; not while another one waits for its answer."""
        if self._answer is not None and not self._answer.done() and self.text(now):
            return
        self._clear()
        self._outcome, self._asked_at = outcome, now
        if self._clients[outcome].service_is_ready():
            self._answer = self._clients[outcome].call_async(Confirm.Request())

    def text(self, now: float) -> str:
        """Return what became of the latest one, '' some seconds later."""
        if now - self._asked_at > ANSWERED_S:
            self._clear()
            return ''
        if self._answer is None:
            return f'{self._outcome}: no training takes it'
        if not self._answer.done():
            return f'{self._outcome}: no answer yet'
        return f'{self._outcome}: {self._answer.result().message}'

    def _clear(self) -> None:
        if self._answer is not None:
            # Of a training that ended before it answered.
            self._clients[self._outcome].remove_pending_request(self._answer)
        self._answer, self._asked_at = None, -math.inf


class ViewerNode(BaseNode):
    """Shows messages on the page and publishes the users' inputs."""

    NAME = 'viewer'
    SETTINGS = (ViewConfig, ImageTransportConfig)

    def __init__(self) -> None:
        super().__init__()
        config = self.settings(ViewConfig)
        self._server = serve(config.view_host, config.view_port, self.get_logger().warning)
        self._stops = self.pub('arm/emergency_stop')
        self._releases = self.pub('arm/emergency_stop_release')
        self._scene = panel.ArmScene(self._server.viser)
        self._panel = panel.Panel(self._server.viser, self._request_stop, self._seen_stop)
        self._target = panel.DraggedTarget(self._server.viser)
        self._held = panel.HeldButtons(RELEASE_S)
        self._standstill = StandstillDetector(STANDSTILL_S)
        self._was_held = False
        self._published_at, self._alive_at = -math.inf, math.inf
        self._geometry: ArmGeometry | None = None
        self._kinematics: Kinematics | None = None
        self._arm_status = ArmStatus()
        self._stop_state: EmergencyStopState | None = None
        self._positions = np.full(len(JOINTS), math.nan)
        # The estimate of the camera's picture, of joints and camera.
        self._estimate: ArmPose | None = None
        self._estimated_at = -math.inf
        self._image: AnyImage | None = None
        self._episodes = ''
        self._goal, self._cube = np.full(3, np.nan), np.full(7, np.nan)
        self._subscribe(self.settings(ImageTransportConfig).image_transport)
        self._motors = MotorsPublisher(self, person=True)
        self._trajectories = self.pub('arm/joint_trajectory')
        self._targets = self.pub('arm/target')
        self._alive = self.pub('arm/viewer_alive')
        # Buttons must work while simulated time stands still.
        self.every(INPUT_S, self._process_input)
        self.every(ALIVE_S, self._show_life)
        self.every(1.0 / config.view_rate, self._draw)
        self.every(_PICTURE_S, self._draw_image)
        self.get_logger().info(f'view: {self._server.url}')

    def _subscribe(self, image_transport: str) -> None:
        self._statistics = TopicStatistics(self, 'camera/image_raw')
        self.sub('robot_description', self._on_description)
        self.sub('arm/joint_states', self._on_joint_states)
        self.sub('arm/pose', self._on_pose)
        subscribe_to_images(self, image_transport, self._on_image)
        self.sub('arm/motors_sent', self._on_sent)
        self.sub('arm/trajectory_status', self._on_status)
        self.sub('arm/target_status', self._on_target_status)
        self.sub('arm/emergency_stop_state', self._on_stop_state)
        self.sub('robot/target', self._on_goal)
        self.sub('cube/pose', self._on_cube)
        self._training = self.sub('robot/status', self._on_training)
        self.sub('record_episodes/state', self._on_episodes)
        self._recorder = {name: self.create_client(Trigger, f'record_episodes/{name}')
                          for name in panel.EPISODES}
        self._verdicts = Verdicts({name: self.create_client(Confirm, f'robot/{name}')
                                   for name in panel.VERDICTS})

    def stop(self) -> None:
        """Release every button and end the server."""
        self._handle_events()
        # Afterwards: a press that waited would hold its button again.
        self._held.release_all()
        self._command_held()
        self._motors.wait_for_acks()
        self._server.stop()

    def make_safe(self) -> None:
        self._held.release_all()

    def _on_description(self, message: String) -> None:
        # A bag that is played repeats it.
        if self._geometry is not None and message.data == self._geometry.urdf:
            return
        self._geometry = geometry = parse(message.data)
        self._kinematics = Kinematics(geometry)
        if geometry.meshes:
            self.get_logger().warning('robot_description: mesh files are not drawn: '
                                      f'{geometry.meshes}; the view reads none')
        self._scene.set_geometry(geometry)
        self._panel.set_limits(geometry.lower, geometry.upper)
        self._scene.show(self._positions)

    def _on_joint_states(self, message: JointState) -> None:
        self._positions = positions_of(message)
        self._arm_status.measured_at = time.monotonic()

    def _on_pose(self, message: ArmPose) -> None:
        positions_of(message)  # or it is refused
        self._estimate, self._estimated_at = message, time.monotonic()

    @property
    def _ghost(self) -> ArmPose | None:
        return self._estimate if time.monotonic() - self._estimated_at < GHOST_S else None

    def _on_image(self, message: AnyImage) -> None:
        self._statistics.received(message.header.stamp)
        self._image = message

    def _on_sent(self, message: MotorCommand) -> None:
        motors = motors_from_message(message, self._arm_status.lamp)
        self._arm_status.motors = dict(zip(JOINTS, motors.values, strict=True))
        self._arm_status.sent_at = time.monotonic()
        self._arm_status.lamp = motors.lamp
        self._panel.show_lamp(self._arm_status.lamp)

    def _on_status(self, message: JointTrajectoryStatus) -> None:
        self._arm_status.trajectory = message.state
        self._arm_status.reason, self._arm_status.progress = message.reason, message.progress

    def _on_target_status(self, message: TargetStatus) -> None:
        self._arm_status.target = message
        self._target.show(message.target, message.success)

    def _on_goal(self, message: PointStamped) -> None:
        """Show where a training on this arm has to get."""
        self._goal = np.array([message.point.x, message.point.y, message.point.z])

    def _on_cube(self, message: PoseStamped) -> None:
        self._cube = pose_of(message.pose)

    def _on_training(self, message: String) -> None:
        self._arm_status.training = message.data

    def _show_goal(self) -> None:
        """Show how near the cube, or the finger tips, are to where a training has to get."""
        status = self._arm_status
        status.away, status.tips, status.goal = math.nan, np.full(3, np.nan), self._goal
        if not status.training:
            status.goal = np.full(3, np.nan) if status.target is None else np.asarray(
                status.target.target, np.float64)
        if self._kinematics is not None and np.isfinite(self._positions).all():
            status.tips = self._kinematics.pose(self._positions)[:3, 3]
        if not self._arm_status.training or not np.isfinite(self._goal).all():
            return
        if np.isfinite(self._cube).all():
            self._arm_status.nears = 'the cube is'
            self._arm_status.away = float(np.linalg.norm(self._cube[:3] - self._goal))
        else:
            self._arm_status.away = float(np.linalg.norm(status.tips - self._goal))
        self._target.show(self._goal, self._arm_status.away < panel.RADIUS, fixed=True)

    def _on_stop_state(self, message: EmergencyStopState) -> None:
        self._arm_status.emergency = message.engaged
        self._arm_status.stopped_by = message.sender
        if message.engaged and not (self._stop_state and self._stop_state.engaged):
            self._arm_status.stopped_at = time.strftime(
                '%H:%M:%S', time.localtime(seconds(message.header.stamp)))
        self._panel.show_emergency_stop(message.engaged)
        self._stop_state = message
        if message.engaged:
            self._held.release_all()
        elif message.neutral_required and self._held.directions(time.monotonic()) is None:
            self._command(Motors())

    def _on_episodes(self, message: String) -> None:
        self._episodes = plain(message.data, 200)

    def _process_input(self) -> None:
        self._standstill.update()
        if self._standstill.is_input_old:
            self._held.release_all()
        self._handle_events()
        self._command_held()
        self._publish_target()

    def _publish_target(self) -> None:
        place = self._target.dragged()
        # The target of a training is its own.
        if place is None or self._arm_status.training or (
                self._arm_status.emergency or self._standstill.is_input_old):
            return
        message = PointStamped(header=Header(stamp=self.stamp(), frame_id='base_link'))
        message.point.x, message.point.y, message.point.z = place.tolist()
        self._targets.publish(message)

    def _command_held(self) -> None:
        """Command the motors of held buttons, and all off after the last was released."""
        now = time.monotonic()
        held = self._held.directions(now)
        if held is None and self._was_held:
            self._command(Motors())
        elif held is not None and now - self._published_at >= 1.0 / panel.HOLD_HZ:
            self._command(Motors.of(held))
        self._was_held = held is not None

    def _show_life(self) -> None:
        """Publish a heartbeat while the browsers' server handles its events too."""
        if not self._server.answers(ANSWER_S):
            return
        self._alive.publish(Empty())
        before, self._alive_at = self._alive_at, time.monotonic()
        if self._alive_at - before > VIEWER_S:
            self.get_logger().warning(
                f'the view was held up for {self._alive_at - before:.1f} s: what moves the arm '
                f'by itself stops after {VIEWER_S:g} s without its stop button')

    def _handle_events(self) -> None:
        for event in self._panel.events():
            match event:
                case panel.Hold(client, joint, direction):
                    if not (self._arm_status.emergency or self._standstill.is_input_old):
                        self._held.hold(client, joint, direction, time.monotonic())
                case panel.Release(client, joint, direction):
                    self._held.release(client, joint, direction)
                case panel.ClientClosed(client):
                    self._held.release_all(client)
                case panel.Lamp(on):
                    # With what is held: all off would be taken for its release.
                    held = self._held.directions(time.monotonic()) or [0] * len(JOINTS)
                    self._command(Motors.of(held, lamp=on), with_lamp=True)
                case panel.EmergencyStop(engaged, seen):
                    self._held.release_all()
                    if not engaged:
                        self._request_release(seen)
                case panel.MoveTo(positions):
                    self._move_to(positions)
                case panel.Verdict(outcome):
                    # An old one would be of another episode.
                    if not self._standstill.is_input_old:
                        self._verdicts.ask(outcome, time.monotonic())
                case panel.Episode(request) if self._recorder_is_ready():
                    # Its answer comes as its state.
                    self._recorder[request].call_async(Trigger.Request())
                case panel.Episode(request):
                    self.get_logger().warning(f'{panel.EPISODES[request]} was ignored: '
                                              'record_episodes is not ready, or has ended')

    def _recorder_is_ready(self) -> bool:
        # Some are found later than others.
        return all(each.service_is_ready() for each in self._recorder.values())

    def _request_stop(self) -> None:
        self._stops.publish(stop_request(self.get_fully_qualified_name(), _BUTTON))

    def _seen_stop(self) -> EmergencyStopState | None:
        """Return the state that who clicks now has seen; None: nobody knows."""
        return None if self._standstill.is_input_old else self._stop_state

    def _request_release(self, seen: object) -> None:
        """Request the release of the state that was seen: a newer one may have come since."""
        if self._stop_state is None:
            self.get_logger().warning(NOT_RELEASED)
        elif not isinstance(seen, EmergencyStopState) or self._standstill.is_input_old:
            self.get_logger().warning('Release was ignored: the view stood still')
        else:
            self._releases.publish(
                release_request(self.get_fully_qualified_name(), _BUTTON, seen))

    def _command(self, motors: Motors, with_lamp: bool = False) -> None:
        self._published_at = time.monotonic()
        self._motors.send(motors, with_lamp=with_lamp)

    def _move_to(self, positions: Mapping[str, float]) -> None:
        if self._geometry is None or self._arm_status.emergency:
            return
        if self._standstill.is_input_old:
            self.get_logger().warning('Go was ignored: the view stood still')
            return
        goal = np.array([positions[name] for name in JOINTS])
        goal = goal.clip(self._geometry.lower, self._geometry.upper)
        away = np.abs(goal - np.nan_to_num(self._positions)) / self._geometry.velocity
        self._trajectories.publish(trajectory_message(
            JOINTS, [goal.tolist()], [max(0.5, float(away.max()) / SPEED_SHARE)]))

    def _draw(self) -> None:
        now, ghost = time.monotonic(), self._ghost
        confident = None if ghost is None else bool(ghost.confident)
        # The stop button must not end with it.
        with self.refusing('drawing'):
            self._scene.show(self._positions)
            self._scene.show_ghost(ghost and positions_of(ghost), bool(confident))
            if np.isfinite(self._cube).all():
                self._scene.show_cube(self._cube)
            self._panel.follow(self._positions.tolist())
            if not self.count_publishers(self._training.topic_name):
                self._arm_status.training = ''
            self._show_goal()
            self._panel.show_training(self._arm_status.training and plain(
                self._verdicts.text(now) or self._arm_status.training, 200))
            self._panel.show_episodes(self._episodes if self._recorder_is_ready() else '')
            self._panel.show_state(state_text(self._arm_status, self._positions, confident, now))

    def _draw_image(self) -> None:
        """Send the latest image once, if a browser is connected."""
        if self._image is None or not self._server.viser.get_clients():
            return
        message, self._image = self._image, None
        with self.refusing('image'):
            pixels, ghost = from_image(message), self._ghost
            if ghost is not None and self._geometry is not None:
                pixels = draw_arm(pixels, self._geometry, positions_of(ghost), (
                    ghost.camera_distance, ghost.camera_elevation, ghost.camera_azimuth),
                    ghost.confident)
            self._panel.show_image(pixels)


main = ViewerNode.main
