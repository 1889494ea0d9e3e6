"""Places that a policy reaches on the running graph, in real time, by truth or by camera.

    ros2 run vdl_ros bench_policy [--policy reach] [--feedback camera|truth] [--json]

Starts ``arm.launch.py policy:=...`` and sends one target after another, drawn as in the task
*reach*. A target is reached when ``tool0`` has been within 2 cm of it for a second, by the true
joint states, which a policy by camera does not receive. Each has 20 s, as in the task. Times are
those of the stamps of the joint states: on a busy machine ``publish_clock:=true
real_time_factor:=0.25`` slows the graph down, and the figures stay those of the arm's own time.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import rclpy
from geometry_msgs.msg import PointStamped
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import JointState

from benchmarks import report
from benchmarks.graph import launched, own_domain
from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.envs.owi535.arm_task import Workspace
from vdl_ros.envs.owi535.reach import CLOSE, HOLD
from vdl_ros.msg import TargetStatus
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import seconds

ATTACK = ('adversarial_mode', 'adversarial_epsilon')
TIME_LIMIT = 20.0
START_LIMIT = 240.0
# Without joint states, s of the wall clock.
QUIET_LIMIT = 60.0


class Player(Node):
    """Sends targets and measures whether the arm stays at them."""

    def __init__(self, truth: str):
        super().__init__('bench_policy')
        self.status: TargetStatus | None = None
        self.tool: NDArray[np.float64] | None = None
        self._now, self._heard_at = 0.0, time.monotonic()
        self._kinematics = Kinematics(load())
        self._send = self.create_publisher(PointStamped, 'arm/target', qos.TOPICS['arm/target'])
        self.create_subscription(
            TargetStatus, 'arm/target_status', lambda message: setattr(self, 'status', message),
            qos.TOPICS['arm/target_status'])
        self.create_subscription(JointState, truth, self._on_truth, qos.LATEST)

    def _on_truth(self, message: JointState) -> None:
        known = dict(zip(message.name, message.position, strict=True))
        self.tool = self._kinematics.pose(np.array([known[name] for name in JOINTS]))[:3, 3]
        self._now, self._heard_at = seconds(message.header.stamp), time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Return whether arm and policy are there."""
        return (self.status is not None and self.tool is not None
                and self._send.get_subscription_count() > 0)

    def reach(self, place: NDArray[np.float64]) -> dict[str, Any]:
        """Send a place in ``base_link``, float64 [3], m; return what became of it."""
        message = PointStamped()
        message.header.frame_id = 'base_link'
        message.point.x, message.point.y, message.point.z = place.tolist()
        self.status = None
        self._send.publish(message)
        began = self._now
        close_since, took = math.inf, math.nan
        while (now := self._now) - began < TIME_LIMIT and math.isnan(took):
            rclpy.spin_once(self, timeout_sec=0.02)
            if time.monotonic() - self._heard_at > QUIET_LIMIT:
                raise RuntimeError(f'the graph: no joint states for {QUIET_LIMIT:g} s')
            assert self.tool is not None
            close = float(np.linalg.norm(self.tool - place)) <= CLOSE
            close_since = min(close_since, now) if close else math.inf
            if now - close_since >= HOLD:
                took = now - began
            elif self.status is not None and self.status.state == 'idle':
                break
        status = self.status or TargetStatus(reaction_time=math.nan, reason='no status')
        return {'place': [round(each, 3) for each in place.tolist()],
                'reached': not math.isnan(took), 'seconds': _known(took),
                'distance': round(float(np.linalg.norm(self.tool - place)), 4),
                'reaction_time': _known(status.reaction_time), 'reason': status.reason}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start the graph, and send each target."""
    by_camera = options.feedback == 'camera'
    workspace = Workspace(CollisionChecker(build_scene()), straight=by_camera)
    places = workspace.places[workspace.draw(
        np.random.default_rng(options.seed), options.targets)]
    attack = [f'{name}:={value}' for name in ATTACK
              if (value := getattr(options, name)) is not None]
    words = [f'policy:={options.policy}', f'feedback:={options.feedback}', 'view:=false', *attack,
             *([] if by_camera else ['camera:=none']), *options.argument]
    found = []
    with own_domain(), launched('ros2', 'launch', 'vdl_ros', 'arm.launch.py', *words) as graph:
        rclpy.init(args=[])
        player = Player('arm/joint_truth' if by_camera else 'arm/joint_states')
        try:
            deadline = time.monotonic() + START_LIMIT
            while not player.is_ready:
                rclpy.spin_once(player, timeout_sec=0.05)
                if graph.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f'the graph: not there within {START_LIMIT:g} s')
            for number, place in enumerate(places):
                found.append(player.reach(place))
                last = found[-1]
                report.log(f'{number + 1:3} of {len(places)}: '
                           f'{"reached" if last["reached"] else "missed"}, '
                           f'{last["distance"] * 100:.1f} cm away, {last["seconds"]} s '
                           f'{last["reason"]}')
        finally:
            player.destroy_node()
            rclpy.shutdown()
    return found


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_policy', __doc__, quick='three targets')
    parser.add_argument('--policy', default='reach', help='a checkpoint, or reach [reach]')
    parser.add_argument('--targets', type=int, help='(100; quick: 3)')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--feedback', choices=('camera', 'truth'), default='truth')
    parser.add_argument('--adversarial_mode', metavar='MODE',
                        help="attack on the camera's images [none]")
    parser.add_argument('--adversarial_epsilon', metavar='E', help='its size [0.01]')
    parser.add_argument('argument', nargs='*', help='more arguments of arm.launch.py, name:=value')
    options = parser.parse_args()
    report.complete(options, {'targets': (100, 3)}, {'targets': (1, 100_000)})
    return options


def main() -> int:
    """Measure, and print a line or one JSON object."""
    return report.run('bench_policy', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    found = measure(options)
    reached = [each for each in found if each['reached']]
    report.deliver('policy', {
        'policy': str(options.policy), 'feedback': options.feedback, 'seed': options.seed,
        **{name: getattr(options, name) for name in ATTACK},
        'arguments': options.argument, 'targets': len(found), 'reached': len(reached),
        'median_seconds': _median(reached, 'seconds'),
        'median_reaction_time': _median(found, 'reaction_time'), 'places': found},
        options, sentence)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def _median(rows: list[dict[str, Any]], key: str) -> float | None:
    known = [row[key] for row in rows if row[key] is not None]
    return round(statistics.median(known), 3) if known else None


def sentence(found: Mapping[str, Any]) -> str:
    """Return the figures as a sentence."""
    attack = ''
    if found['adversarial_mode'] is not None:
        attack = f' under {found["adversarial_mode"]}, {found["adversarial_epsilon"] or "0.01"}'
    return (f'{found["policy"]} by {found["feedback"]}{attack}: {found["reached"]} of '
            f'{found["targets"]} places reached, median {found["median_seconds"]} s; '
            f'reaction time {found["median_reaction_time"]} s')


if __name__ == '__main__':
    raise SystemExit(main())
