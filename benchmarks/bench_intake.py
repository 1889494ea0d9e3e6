"""How many trajectories one learner takes in, from thousands of simulated actors.

    ros2 run vdl_ros bench_intake [--actors N,N] [--quick] [--json] [--output FILE]

One process does what a learner's node does with its messages, and nothing else: trajectories of
Pong's size arrive from all actors in turn, serialized; they are deserialized, checked, queued,
decoded and counted, and after every other one a policy with the credits of all actors is made and
serialized. Simulated are the actors and the network between; the update itself is left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report

# Two trajectories of 20 steps of 16 games are an update, as in bench_train.
STEPS, ENVIRONMENTS, BATCH = 20, 16, 2
DEFAULTS: dict[str, tuple[Any, Any]] = {
    'actors': ('10,100,1000,4000', '10,1000'), 'seconds': (4.0, 1.0)}
_LEARNER = 'learner'


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked options, ``actors`` as numbers.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    parser = report.Parser('bench_intake', __doc__, quick='a few seconds, less exact')
    parser.add_argument('--actors', metavar='N,N',
                        help='simulated actors (10,100,1000,4000; quick: 10,1000)')
    parser.add_argument('--seconds', type=float, help='of each measurement (4; quick: 1)')
    options = parser.parse_args(words)
    report.complete(options, DEFAULTS, {'seconds': (0.1, 3600)})
    options.actors = report.numbers('--actors', options.actors, 1, 100_000)
    return options


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return a row for each number of actors."""
    rows = []
    for actors in options.actors:
        rows.append(_take_in(actors, options.seconds))
        report.log(f'{actors:,} actors: {rows[-1]["trajectories_per_s"]:,.0f} trajectories/s')
    return {'seconds': options.seconds, 'steps_of_a_trajectory': STEPS * ENVIRONMENTS,
            'rows': rows}


def _take_in(actors: int, seconds: float) -> dict[str, Any]:
    """Return the figures of one learner with so many actors."""
    import gymnasium
    import numpy as np
    from rclpy.serialization import deserialize_message, serialize_message
    from rclpy.time import Time

    from vdl_ros.msg import Trajectory
    from vdl_ros.rl.data.unroll import UnrollSchema
    from vdl_ros.rl.learning.flow_stats import FlowStats
    from vdl_ros.ros.training.messages import TrajectoryInbox, to_policy, to_trajectory

    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    schema = UnrollSchema(space, gymnasium.spaces.Discrete(6), STEPS, 4)
    arrays = schema.empty(ENVIRONMENTS)
    for array in arrays.values():
        array[...] = 0
    observations = arrays.pop('observations')
    message = to_trajectory(
        arrays | schema.encode(observations, arrays['is_reset']), stamp=Time(), actor_id='',
        start_id=0, sequence=0, learner_id=_LEARNER, policy_version=0)
    flow = FlowStats()
    refused: list[str] = []
    inbox = TrajectoryInbox(schema, flow, _LEARNER, refused.append)
    spent, taken, size = 0.0, 0, 0
    # Every actor is known before the measurement, as in a training that is under way.
    while taken <= actors or spent < seconds:
        index, sequence = taken % actors, taken // actors
        message.actor_id, message.start_id, message.sequence = f'host_{index}', index, sequence
        wire = serialize_message(message)
        began = time.perf_counter()
        inbox.put(deserialize_message(wire, Trajectory), 0.0)
        unroll = inbox.get(0.0)
        flow.use(unroll.start_id, 0)
        if taken % BATCH == 0:
            size = len(serialize_message(to_policy(
                {}, stamp=Time(), learner_id=_LEARNER, version=taken, agent_steps=taken,
                config='{}', flow_stats=flow)))
        if taken > actors:
            spent += time.perf_counter() - began
        taken += 1
    if refused:
        raise RuntimeError(refused[0])
    counted = taken - actors - 1
    return {'actors': actors, 'trajectories_per_s': counted / spent,
            'steps_per_s': counted * STEPS * ENVIRONMENTS / spent, 'lost': flow.lost,
            'credits_bytes': size, 'known': len(flow.actor_records)}


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table for a page."""
    return '\n'.join([
        *report.table(
            ('actors', 'trajectories/s', 'agent steps/s', 'ms for each', 'credits of a policy, kB',
             'actors with credit'),
            ((f'{row["actors"]:,}', f'{row["trajectories_per_s"]:,.0f}',
              f'{row["steps_per_s"]:,.0f}', f'{1e3 / row["trajectories_per_s"]:.2f}',
              f'{row["credits_bytes"] / 1e3:.1f}', f'{row["known"]:,}')
             for row in found['rows'])),
        '', f'Trajectories of {found["steps_of_a_trajectory"]} steps of Pong, one core, '
        f'{found["seconds"]:g} s each.'])


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_intake', arguments, lambda options: report.deliver(
        'intake', measure(options), options, markdown))
