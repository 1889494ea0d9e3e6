"""Unrolls and policies as messages, and the queue between a topic callback and the training."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray
from rclpy.time import Time
from std_msgs.msg import Header

from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.msg import Credit, Policy, Trajectory
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.unroll import Unroll, UnrollError, UnrollSchema
from vdl_ros.ros.messages.tensors import TensorError, from_tensors, num_bytes, to_tensors

__all__ = ['TrajectoryInbox', 'policy_config', 'to_policy', 'to_trajectory']

# More than any honest set of actors has under way; a stranger's flood does not fill the memory.
_QUEUE = 256


def to_trajectory(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, actor_id: str, start_id: int,
    sequence: int, learner_id: str, policy_version: int,
) -> Trajectory:
    """Return the message that carries an unroll; ``stamp`` is the moment of its last step."""
    return Trajectory(
        header=Header(stamp=stamp.to_msg()), actor_id=actor_id, start_id=start_id,
        sequence=sequence, learner_id=learner_id, policy_version=policy_version,
        tensors=to_tensors(arrays))


def to_policy(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, learner_id: str, version: int,
    agent_steps: int, config: str, flow_stats: FlowStats,
) -> Policy:
    """Return the message that carries weights, and the actors' credits with them."""
    return Policy(
        header=Header(stamp=stamp.to_msg()), learner_id=learner_id, version=version,
        agent_steps=agent_steps, config=config, tensors=to_tensors(arrays),
        credits=[Credit(actor_id=name, start_id=start_id, used=used)
                 for start_id, (name, used) in flow_stats.credits().items()])


def policy_config(message: Policy) -> dict[str, Any]:
    """
    Return the learner's settings from a policy message.

    Raises:
        ValueError: they are not a JSON object.
    """
    try:
        config = json.loads(message.config)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise ValueError(f'config: {message.config[:40]!r} is not a JSON object')
    return config


class TrajectoryInbox:
    """
    A bounded queue of trajectory messages that gives out checked unrolls.

    ``put`` belongs to the executor's thread, ``get`` to the training's; the decoding is done
    in the latter, so that callbacks only enqueue.
    """

    def __init__(
        self, schema: UnrollSchema, flow_stats: FlowStats, learner_id: str,
        warn: Callable[[str], None], phases: ThreadTimer | None = None,
    ) -> None:
        """
        Give out unrolls that fit ``schema``.

        Args:
            schema: what a valid unroll looks like.
            flow_stats: where arrivals, losses and rejections are counted.
            learner_id: only trajectories acted for this learner are taken.
            warn: called with one line for each message that is refused.
            phases: the clock of the thread that gets.
        """
        self._phases = phases or ThreadTimer()
        self._schema, self._flow_stats, self._learner_id = schema, flow_stats, learner_id
        self._warn = warn
        self._messages: queue.Queue[tuple[Trajectory, float]] = queue.Queue(_QUEUE)

    def put(self, message: Trajectory, age_s: float) -> None:
        """Enqueue; with a full queue the message is dropped, and counted as a gap later."""
        try:
            self._messages.put_nowait((message, age_s))
        except queue.Full:
            self._warn(f'trajectory of {message.actor_id!r} dropped: {_QUEUE} are waiting')

    @property
    def waiting(self) -> int:
        """Trajectories in the queue."""
        return self._messages.qsize()

    def get(self, timeout: float) -> Unroll:
        """
        Return the next valid unroll.

        Raises:
            queue.Empty: none within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._phases('wait'):
                message, age_s = self._messages.get(timeout=max(deadline - time.monotonic(), 0.0))
            with self._phases('decode'):
                unroll = self._open(message, age_s)
            if unroll is not None:
                return unroll

    def _open(self, message: Trajectory, age_s: float) -> Unroll | None:
        if message.learner_id != self._learner_id:
            return None
        try:
            arrays = from_tensors(message.tensors)
            self._schema.check(arrays)
        except (TensorError, UnrollError) as error:
            self._flow_stats.rejected += 1
            self._warn(f'trajectory of {message.actor_id!r} refused: {error}')
            return None
        new, missing = self._flow_stats.arrive(
            message.actor_id, message.start_id, message.sequence)
        if missing:
            self._warn(f'{missing} trajectories of {message.actor_id!r} lost '
                       f'before number {message.sequence}')
        if not new:
            return None
        return Unroll(arrays, message.actor_id, message.start_id, message.sequence,
                      message.policy_version, age_s, num_bytes(message.tensors))
