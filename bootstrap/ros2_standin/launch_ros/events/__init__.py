"""Events of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from launch._unknown import unknown_attributes

from . import lifecycle

if TYPE_CHECKING:
    from ..actions import Node

__all__ = ['lifecycle', 'matches_node_name']


def matches_node_name(node_name: str) -> Callable[[Node], bool]:
    """Make a matcher for the full name of a node."""
    full_name = node_name if node_name.startswith('/') else f'/{node_name}'
    return lambda action: action.node_name == full_name


__getattr__ = unknown_attributes(__name__)
