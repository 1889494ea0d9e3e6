"""Observation messages of actors, for central inference."""

from __future__ import annotations

from builtin_interfaces.msg import Time
from std_msgs.msg import Header

from vdl_ros.msg import Observation
from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.ros.messages.tensors import to_tensors

__all__ = ['to_observation']


def to_observation(
    arrays: Arrays, *, stamp: Time, actor_id: str, start_id: int, step: int, learner_id: str,
) -> Observation:
    """Return the message of one step; ``stamp`` is the time of the step."""
    return Observation(
        header=Header(stamp=stamp), actor_id=actor_id, start_id=start_id, step=step,
        learner_id=learner_id, tensors=to_tensors(arrays))
