"""Messages of a training: to and from arrays, and queues of them that are bounded."""

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from builtin_interfaces.msg import Time as TimeMessage
from numpy.typing import NDArray
from rclpy.time import Time
from std_msgs.msg import Header

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.common.quoting import quoted
from vdl_ros.msg import Credit, Episode, Observation, Policy, Trajectory
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.data.unroll import Arrays, EndOfBagError, Unroll, UnrollError, UnrollSchema
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.ros.messages import tensors
from vdl_ros.ros.messages.tensors import TensorError, to_tensors


def memory_budget() -> int:
    """Return the bytes of messages that may wait: a quarter of the memory, at least 1 GiB."""
    return max(1 << 30, os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 4)


M = TypeVar('M', Observation, Trajectory)


class ActorMessages(Generic[M]):
    """A queue from the executor's thread, which calls ``put``, to another one.

    ``name`` is for the lines that ``warn`` gets. Of bytes :func:`memory_budget` may wait.
    """

    def __init__(
        self, name: str, schema: UnrollSchema | StepSchema, learner_id: str,
        warn: Callable[[str], None], max_items: int,
    ) -> None:
        self.max_bytes = memory_budget()
        self._name, self._schema, self._learner_id = name, schema, learner_id
        self._warn = warn
        # Of a message that is refused before it is kept, only the reason waits.
        self._kept: queue.Queue[tuple[M | str, float, int]] = queue.Queue(max_items)
        self._lock, self._bytes = threading.Lock(), 0

    def put(self, message: M, age_s: float) -> None:
        """Append a message; drop it if too many, or too many bytes, are waiting.

        A message for another learner, or of another length than the schema's, is not kept.
        """
        if message.learner_id != self._learner_id:
            return
        kept: M | str = message
        try:
            lengths = {tensor.name: tensors.array_length(tensor) for tensor in message.tensors}
            self._schema.check_lengths(lengths)
            if len(message.tensors) > len(lengths):
                raise TensorError('a duplicate name')
            # Decompressed: a message must not need more memory than a queue may have.
            size = sum(lengths.values())
        except (TensorError, UnrollError) as error:
            kept, size = self.refusal(message.actor_id, error), 0
        try:
            with self._lock:
                if self._bytes + size > self.max_bytes:
                    raise queue.Full
                self._kept.put_nowait((kept, age_s, size))
                self._bytes += size
        except queue.Full:
            self._warn(f'{self._name} of {quoted(message.actor_id)} dropped: {len(self)} messages '
                       f'of {self._bytes} bytes are waiting')

    def get(self, timeout: float) -> tuple[M | str, float]:
        """Return the next message, or why it was refused, and its age, s; raises queue.Empty."""
        kept, age_s, size = self._kept.get(timeout=timeout)
        with self._lock:
            self._bytes -= size
        return kept, age_s

    def refusal(self, actor_id: str, error: Exception) -> str:
        return f'{self._name} of {quoted(actor_id)} refused: {error}'

    def __len__(self) -> int:
        return self._kept.qsize()


# Characters; all settings together have about 2,000.
_MAX_CONFIG = 1 << 16
_Config = dict[str, bool | int | float | str | None]
_QUEUE = 256  # messages that may wait; more than credit lets actors send


def to_trajectory(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, actor_id: str, start_id: int,
    sequence: int, learner_id: str, policy_version: int, compression: str = 'none',
) -> Trajectory:
    """Return the message of an unroll; ``stamp`` is the time of its last step."""
    return Trajectory(
        header=Header(stamp=stamp.to_msg()), actor_id=actor_id, start_id=start_id,
        sequence=sequence, learner_id=learner_id, policy_version=policy_version,
        tensors=to_tensors(arrays, compression))


def to_policy(
    arrays: Mapping[str, NDArray[Any]], *, stamp: Time, learner_id: str, version: int,
    agent_steps: int, config: str, flow_stats: FlowStats,
) -> Policy:
    return Policy(
        header=Header(stamp=stamp.to_msg()), learner_id=learner_id, version=version,
        agent_steps=agent_steps, config=config, tensors=to_tensors(arrays),
        credits=[Credit(actor_id=name, start_id=start_id, used=used)
                 for start_id, (name, used) in flow_stats.credits_to_send().items()])


def policy_config(message: Policy) -> dict[str, Any]:
    """Return the learner's settings from a policy message; raises ValueError."""
    if len(message.config) > _MAX_CONFIG:
        raise ValueError(f'config: {len(message.config)} characters are not allowed: '
                         f'at most {_MAX_CONFIG}')
    try:
        return msgspec.json.decode(message.config, type=_Config)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f'config: {quoted(message.config, 40)}: {error}') from None


class RefusedError(ValueError):
    """A trajectory that is not valid where each of them is needed; the message is one line."""


class TrajectoryInbox:
    """A bounded queue of trajectory messages that returns checked unrolls.

    The executor's thread calls ``put``, which only enqueues; the training thread calls ``get``,
    which decodes. A bag, in which every message has to be valid, tells whether it ``is_over``.
    """

    def __init__(
        self, schema: UnrollSchema, flow_stats: FlowStats, learner_id: str,
        warn: Callable[[str], None], timer: ThreadTimer | None = None, *,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        self._timer, self._is_over = timer or ThreadTimer(), is_over
        self._schema, self._flow_stats, self._warn = schema, flow_stats, warn
        self._messages = ActorMessages[Trajectory](
            'trajectory', schema, learner_id, warn, _QUEUE)

    def put(self, message: Trajectory, age_s: float) -> None:
        self._messages.put(message, age_s)

    @property
    def waiting(self) -> int:
        return len(self._messages)

    def get(self, timeout: float) -> Unroll:
        """Return the next valid unroll.

        Raises queue.Empty, EndOfBagError, or RefusedError if the next one of a bag is not valid.
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
            arrays = tensors.from_tensors(message.tensors, checked_lengths=True)
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
                      message.policy_version, age_s, tensors.num_bytes(message.tensors))


def to_observation(
    arrays: Arrays, *, stamp: TimeMessage, actor_id: str, start_id: int, step: int,
    learner_id: str,
) -> Observation:
    return Observation(
        header=Header(stamp=stamp), actor_id=actor_id, start_id=start_id, step=step,
        learner_id=learner_id, tensors=to_tensors(arrays))


def to_episode(
    episode: FinishedEpisode, *, stamp: Time, actor_id: str, policy_version: int,
) -> Episode:
    return Episode(
        header=Header(stamp=stamp.to_msg()), actor_id=actor_id, environment=episode.environment,
        episode_return=episode.episode_return, length=episode.length,
        terminated=episode.terminated, truncated=episode.truncated,
        success=-1 if episode.success is None else int(episode.success),
        intervened=-1 if episode.intervened is None else episode.intervened,
        policy_version=policy_version)


def from_episode(message: Episode) -> FinishedEpisode:
    """Return the episode in a message; raises ValueError."""
    if not math.isfinite(message.episode_return) or not message.length:
        raise ValueError(f'episode: return {message.episode_return}, length {message.length} is '
                         'not allowed: finite, 1 or more')
    return FinishedEpisode(
        message.environment, message.episode_return, message.length, message.terminated,
        message.truncated, None if message.success < 0 else message.success > 0,
        intervened=None if message.intervened < 0 else message.intervened)
