"""Event: something that happened while launching, for event handlers to act on."""


class Event:
    """Base class of events."""

    name = 'launch.Event'
