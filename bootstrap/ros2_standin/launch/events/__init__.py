"""Events of the launch itself."""

from .._core import Event
from . import process

__all__ = ['Shutdown', 'process']


class Shutdown(Event):
    """The launch is to end."""

    def __init__(self, *, reason: str = 'reason not given', due_to_sigint: bool = False) -> None:
        self.reason = reason
        self.due_to_sigint = due_to_sigint
