"""
A small stand-in for the ROS 2 package `launch`: Python launch files, run as they are.

It has the names, module paths and behaviour that launch files use, not the extension points
(XML and YAML files, actions added by other packages).  What it lacks it names in an error.
"""

from . import (
    actions,
    conditions,
    descriptions,
    event_handlers,
    events,
    launch_description_sources,
    logging,
    substitutions,
    utilities,
)
from ._unknown import unknown_attributes
from .action import Action
from .condition import Condition
from .event import Event
from .event_handler import BaseEventHandler, EventHandler
from .invalid_launch_file_error import InvalidLaunchFileError
from .launch_context import LaunchContext
from .launch_description import LaunchDescription
from .launch_description_entity import LaunchDescriptionEntity
from .launch_description_source import LaunchDescriptionSource
from .launch_introspector import LaunchIntrospector
from .launch_service import LaunchService
from .some_entities_type import SomeEntitiesType, SomeEntitiesType_types_tuple
from .some_substitutions_type import SomeSubstitutionsType, SomeSubstitutionsType_types_tuple
from .substitution import Substitution

__all__ = [
    'Action',
    'BaseEventHandler',
    'Condition',
    'Event',
    'EventHandler',
    'InvalidLaunchFileError',
    'LaunchContext',
    'LaunchDescription',
    'LaunchDescriptionEntity',
    'LaunchDescriptionSource',
    'LaunchIntrospector',
    'LaunchService',
    'SomeEntitiesType',
    'SomeEntitiesType_types_tuple',
    'SomeSubstitutionsType',
    'SomeSubstitutionsType_types_tuple',
    'Substitution',
    'actions',
    'conditions',
    'descriptions',
    'event_handlers',
    'events',
    'launch_description_sources',
    'logging',
    'substitutions',
    'utilities',
]

__getattr__ = unknown_attributes(__name__)
