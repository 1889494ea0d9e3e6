"""A small stand-in for the ROS 2 package `launch`, for machines without a ROS 2 distribution.

It has what this project's launch files use, under the same names and with the same behaviour.
A name that it lacks is named in an ImportError.
"""

from . import actions, event_handlers, events, launch_description_sources, logging, substitutions
from ._entity import Action, LaunchDescriptionEntity
from ._missing import missing_names
from ._substitution import SomeSubstitutionsType, Substitution
from .event import Event
from .launch_context import LaunchContext
from .launch_description import LaunchDescription
from .launch_description_sources import InvalidLaunchFileError
from .launch_service import LaunchService

__all__ = [
    'Action', 'Event', 'InvalidLaunchFileError', 'LaunchContext', 'LaunchDescription',
    'LaunchDescriptionEntity', 'LaunchService', 'SomeSubstitutionsType', 'Substitution',
    'actions', 'event_handlers', 'events', 'launch_description_sources', 'logging',
    'substitutions',
]

__getattr__ = missing_names(__name__)
