"""Events of lifecycle nodes: their transitions, and the request to make one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from launch._unknown import unknown_attributes
from launch.event import Event

if TYPE_CHECKING:
    from ..actions import LifecycleNode

__all__ = ['ChangeState', 'StateTransition']


class ChangeState(Event):
    """A lifecycle node is to make a transition, one of those of lifecycle_msgs/msg/Transition."""

    name = 'launch_ros.events.lifecycle.ChangeState'

    def __init__(
        self,
        *,
        lifecycle_node_matcher: Callable[[LifecycleNode], bool],
        transition_id: int,
    ) -> None:
        """Keep what tells the nodes that are meant, and the transition."""
        from lifecycle_msgs.msg import Transition

        known = {
            getattr(Transition, name): name
            for name in dir(Transition)
            if name.startswith('TRANSITION_') and 'CALLBACK' not in name and 'ERROR' not in name
        }
        if transition_id not in known:
            raise ValueError(
                f"given transition_id of '{transition_id}', expected one of "
                f'{sorted(known.items())}'
            )
        self.lifecycle_node_matcher = lifecycle_node_matcher
        self.transition_id = transition_id
        self.transition_name = known[transition_id]


class StateTransition(Event):
    """A lifecycle node has made a transition."""

    name = 'launch_ros.events.lifecycle.StateTransition'

    def __init__(self, *, action: LifecycleNode, msg: Any) -> None:
        """Keep the node, and what its message says."""
        self.action = action
        self.msg = msg
        self.timestamp = msg.timestamp
        self.transition = msg.transition.label
        self.start_state = msg.start_state.label
        self.goal_state = msg.goal_state.label


__getattr__ = unknown_attributes(__name__)
