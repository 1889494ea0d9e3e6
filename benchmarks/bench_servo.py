"""
Visual servoing: how near the twin comes to joint targets with the camera as its only sensor.

    ros2 run vdl_ros bench_servo [--targets N] [--model FILE] [--feedback camera|truth] [--json]

Starts ``arm.launch.py feedback:=camera`` and sends one target after another: base, shoulder and
elbow at random within their limits, such that the arm has room there and on the straight way from
the target before. Where the arm came to rest is judged by ``arm/joint_truth``, which the
controller does not hear. With ``--feedback truth`` it hears it: what its motors alone can do.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
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
from vdl_ros.arm.model.geometry import ArmGeometry, load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.msg import JointTrajectoryStatus
from vdl_ros.pose.model_file import ModelError, default_model, load_model
from vdl_ros.ros import qos

MOVED = JOINTS[:3]
CLOSE_DEG = 5.0
#: Share of its joints' speed that a move is planned with.
SPEED = 0.8
# Places on the way from one target to the next that are tried for room.
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
    """Sends targets and watches what becomes of them."""

    def __init__(self, truth: str):
        """Listen to ``truth``, a topic of joint states."""
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
        """
        Spin until a condition holds.

        Raises:
            TimeoutError: it did not within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            rclpy.spin_once(self, timeout_sec=0.05)
            if time.monotonic() > deadline:
                raise TimeoutError(f'{what}: not within {seconds:g} s')

    def positions(self) -> list[float]:
        """Return where base, shoulder and elbow really are, rad."""
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
        """Send the arm to a target; return what came of it."""
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
    """Start the graph, and go to each target."""
    geometry = load()
    targets = make_targets(options.targets, options.seed, geometry)
    arguments = [f'feedback:={options.feedback}', 'view:=false', *options.argument]
    if options.feedback == 'camera':
        arguments.append(f'model:={options.model}')
    truth = 'arm/joint_truth' if options.feedback == 'camera' else 'arm/joint_states'
    moves = []
    with own_domain(), launched('ros2', 'launch', 'vdl_ros', 'arm.launch.py', *arguments) as graph:
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
                print(f'{number + 1:3} of {len(targets)}: errors {last["errors_deg"]} degrees, '
                      f'{last["seconds"]} s, {last["state"]} {last["reason"]}', file=sys.stderr)
        finally:
            commander.destroy_node()
            rclpy.shutdown()
    return moves


def main() -> int:
    """Measure, and print a line or one JSON object."""
    parser = argparse.ArgumentParser(
        prog='bench_servo', description='How near the twin comes to targets by camera alone.')
    parser.add_argument('--targets', type=int, default=50)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--feedback', choices=('camera', 'truth'), default='camera')
    parser.add_argument('--model', type=Path, help='[the model that comes with the package]')
    parser.add_argument('--quick', action='store_true', help='five targets')
    report.add_options(parser)
    parser.add_argument('argument', nargs='*', help='more arguments of arm.launch.py, name:=value')
    options = parser.parse_args()
    options.targets = 5 if options.quick else options.targets
    try:
        report.check_output(options)
        options.model = options.model or default_model()
        load_model(options.model)
        moves = measure(options)
    except (ModelError, RuntimeError, TimeoutError, ValueError) as error:
        print(f'bench_servo: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    errors = [each for move in moves for each in move['errors_deg']]
    close = sum(move['close'] for move in moves)
    report.deliver({
        'benchmark': 'servo', 'machine': report.machine(),
        'targets': len(moves), 'close': close, 'close_deg': CLOSE_DEG,
        'feedback': options.feedback, 'seed': options.seed,
        'mean_error_deg': round(statistics.fmean(errors), 3),
        'median_error_deg': round(statistics.median(errors), 3),
        'worst_error_deg': round(max(errors), 3),
        'seconds_over_planned': round(statistics.median(
            move['seconds'] / move['planned_seconds'] for move in moves), 3),
        'aborted': sum(move['state'] == 'aborted' for move in moves), 'moves': moves},
        options, words)
    return 0


def words(found: Mapping[str, Any]) -> str:
    """Return it in a sentence."""
    return (f'{found["feedback"]}: all joints within {CLOSE_DEG:g} degrees at {found["close"]} of '
            f'{found["targets"]} targets; mean error {found["mean_error_deg"]} degrees, median '
            f'{found["median_error_deg"]}, worst {found["worst_error_deg"]}; '
            f'{found["aborted"]} given up')
