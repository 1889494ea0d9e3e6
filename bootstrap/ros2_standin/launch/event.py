"""Base class of events."""


class Event:
    """Something that happened in a launch and that event handlers react to."""

    name = 'launch.Event'
