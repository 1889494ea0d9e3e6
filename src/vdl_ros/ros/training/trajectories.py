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

from vdl_ros.common.quoting import quoted
from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.msg import Credit, Policy, Trajectory
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.unroll import Unroll, UnrollError, UnrollSchema
from vdl_ros.rl.learning.inbox import EndOfBagError
from vdl_ros.ros.messages.tensors import (
    TensorError,
    from_tensors,
    num_bytes,
    to_tensors,
)
from vdl_ros.ros.training.actor_messages import ActorMessages

__all__ = [
    'RefusedError', 'TrajectoryInbox', 'policy_config', 'to_policy', 'to_trajectory']

# Characters; all settings together have about 2,000.
_LARGEST_CONFIG = 1 << 16
# Messages that may wait; more than credit lets actors send.
_QUEUE = 256


def to_trajectory(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, actor_id: str, start_id: int,
    sequence: int, learner_id: str, policy_version: int, compression: str = 'none',
) -> Trajectory:
    """
    Return the message of an unroll.

    ``stamp`` is the time of its last step; for ``compression`` see :func:`to_tensors`.
    """
    return Trajectory(
        header=Header(stamp=stamp.to_msg()), actor_id=actor_id, start_id=start_id,
        sequence=sequence, learner_id=learner_id, policy_version=policy_version,
        tensors=to_tensors(arrays, compression))


def to_policy(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, learner_id: str, version: int,
    agent_steps: int, config: str, flow_stats: FlowStats,
) -> Policy:
    """Return the message with weights, settings and the actors' credits."""
    return Policy(
        header=Header(stamp=stamp.to_msg()), learner_id=learner_id, version=version,
        agent_steps=agent_steps, config=config, tensors=to_tensors(arrays),
        credits=[Credit(actor_id=name, start_id=start_id, used=used)
                 for start_id, (name, used) in flow_stats.credits_to_send().items()])


def policy_config(message: Policy) -> dict[str, Any]:
    """
    Return the learner's settings from a policy message.

    Raises:
        ValueError: the config is too long, or not a flat JSON object.
    """
    if len(message.config) > _LARGEST_CONFIG:
        raise ValueError(f'config: {len(message.config)} characters are not allowed: '
                         f'at most {_LARGEST_CONFIG}')
    try:
        config = json.loads(message.config)
    # The parser calls itself for each level of nesting.
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise ValueError(f'config: {quoted(message.config, 40)} is not a JSON object')
    if any(isinstance(value, dict | list) for value in config.values()):
        raise ValueError(f'config: {quoted(message.config, 40)} is nested; a setting is a number, '
                         'a text, true or false')
    return config


class RefusedError(ValueError):
    """A trajectory that is not valid where each of them is needed; the message is one line."""


class TrajectoryInbox:
    """
    A bounded queue of trajectory messages that returns checked unrolls.

    The executor's thread calls ``put``, which only enqueues; the training thread calls ``get``,
    which decodes.
    """

    def __init__(
        self, schema: UnrollSchema, flow_stats: FlowStats, learner_id: str,
        warn: Callable[[str], None], timer: ThreadTimer | None = None,
        max_bytes: int | None = None, *, is_over: Callable[[], bool] | None = None,
    ) -> None:
        """
        Create an empty queue.

        Args:
            schema: schema of the unrolls.
            flow_stats: counts received, lost and rejected messages.
            learner_id: trajectories for other learners are ignored.
            warn: called with one line for each rejected message.
            timer: timer of the thread that calls :meth:`get`.
            max_bytes: of messages that may wait; by default :func:`memory_budget`.
            is_over: for a bag, in which every message has to be valid: returns whether no more
                will come.
        """
        self._timer, self._is_over = timer or ThreadTimer(), is_over
        self._schema, self._flow_stats, self._warn = schema, flow_stats, warn
        self._messages = ActorMessages[Trajectory](
            'trajectory', schema, learner_id, warn, _QUEUE, max_bytes)

    def put(self, message: Trajectory, age_s: float) -> None:
        """Enqueue a message; one that is dropped is counted as lost later."""
        self._messages.put(message, age_s)

    @property
    def waiting(self) -> int:
        """Number of messages in the queue."""
        return len(self._messages)

    def get(self, timeout: float) -> Unroll:
        """
        Return the next valid unroll.

        Raises:
            queue.Empty: none within ``timeout`` seconds.
            EndOfBagError: no more will come.
            RefusedError: the next one of a bag is not valid.
        """
        deadline = time.monotonic() + timeout
        while True:
            # Asked before: what arrives in between is not left out.
            is_over = self._is_over is not None and self._is_over()
            try:
                with self._timer('wait'):
                    message, age_s = self._messages.get(
                        timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                if is_over:
                    raise EndOfBagError from None
                raise
            if isinstance(message, str):
                self._refuse(message)
                continue
            with self._timer('decode'):
                unroll = self._decode(message, age_s)
            if unroll is not None:
                return unroll

    def _refuse(self, line: str) -> None:
        self._flow_stats.rejected += 1
        if self._is_over is not None:
            raise RefusedError(line)
        self._warn(line)

    def _decode(self, message: Trajectory, age_s: float) -> Unroll | None:
        try:
            arrays = from_tensors(message.tensors, checked_lengths=True)
            self._schema.check(arrays)
        except (TensorError, UnrollError) as error:
            self._refuse(self._messages.refusal(message.actor_id, error))
            return None
        new, missing = self._flow_stats.arrive(
            message.actor_id, message.start_id, message.sequence)
        if missing:
            self._warn(f'{missing} trajectories of {quoted(message.actor_id)} lost '
                       f'before number {message.sequence}')
        if not new:
            return None
        return Unroll(arrays, message.actor_id, message.start_id, message.sequence,
                      message.policy_version, age_s, num_bytes(message.tensors))
