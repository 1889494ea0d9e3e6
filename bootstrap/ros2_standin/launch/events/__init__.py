"""Events of the launch itself."""

from .._missing import missing_names
from ..event import Event
from . import process

__all__ = ['Shutdown', 'process']


class Shutdown(Event):
    """The launch is to end."""

    name = 'launch.events.Shutdown'

    def __init__(self, *, reason: str = 'reason not given', due_to_sigint: bool = False) -> None:
        self.reason = reason
        self.due_to_sigint = due_to_sigint


__getattr__ = missing_names(__name__)
