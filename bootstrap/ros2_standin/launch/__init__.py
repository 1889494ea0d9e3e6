"""A small stand-in for the ROS 2 package `launch`, for machines without a ROS 2 distribution.

It has what this project's launch files use, under the same names and with the same behaviour.
"""

from . import actions, event_handlers, events, launch_description_sources, logging, substitutions
from ._core import (
    Action,
    Event,
    LaunchContext,
    LaunchDescriptionEntity,
    SomeSubstitutionsType,
    Substitution,
)
from .actions import LaunchDescription
from .launch_description_sources import InvalidLaunchFileError
from .launch_service import LaunchService

__all__ = [
    'Action', 'Event', 'InvalidLaunchFileError', 'LaunchContext', 'LaunchDescription',
    'LaunchDescriptionEntity', 'LaunchService', 'SomeSubstitutionsType', 'Substitution',
    'actions', 'event_handlers', 'events', 'launch_description_sources', 'logging',
    'substitutions',
]
