"""The length of an actor's message, checked against its schema before the message is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from vdl_ros.msg import Observation, Trajectory
from vdl_ros.rl.data.unroll import UnrollError
from vdl_ros.ros.messages.tensors import TensorError, check_axes

__all__ = ['LengthSchema', 'checked_length']

_LONGEST_ID = 256


class LengthSchema(Protocol):
    """Knows the lengths of the arrays in a message."""

    def check_lengths(self, lengths: Mapping[str, int]) -> None:
        """Check the bytes of each array by name; raise UnrollError."""


def checked_length(message: Observation | Trajectory, schema: LengthSchema) -> int:
    """
    Return the size of a message, bytes, whose arrays have the right names and lengths.

    Raises:
        TensorError, UnrollError: the message does not match ``schema``.
    """
    if len(message.actor_id) > _LONGEST_ID:
        raise UnrollError(f'actor_id: {len(message.actor_id)} characters are not allowed: '
                          f'at most {_LONGEST_ID}')
    lengths = {tensor.name: len(tensor.data) for tensor in message.tensors}
    schema.check_lengths(lengths)
    for tensor in message.tensors:
        check_axes(tensor)
    if len(message.tensors) > len(lengths):
        raise TensorError('a duplicate name')
    return sum(lengths.values())
