"""Places that a policy reaches on the running graph, in real time, by truth or by camera.

Starts ``arm.launch.py policy:=...`` and sends one target after another, drawn as in the task
*reach*. A target is reached when ``tool0`` has been within 2 cm of it for a second, by the true
joint states, which a policy by camera does not receive. Times are those of the stamps of the joint
states: on a busy machine ``publish_clock:=true real_time_factor:=0.25`` slows the graph down, and
the figures stay those of the arm's own time.

With ``--joints`` no policy acts, but ``arm_controller``: targets are positions of base, shoulder
and elbow, at random within their limits, without a collision there and on the straight line from
the target before; errors are those of the true joint states.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import rclpy
from builtin_interfaces.msg import Duration
from geometry_msgs.msg import PointStamped
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from benchmarks import report
from benchmarks.graph import launched, own_domain, wait
from vdl_ros.arm.geometry import ArmGeometry, load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.envs.owi535.arm_task import CLOSE, HOLD, Workspace
from vdl_ros.msg import JointTrajectoryStatus, TargetStatus
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import seconds

TIME_LIMIT = 20.0
START_LIMIT = 240.0
# Without joint states, s of the wall clock.
QUIET_LIMIT = 60.0
MOVED = JOINTS[:3]
CLOSE_DEG = 5.0
# Share of the joints' top speed in the plan of a move.
SPEED = 0.8
# Positions between two targets that are checked for collisions.
STEPS = 12


class Player(Node):
    """Sends targets, and follows the true positions of the joints."""

    def __init__(self, truth: str, target: type, name: str, status: type, status_name: str):
        super().__init__('bench_policy')
        self.status: Any = None
        self.positions: NDArray[np.float64] | None = None
        self.now, self._heard_at = 0.0, time.monotonic()
        self.send = self.create_publisher(target, name, qos.TOPICS[name])
        self.create_subscription(
            status, status_name, lambda message: setattr(self, 'status', message),
            qos.TOPICS[status_name])
        self.create_subscription(JointState, truth, self._on_truth, qos.LATEST)

    def _on_truth(self, message: JointState) -> None:
        known = dict(zip(message.name, message.position, strict=True))
        self.positions = np.array([known[name] for name in JOINTS])
        self.now, self._heard_at = seconds(message.header.stamp), time.monotonic()

    def is_ready(self) -> bool:
        """Handle messages; return whether arm and receiver are there."""
        rclpy.spin_once(self, timeout_sec=0.02)
        return self.positions is not None and self.send.get_subscription_count() > 0

    def spin(self) -> None:
        """Handle messages for a moment; raise RuntimeError if the graph is silent."""
        rclpy.spin_once(self, timeout_sec=0.02)
        if time.monotonic() - self._heard_at > QUIET_LIMIT:
            raise RuntimeError(f'the graph: no joint states for {QUIET_LIMIT:g} s')

    def until(self, condition: Callable[[], Any], limit: float, what: str) -> None:
        """Spin until a condition holds; raise RuntimeError if it does not within ``limit``, s."""
        deadline = time.monotonic() + limit
        while not condition():
            self.spin()
            if time.monotonic() > deadline:
                raise RuntimeError(f'{what}: not within {limit:g} s')


class PlacePlayer(Player):
    """Sends places to a policy and measures whether the arm stays at them."""

    def __init__(self, truth: str):
        super().__init__(truth, PointStamped, 'arm/target', TargetStatus, 'arm/target_status')
        self._kinematics = Kinematics(load())

    def is_ready(self) -> bool:
        return super().is_ready() and self.status is not None

    def play(self, place: NDArray[np.float64]) -> dict[str, Any]:
        """Send a place in ``base_link``, float64 [3], m; return what became of it."""
        message = PointStamped()
        message.header.frame_id = 'base_link'
        message.point.x, message.point.y, message.point.z = place.tolist()
        self.status = None
        self.send.publish(message)
        began = self.now
        close_since, took, distance = math.inf, math.nan, math.inf
        while (now := self.now) - began < TIME_LIMIT and math.isnan(took):
            self.spin()
            distance = float(np.linalg.norm(self._kinematics.pose(self.positions)[:3, 3] - place))
            close_since = min(close_since, now) if distance <= CLOSE else math.inf
            if now - close_since >= HOLD:
                took = now - began
            elif self.status is not None and self.status.state == 'idle':
                break
        status = self.status or TargetStatus(reaction_time=math.nan, reason='no status')
        return {'place': [round(each, 3) for each in place.tolist()],
                'reached': not math.isnan(took), 'seconds': _known(took),
                'distance': round(distance, 4),
                'reaction_time': _known(status.reaction_time), 'reason': status.reason}


class JointPlayer(Player):
    """Sends joint targets to the controller and measures how near the arm comes."""

    def __init__(self, truth: str):
        super().__init__(truth, JointTrajectory, 'arm/joint_trajectory', JointTrajectoryStatus,
                         'arm/trajectory_status')
        self._velocity = load().velocity[:3]

    def _rest(self) -> None:
        """Wait until the joints have not moved for half a second, 5 s at most."""
        deadline = time.monotonic() + 5.0
        before, since = self.positions, time.monotonic()
        while time.monotonic() - since < 0.5 and time.monotonic() < deadline:
            self.spin()
            if np.abs(self.positions - before)[:3].max() > 1e-3:
                before, since = self.positions, time.monotonic()

    def play(self, target: NDArray[np.float64]) -> dict[str, Any]:
        """Send positions, float64 [3], rad; return the errors and how the move ended."""
        planned = float(np.max(np.abs(target - self.positions[:3]) / self._velocity)) / SPEED + 0.5
        point = JointTrajectoryPoint(positions=target.tolist(), time_from_start=Duration(
            sec=int(planned), nanosec=int(planned % 1.0 * 1e9)))
        self.status = None
        self.send.publish(JointTrajectory(joint_names=list(MOVED), points=[point]))
        self.until(lambda: self.status is not None and self.status.state == 'running', 10.0,
                   'the start of a trajectory')
        self.until(lambda: self.status.state != 'running', 4.0 * planned + 30.0,
                   'the end of a trajectory')
        state, reason = self.status.state, self.status.reason
        self._rest()
        errors = np.degrees(np.abs(target - self.positions[:3])).tolist()
        return {'target_deg': [round(each, 1) for each in np.degrees(target).tolist()],
                'errors_deg': [round(each, 2) for each in errors], 'state': state,
                'reason': reason, 'close': max(errors) <= CLOSE_DEG}


def joint_targets(count: int, seed: int, geometry: ArmGeometry) -> list[NDArray[np.float64]]:
    """Return targets of base, shoulder and elbow, rad, each reachable from the one before."""
    simulation = ArmSimulation(geometry=geometry)
    random = np.random.default_rng(seed)
    targets: list[NDArray[np.float64]] = []
    before = np.zeros(len(JOINTS))
    while len(targets) < count:
        there = np.zeros(len(JOINTS))
        there[:3] = random.uniform(geometry.lower[:3], geometry.upper[:3])
        try:
            for share in np.linspace(0.0, 1.0, STEPS + 1)[1:]:
                simulation.check_collision(before + share * (there - before))
        except PoseError:
            continue
        targets.append(there[:3])
        before = there
    return targets


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    by_camera = options.feedback == 'camera'
    words = [f'feedback:={options.feedback}', 'view:=false']
    if options.joints:
        targets = joint_targets(options.targets, options.seed, load())
    else:
        workspace = Workspace(CollisionChecker(build_scene()), straight=by_camera)
        targets = workspace.places[workspace.draw(
            np.random.default_rng(options.seed), options.targets)]
        words += [f'policy:={options.policy}', *([] if by_camera else ['camera:=none'])]
    found = []
    with own_domain(), launched('ros2', 'launch', 'vdl_ros', 'arm.launch.py', *words,
                                *options.argument) as graph:
        rclpy.init(args=[])
        try:
            player = (JointPlayer if options.joints else PlacePlayer)(
                'arm/joint_truth' if by_camera else 'arm/joint_states')
            wait(graph, player.is_ready, START_LIMIT, 'the graph')
            for number, target in enumerate(targets):
                found.append(player.play(target))
                report.log(f'{number + 1:3} of {len(targets)}: {_line(found[-1])}')
        finally:
            rclpy.shutdown()
    return found


def _line(each: Mapping[str, Any]) -> str:
    if 'state' in each:
        return f'errors {each["errors_deg"]} degrees, {each["state"]} {each["reason"]}'
    return (f'{"reached" if each["reached"] else "missed"}, {each["distance"] * 100:.1f} cm away, '
            f'{each["seconds"]} s {each["reason"]}')


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_policy', __doc__, quick='three targets')
    parser.add_argument('--policy', default='reach', help='a checkpoint, or reach [reach]')
    parser.add_argument('--joints', action='store_true',
                        help='joint targets of the controller, without a policy')
    parser.number('--targets', int, '(100; joints: 50; quick: 3)', (None, 3), (1, 100_000))
    parser.number('--seed', int, 'of the targets', (0, 0), (0, 2**31 - 1))
    parser.add_argument('--feedback', choices=('camera', 'truth'), help='(truth; joints: camera)')
    parser.add_argument('argument', nargs='*', help='more arguments of arm.launch.py, name:=value')
    options = parser.complete()
    options.feedback = options.feedback or ('camera' if options.joints else 'truth')
    options.targets = options.targets or (50 if options.joints else 100)
    return options


def main() -> int:
    """Measure, and print a line or one JSON object."""
    return report.run('bench_policy', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    found = measure(options)
    if options.joints:
        report.deliver('servo', joint_figures(found, options), options, joint_sentence)
        return
    reached = [each for each in found if each['reached']]
    report.deliver('policy', {
        'policy': str(options.policy), 'feedback': options.feedback, 'seed': options.seed,
        'arguments': options.argument, 'targets': len(found), 'reached': len(reached),
        'median_seconds': report.median(each['seconds'] for each in reached),
        'median_reaction_time': report.median(each['reaction_time'] for each in found),
        'places': found}, options, sentence)


def joint_figures(moves: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    errors = [each for move in moves for each in move['errors_deg']]
    return {
        'targets': len(moves), 'close': sum(move['close'] for move in moves),
        'close_deg': CLOSE_DEG, 'feedback': options.feedback, 'seed': options.seed,
        'mean_error_deg': round(statistics.fmean(errors), 3),
        'worst_error_deg': round(max(errors), 3),
        'aborted': sum(move['state'] == 'aborted' for move in moves), 'moves': moves}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def sentence(found: Mapping[str, Any]) -> str:
    return (f'{found["policy"]} by {found["feedback"]}: {found["reached"]} of '
            f'{found["targets"]} places reached, median {found["median_seconds"]} s; '
            f'reaction time {found["median_reaction_time"]} s')


def joint_sentence(found: Mapping[str, Any]) -> str:
    return (f'{found["feedback"]}: all joints within {CLOSE_DEG:g} degrees at {found["close"]} of '
            f'{found["targets"]} targets; mean error {found["mean_error_deg"]} degrees, worst '
            f'{found["worst_error_deg"]}; {found["aborted"]} given up')
