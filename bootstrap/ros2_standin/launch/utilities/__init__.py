"""Small functions on substitutions, entities and types that actions share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .._unknown import unknown_attributes
from ..launch_description_entity import LaunchDescriptionEntity
from ..some_entities_type import SomeEntitiesType
from ..some_substitutions_type import SomeSubstitutionsType
from ..substitution import Substitution

if TYPE_CHECKING:
    from ..launch_context import LaunchContext

__all__ = [
    'ensure_argument_type',
    'is_a',
    'is_a_subclass',
    'normalize_to_list_of_entities',
    'normalize_to_list_of_substitutions',
    'perform_substitutions',
    'visit_all_entities_and_collect_futures',
]


def is_a(obj: object, entity_type: type) -> bool:
    """Say whether an object is an instance of a class."""
    return isinstance(obj, entity_type)


def is_a_subclass(obj: object, entity_type: type) -> bool:
    """Say whether something is an instance or a subclass of a class."""
    return isinstance(obj, entity_type) or (
        isinstance(obj, type) and issubclass(obj, entity_type)
    )


def ensure_argument_type(
    argument: object, types: Any, argument_name: str, caller: str | None = None
) -> None:
    """Raise TypeError if an argument is of none of the types."""
    types = tuple(types) if isinstance(types, Iterable) else (types,)
    if not isinstance(argument, types):
        wanted = ', '.join(str(one) for one in types)
        expected = f"'{caller}' expected" if caller else 'Expected'
        raise TypeError(
            f"{expected} '{argument_name}' to be one of [{wanted}], "
            f"but got '{argument}' of type '{type(argument)}'"
        )


def normalize_to_list_of_substitutions(subs: SomeSubstitutionsType) -> list[Substitution]:
    """Turn a text, a substitution, or a mixture of them into a list of substitutions."""
    from ..substitutions import TextSubstitution

    if isinstance(subs, (str, Substitution)):
        subs = [subs]
    result: list[Substitution] = []
    for item in subs:
        if isinstance(item, str):
            result.append(TextSubstitution(text=item))
        elif isinstance(item, Substitution):
            result.append(item)
        else:
            raise TypeError(
                f"Failed to normalize given item of type '{type(item)}', "
                "when only 'str' or 'launch.Substitution' were expected."
            )
    return result


def perform_substitutions(context: LaunchContext, subs: Sequence[Substitution]) -> str:
    """Work out substitutions and join them."""
    return ''.join(context.perform_substitution(sub) for sub in subs)


def normalize_to_list_of_entities(
    entities: Iterable[SomeEntitiesType],
) -> list[LaunchDescriptionEntity]:
    """Flatten entities and iterables of entities, one level deep."""
    flat: list[LaunchDescriptionEntity] = []
    for item in entities:
        if isinstance(item, LaunchDescriptionEntity):
            flat.append(item)
        else:
            flat.extend(item)
    return flat


def visit_all_entities_and_collect_futures(
    entity: LaunchDescriptionEntity, context: LaunchContext
) -> list[tuple[LaunchDescriptionEntity, asyncio.Future]]:
    """Visit an entity and all that it leads to, depth first, and give the futures of them."""
    sub_entities = entity.visit(context)
    future = entity.get_asyncio_future()
    pairs = [] if future is None else [(entity, future)]
    for sub_entity in sub_entities or []:
        pairs += visit_all_entities_and_collect_futures(sub_entity, context)
    return pairs


__getattr__ = unknown_attributes(__name__)
