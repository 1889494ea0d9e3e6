"""The messages that actors send to a learner, checked by length before they are kept."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from vdl_ros.common.quoting import quoted
from vdl_ros.msg import Observation, Trajectory
from vdl_ros.rl.data.unroll import UnrollError
from vdl_ros.ros.messages.tensors import TensorError, array_length
from vdl_ros.ros.training.bounded_queue import BoundedQueue

__all__ = ['ActorMessages', 'LengthSchema']

_LONGEST_ID = 256


class LengthSchema(Protocol):
    """Knows the lengths of the arrays in a message."""

    def check_lengths(self, lengths: Mapping[str, int]) -> None:
        """Check the bytes of each array by name; raise UnrollError."""


M = TypeVar('M', Observation, Trajectory)


class ActorMessages(Generic[M]):
    """A bounded queue from the executor's thread, which calls ``put``, to another one."""

    def __init__(
        self, name: str, schema: LengthSchema, learner_id: str, warn: Callable[[str], None],
        max_items: int, max_bytes: int | None = None,
    ) -> None:
        """
        Create an empty queue.

        Args:
            name: what a message is, for the warnings.
            schema: schema of its arrays.
            learner_id: messages for other learners are ignored.
            warn: called with one line for each message that is dropped.
            max_items: messages that may wait.
            max_bytes: of messages that may wait; by default :func:`memory_budget`.
        """
        self._name, self._schema, self._learner_id = name, schema, learner_id
        self._warn = warn
        # Of a message that is refused before it is kept, only the reason waits.
        self._kept: BoundedQueue[tuple[M | str, float]] = BoundedQueue(max_items, max_bytes)

    def put(self, message: M, age_s: float) -> None:
        """
        Append a message; drop it if the queue is full.

        A message for another learner, or of another length than the schema's, is not kept.
        """
        if message.learner_id != self._learner_id:
            return
        kept: M | str = message
        try:
            size = _checked_length(message, self._schema)
        except (TensorError, UnrollError) as error:
            kept, size = self.refusal(message.actor_id, error), 0
        try:
            self._kept.put((kept, age_s), size)
        except queue.Full:
            self._warn(f'{self._name} of {quoted(message.actor_id)} dropped: {self._kept}')

    def get(self, timeout: float) -> tuple[M | str, float]:
        """
        Return the next message, or the line why it was refused, and its age, s.

        Raises:
            queue.Empty: none within ``timeout`` seconds.
        """
        return self._kept.get(timeout)

    def refusal(self, actor_id: str, error: Exception) -> str:
        """Return the line that an actor's message was refused."""
        return f'{self._name} of {quoted(actor_id)} refused: {error}'

    @property
    def max_bytes(self) -> int:
        """Bytes that may wait."""
        return self._kept.max_bytes

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._kept)


def _checked_length(message: Observation | Trajectory, schema: LengthSchema) -> int:
    """
    Return the size of a message, bytes, whose arrays have the right names and lengths.

    Raises:
        TensorError, UnrollError: the message does not match ``schema``.
    """
    if len(message.actor_id) > _LONGEST_ID:
        raise UnrollError(f'actor_id: {len(message.actor_id)} characters are not allowed: '
                          f'at most {_LONGEST_ID}')
    lengths = {tensor.name: array_length(tensor) for tensor in message.tensors}
    schema.check_lengths(lengths)
    if len(message.tensors) > len(lengths):
        raise TensorError('a duplicate name')
    # Decompressed: a message must not need more memory than a queue may have.
    return sum(lengths.values())
