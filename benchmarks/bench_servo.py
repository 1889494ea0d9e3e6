"""Visual servoing: how near the simulated arm comes to joint targets by camera alone.

    ros2 run vdl_ros bench_servo [--targets N] [--model FILE] [--feedback camera|truth] [--json]

Starts ``arm.launch.py feedback:=camera`` and sends one target after another: base, shoulder and
elbow at random within their limits, without a collision there and on the straight line from the
target before. Errors are those of ``arm/joint_truth``, which the controller does not receive.
With ``--feedback truth`` it does: the errors are then those of its motors alone.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from builtin_interfaces.msg import Duration
from rclpy.node import Node
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from benchmarks import report
from benchmarks.graph import launched, own_domain
from vdl_ros.arm.geometry import ArmGeometry, load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.msg import JointTrajectoryStatus
from vdl_ros.pose.estimator import load_model, model_path
from vdl_ros.ros import qos

MOVED = JOINTS[:3]
CLOSE_DEG = 5.0
# Share of the joints' top speed in the plan of a move.
SPEED = 0.8
# Positions between two targets that are checked for collisions.
STEPS = 12


def make_targets(count: int, seed: int, geometry: ArmGeometry) -> list[list[float]]:
    """Return targets of base, shoulder and elbow, rad, each reachable from the one before."""
    simulation = ArmSimulation(geometry=geometry)
    random = np.random.default_rng(seed)
    targets: list[list[float]] = []
    before = np.zeros(len(JOINTS))
    while len(targets) < count:
        there = np.zeros(len(JOINTS))
        there[:3] = random.uniform(geometry.lower[:3], geometry.upper[:3])
        try:
            for share in np.linspace(0.0, 1.0, STEPS + 1)[1:]:
                simulation.check_collision(before + share * (there - before))
        except PoseError:
            continue
        targets.append(there[:3].tolist())
        before = there
    return targets


class Commander(Node):
    """Sends targets and measures how near the arm comes."""

    def __init__(self, truth: str):
        super().__init__('bench_servo')
        self.status: JointTrajectoryStatus | None = None
        self.truth: JointState | None = None
        self._send = self.create_publisher(
            JointTrajectory, 'arm/joint_trajectory', qos.TOPICS['arm/joint_trajectory'])
        self.create_subscription(
            JointTrajectoryStatus, 'arm/trajectory_status',
            lambda message: setattr(self, 'status', message),
            qos.TOPICS['arm/trajectory_status'])
        self.create_subscription(
            JointState, truth, lambda message: setattr(self, 'truth', message), qos.LATEST)

    def until(self, condition: Callable[[], Any], seconds: float, what: str) -> None:
        """Spin until a condition holds.

        Raises:
            RuntimeError: it did not within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            rclpy.spin_once(self, timeout_sec=0.05)
            if time.monotonic() > deadline:
                raise RuntimeError(f'{what}: not within {seconds:g} s')

    def positions(self) -> list[float]:
        """Return the true positions of base, shoulder and elbow, rad."""
        assert self.truth is not None
        known = dict(zip(self.truth.name, self.truth.position, strict=True))
        return [known[name] for name in MOVED]

    def rest(self) -> None:
        """Wait until the joints have not moved for half a second."""
        deadline = time.monotonic() + 5.0
        before, since = self.positions(), time.monotonic()
        while time.monotonic() - since < 0.5 and time.monotonic() < deadline:
            rclpy.spin_once(self, timeout_sec=0.05)
            here = self.positions()
            if max(abs(a - b) for a, b in zip(here, before, strict=True)) > 1e-3:
                before, since = here, time.monotonic()

    def move(self, target: list[float], velocity: list[float]) -> dict[str, Any]:
        """Send the arm to a target; return its errors and how the move ended."""
        self.until(lambda: self._send.get_subscription_count(), 30.0, 'a controller')
        far = max(abs(there - here) / speed for there, here, speed in
                  zip(target, self.positions(), velocity, strict=True))
        seconds = far / SPEED + 0.5
        point = JointTrajectoryPoint(positions=target, time_from_start=Duration(
            sec=int(seconds), nanosec=int(seconds % 1.0 * 1e9)))
        self.status, began = None, time.monotonic()
        self._send.publish(JointTrajectory(joint_names=list(MOVED), points=[point]))
        self.until(lambda: self.status is not None and self.status.state == 'running', 10.0,
                   'the start of a trajectory')
        self.until(lambda: self.status.state != 'running', 4.0 * seconds + 30.0,
                   'the end of a trajectory')
        took, state, reason = time.monotonic() - began, self.status.state, self.status.reason
        self.rest()
        errors = [math.degrees(abs(there - here))
                  for there, here in zip(target, self.positions(), strict=True)]
        return {'target_deg': [round(math.degrees(each), 1) for each in target],
                'errors_deg': [round(each, 2) for each in errors], 'state': state,
                'reason': reason, 'seconds': round(took, 1), 'planned_seconds': round(seconds, 1),
                'close': max(errors) <= CLOSE_DEG}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start the graph, and move to each target."""
    geometry = load()
    targets = make_targets(options.targets, options.seed, geometry)
    words = [f'feedback:={options.feedback}', 'view:=false', *options.argument]
    if options.feedback == 'camera':
        words.append(f'model:={options.model}')
    truth = 'arm/joint_truth' if options.feedback == 'camera' else 'arm/joint_states'
    moves = []
    with own_domain(), launched('ros2', 'launch', 'vdl_ros', 'arm.launch.py', *words) as graph:
        rclpy.init()
        commander = Commander(truth)
        try:
            commander.until(lambda: commander.truth is not None or graph.poll() is not None, 60.0,
                            truth)
            for number, target in enumerate(targets):
                if graph.poll() is not None:
                    break
                moves.append(commander.move(target, geometry.velocity[:3].tolist()))
                last = moves[-1]
                report.log(f'{number + 1:3} of {len(targets)}: errors {last["errors_deg"]} '
                           f'degrees, {last["seconds"]} s, {last["state"]} {last["reason"]}')
        finally:
            commander.destroy_node()
            rclpy.shutdown()
    return moves


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_servo', __doc__, quick='five targets')
    parser.add_argument('--targets', type=int, help='(50; quick: 5)')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--feedback', choices=('camera', 'truth'), default='camera')
    parser.add_argument('--model', type=Path, help='[the model that comes with the package]')
    parser.add_argument('argument', nargs='*', help='more arguments of arm.launch.py, name:=value')
    options = parser.parse_args()
    report.complete(options, {'targets': (50, 5)}, {'targets': (1, 100_000)})
    options.model = options.model or model_path()
    load_model(options.model)
    return options


def main() -> int:
    """Measure, and print a line or one JSON object."""
    return report.run('bench_servo', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    moves = measure(options)
    errors = [each for move in moves for each in move['errors_deg']]
    report.deliver('servo', {
        'targets': len(moves), 'close': sum(move['close'] for move in moves),
        'close_deg': CLOSE_DEG, 'feedback': options.feedback, 'seed': options.seed,
        'mean_error_deg': round(statistics.fmean(errors), 3),
        'median_error_deg': round(statistics.median(errors), 3),
        'worst_error_deg': round(max(errors), 3),
        'seconds_over_planned': round(statistics.median(
            move['seconds'] / move['planned_seconds'] for move in moves), 3),
        'aborted': sum(move['state'] == 'aborted' for move in moves), 'moves': moves},
        options, sentence)


def sentence(found: Mapping[str, Any]) -> str:
    """Return the figures as a sentence."""
    return (f'{found["feedback"]}: all joints within {CLOSE_DEG:g} degrees at {found["close"]} of '
            f'{found["targets"]} targets; mean error {found["mean_error_deg"]} degrees, median '
            f'{found["median_error_deg"]}, worst {found["worst_error_deg"]}; '
            f'{found["aborted"]} given up')
