"""Matchers for events that are addressed to an action."""

from __future__ import annotations

from collections.abc import Callable

from ..action import Action


def matches_action(target_action: Action) -> Callable[[Action], bool]:
    """Make a matcher for one action."""
    return lambda action: action is target_action
