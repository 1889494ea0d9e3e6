"""Trajectory and policy messages, and the queue from the topic callback to the training thread."""

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

# Bounds the memory of waiting messages; more than credit lets actors send.
_QUEUE = 256


def to_trajectory(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, actor_id: str, start_id: int,
    sequence: int, learner_id: str, policy_version: int,
) -> Trajectory:
    """Return the message of an unroll; ``stamp`` is the time of its last step."""
    return Trajectory(
        header=Header(stamp=stamp.to_msg()), actor_id=actor_id, start_id=start_id,
        sequence=sequence, learner_id=learner_id, policy_version=policy_version,
        tensors=to_tensors(arrays))


def to_policy(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, learner_id: str, version: int,
    agent_steps: int, config: str, flow_stats: FlowStats,
) -> Policy:
    """Return the message with weights, settings and the actors' credits."""
    return Policy(
        header=Header(stamp=stamp.to_msg()), learner_id=learner_id, version=version,
        agent_steps=agent_steps, config=config, tensors=to_tensors(arrays),
        credits=[Credit(actor_id=name, start_id=start_id, used=used)
                 for start_id, (name, used) in flow_stats.credits().items()])


def policy_config(message: Policy) -> dict[str, Any]:
    """
    Return the learner's settings from a policy message.

    Raises:
        ValueError: the config is not a JSON object.
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
    A bounded queue of trajectory messages that returns checked unrolls.

    The executor's thread calls ``put``, which only enqueues; the training thread calls ``get``,
    which decodes.
    """

    def __init__(
        self, schema: UnrollSchema, flow_stats: FlowStats, learner_id: str,
        warn: Callable[[str], None], timer: ThreadTimer | None = None,
    ) -> None:
        """
        Create an empty queue.

        Args:
            schema: schema of the unrolls.
            flow_stats: counts received, lost and rejected messages.
            learner_id: trajectories for other learners are ignored.
            warn: called with one line for each rejected message.
            timer: timer of the thread that calls :meth:`get`.
        """
        self._timer = timer or ThreadTimer()
        self._schema, self._flow_stats, self._learner_id = schema, flow_stats, learner_id
        self._warn = warn
        self._messages: queue.Queue[tuple[Trajectory, float]] = queue.Queue(_QUEUE)

    def put(self, message: Trajectory, age_s: float) -> None:
        """Enqueue a message; if the queue is full it is dropped, and counted as lost later."""
        try:
            self._messages.put_nowait((message, age_s))
        except queue.Full:
            self._warn(f'trajectory of {message.actor_id!r} dropped: {_QUEUE} are waiting')

    @property
    def waiting(self) -> int:
        """Number of messages in the queue."""
        return self._messages.qsize()

    def get(self, timeout: float) -> Unroll:
        """
        Return the next valid unroll.

        Raises:
            queue.Empty: none within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._timer('wait'):
                message, age_s = self._messages.get(timeout=max(deadline - time.monotonic(), 0.0))
            with self._timer('decode'):
                unroll = self._decode(message, age_s)
            if unroll is not None:
                return unroll

    def _decode(self, message: Trajectory, age_s: float) -> Unroll | None:
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
