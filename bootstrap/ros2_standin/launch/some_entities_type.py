"""The type of an argument that takes one entity of a launch description, or several."""

import collections.abc
from collections.abc import Iterable

from .launch_description_entity import LaunchDescriptionEntity

SomeEntitiesType = LaunchDescriptionEntity | Iterable[LaunchDescriptionEntity]

SomeEntitiesType_types_tuple = (LaunchDescriptionEntity, collections.abc.Iterable)
