"""Events of the launch system itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .._unknown import unknown_attributes
from ..action import Action
from ..event import Event
from . import process
from .matchers import matches_action

if TYPE_CHECKING:
    from ..actions import TimerAction
    from ..launch_description import LaunchDescription

__all__ = [
    'ExecutionComplete',
    'IncludeLaunchDescription',
    'Shutdown',
    'TimerEvent',
    'matches_action',
    'process',
]


class ExecutionComplete(Event):
    """An action was executed, and what it began is done."""

    name = 'launch.events.ExecutionComplete'

    def __init__(self, *, action: Action) -> None:
        """Keep the action."""
        self.action = action


class IncludeLaunchDescription(Event):
    """A launch description is to be visited."""

    name = 'launch.events.IncludeLaunchDescription'

    def __init__(self, launch_description: LaunchDescription) -> None:
        """Keep the description."""
        self.launch_description = launch_description


class Shutdown(Event):
    """The launch is to end."""

    name = 'launch.events.Shutdown'

    def __init__(
        self, *, reason: str = 'reason not given', due_to_sigint: bool = False
    ) -> None:
        """Keep the reason."""
        self.reason = reason
        self.due_to_sigint = due_to_sigint


class TimerEvent(Event):
    """The time of a timer has come."""

    name = 'launch.events.TimerEvent'

    def __init__(self, *, timer_action: TimerAction) -> None:
        """Keep the timer."""
        self.timer_action = timer_action


__getattr__: Callable = unknown_attributes(__name__)
