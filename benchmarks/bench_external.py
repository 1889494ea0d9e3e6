"""How well a policy of LeRobot moves the arm's twin by topics, by rows in an answer and delay.

``--record`` lets the policy that ships show the twin one place instead, as a person would by
``record_episodes``; docs/external_policies.md has the commands in between. ``--python`` is an
interpreter with LeRobot and rclpy, ``--policy`` what LeRobot trained, ``--dataset`` from what.
Switches are changes of a motor's command in a second; jerk is the root mean square of that of the
joints, and late the share of the robot's ticks without an action. Run it in the repository.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import JointState
from statistics_msgs.msg import MetricsMessage
from std_msgs.msg import String

from benchmarks import report
from benchmarks.graph import launched, own_domain
from vdl_ros.msg import Episode, MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import seconds

#: The place that the arm reaches, m in ``base_link``.
PLACE = (0.22, 0.08, 0.12)
_CLIENT = Path('examples/external_policy/lerobot_client.py')


class Cell(NamedTuple):
    """Rows of an answer that are sent, ms that it takes longer, and how rows are combined."""

    rows: int
    delay: int
    ensemble: float


class Twin:
    """The twin with a camera, and what is heard of it, while :func:`twin` runs."""

    def __init__(
        self, node: Node, context: rclpy.Context, processes: Sequence[subprocess.Popen[bytes]],
    ) -> None:
        self._processes = processes
        self.episodes: list[Episode] = []
        self.commands: list[MotorCommand] = []
        # Stamps, s, and velocities of the joints, rad/s.
        self.velocities: list[tuple[float, list[float]]] = []
        self.status, self.late = '', 0.0
        self._executor = rclpy.executors.SingleThreadedExecutor(context=context)
        self._executor.add_node(node)
        self._subscriptions = [
            qos.sub(node, 'episodes', self.episodes.append),
            qos.sub(node, 'arm/motors_sent', self.commands.append),
            qos.sub(node, 'arm/joint_states', self._on_joints),
            qos.sub(node, '/statistics', self._on_statistics),
            qos.sub(node, 'robot/status', self._on_status)]

    def _on_status(self, message: String) -> None:
        self.status = message.data

    def _on_joints(self, message: JointState) -> None:
        self.velocities.append((seconds(message.header.stamp), list(message.velocity)))

    def _on_statistics(self, message: MetricsMessage) -> None:
        if message.metrics_source == 'late_actions':
            self.late += message.statistics[0].data

    @property
    def jerk(self) -> float:
        """Of the joints, rad/s^3."""
        times, velocities = (np.array(each) for each in zip(*self.velocities, strict=True))
        period = float(np.median(np.diff(times)))
        # Not where the twin was placed anew.
        steady = np.abs(np.diff(times, 2)) < 1e-6
        found = np.diff(velocities, 2, axis=0)[steady] / period**2
        return float(np.sqrt(np.mean(found**2)))

    def spin(self) -> None:
        self._executor.spin_once(timeout_sec=0.02)

    def play(self, *parameters: str) -> Iterator[None]:
        """Yield again and again until ``play`` has ended, or the twin."""
        words = [word for each in (
            'robot:=owi535_sim', f"task_arguments:='{json.dumps({'place': PLACE})}'", *parameters)
            for word in ('-p', each)]
        with launched('ros2', 'run', 'vdl_ros', 'play', '--ros-args', *words,
                      may_end=True) as process:
            while all(each.poll() is None for each in (process, *self._processes)):
                self.spin()
                yield


@contextmanager
def twin() -> Iterator[Twin]:
    context = rclpy.Context()
    rclpy.init(args=[], context=context)
    node = Node('bench_external', context=context)
    try:
        with launched('ros2', 'run', 'vdl_ros', 'sim_arm', '--ros-args', '-p',
                      'publish_clock:=true') as arm, launched(
                'ros2', 'run', 'vdl_ros', 'camera', '--ros-args', '-p', 'use_sim_time:=true', '-p',
                'rate:=10.0', '-p', 'image_width:=128', '-p', 'image_height:=96') as camera:
            yield Twin(node, context, (arm, camera))
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)


def record(folder: Path, episodes: int) -> None:
    """Record successes of the policy that ships, by the keys of ``record_episodes``."""
    with twin() as robot, ExitStack() as ends:
        recorder = ends.enter_context(subprocess.Popen(
            ['ros2', 'run', 'vdl_ros', 'record_episodes', '--robot', 'owi535', '--task',
             'reach the place', '--output', str(folder)], stdin=subprocess.PIPE, text=True))
        assert recorder.stdin is not None
        keys = ends.enter_context(recorder.stdin)
        begun, saved = '', 0
        for _ in robot.play('policy:=reach'):
            if robot.episodes and begun:
                success = robot.episodes[-1].success == 1
                print('y' if success else 'd', file=keys, flush=True)
                saved, begun = saved + success, ''
            elif not begun and robot.status.endswith('acts'):
                begun = robot.status
                print('s', file=keys, flush=True)
            robot.episodes.clear()
            if saved == episodes:
                break


def measure(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """Play with the policy; return success, steps until it, and switches."""
    with twin() as robot, launched(
            options.python, str(_CLIENT.absolute()), '--policy', options.policy, '--dataset',
            options.dataset, '--rows', str(cell.rows), '--delay', str(cell.delay / 1000.0)):
        for _ in robot.play('policy:=external', f'episodes:={options.episodes}',
                            f'external_ensemble:={cell.ensemble}'):
            pass
    episodes = robot.episodes
    if len(episodes) < options.episodes:
        raise RuntimeError(f'{cell}: {len(episodes)} of {options.episodes} episodes')
    motors = [(each.base, each.shoulder, each.elbow, each.wrist) for each in robot.commands]
    switches = sum(before != after for pair in itertools.pairwise(motors)
                   for before, after in zip(*pair, strict=True))
    steps = sum(each.length for each in episodes)
    return {**cell._asdict(), 'episodes': len(episodes),
            'successes': sum(each.success == 1 for each in episodes),
            'steps': statistics.median(each.length for each in episodes),
            'switches': round(switches / (steps / 10.0), 2), 'jerk': round(robot.jerk, 2),
            'late': round(robot.late / (steps + robot.late), 3)}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; ValueError: a number that is not allowed."""
    parser = report.Parser('bench_external', __doc__)
    parser.add_argument('--record', type=Path, metavar='FOLDER')
    for name in 'python', 'policy', 'dataset':
        parser.add_argument(f'--{name}', default='')
    parser.number('--episodes', int, 'episodes of each', (20, 3), (1, 1000))
    parser.numbers('--rows', 'rows of an answer that are sent', ('1,10,20', '20'), (1, 1000))
    parser.numbers('--delays', 'ms that an answer takes longer', ('0,150,300', '0'), (0, 2000))
    options = parser.complete(words)
    if not options.record and not (options.python and options.policy and options.dataset):
        raise ValueError('--python, --policy and --dataset: missing, or --record')
    return options


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table of all cells."""
    return '\n'.join(report.table(
        ('rows', 'delay, ms', 'combined', 'success', 'steps, median', 'late, %', 'switches/s',
         'jerk, rad/s^3'),
        [(str(each['rows']), str(each['delay']),
          'newest' if each['ensemble'] < 0.0 else 'ensemble',
          f'{each["successes"]} of {each["episodes"]}',
          f'{each["steps"]:.0f}', f'{100.0 * each["late"]:.0f}', f'{each["switches"]:.1f}',
          f'{each["jerk"]:.0f}') for each in found['cells']]))


def main() -> int:
    """Record, or measure, and print the table or one JSON object."""
    return report.run('bench_external', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    with own_domain(configure=True):
        if options.record:
            record(options.record, options.episodes)
            return
        found = []
        for rows, delay in itertools.product(options.rows, options.delays):
            for ensemble in (-1.0,) if rows == 1 or delay else (-1.0, 0.01):
                found.append(measure(Cell(rows, delay, ensemble), options))
                report.log(f'{found[-1]}')
    report.deliver('external', {
        'cores': len(os.sched_getaffinity(0)), 'place': PLACE, 'cells': found}, options, markdown)

