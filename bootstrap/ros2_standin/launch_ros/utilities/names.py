"""Names of nodes and namespaces, and rules that remap names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from launch.substitution import Substitution
from launch.utilities import ensure_argument_type, normalize_to_list_of_substitutions

RemapRule = tuple[list[Substitution], list[Substitution]]

_TOKEN = re.compile('[A-Za-z_][A-Za-z0-9_]*')


def is_root_namespace(ns: str) -> bool:
    """Say whether a namespace is the one that all others are in."""
    return ns == '/'


def is_namespace_absolute(ns: str) -> bool:
    """Say whether a namespace is not relative to another one."""
    return ns.startswith('/')


def make_namespace_absolute(ns: str | None) -> str | None:
    """Take a relative namespace as one in the root namespace; keep None."""
    return ns if ns is None or is_namespace_absolute(ns) else f'/{ns}'


def prefix_namespace(base_ns: str | None, ns: str | None) -> str | None:
    """Put a namespace, or the name of a node, into a namespace unless it is absolute."""
    if ns is None:
        joined = base_ns
    elif not base_ns or is_namespace_absolute(ns):
        joined = ns
    else:
        joined = f"{base_ns.rstrip('/')}/{ns}"
    if joined is None or is_root_namespace(joined):
        return joined
    return joined.rstrip('/')


def validate_node_name(name: str) -> None:
    """Raise ValueError if a node cannot have this name."""
    if not _TOKEN.fullmatch(name):
        raise ValueError(
            f"Invalid node name '{name}': it must not be empty, must not begin with a digit, and "
            "must have only letters without accents, digits and '_'"
        )


def validate_namespace(namespace: str) -> None:
    """Raise ValueError if a node cannot be in this absolute namespace."""
    tokens = namespace.split('/')[1:]
    if not is_root_namespace(namespace) and not all(map(_TOKEN.fullmatch, tokens)):
        raise ValueError(
            f"Invalid namespace '{namespace}': each part must not be empty, must not begin with a "
            "digit, and must have only letters without accents, digits and '_'"
        )


def normalize_remap_rule(remap_rule: Any) -> RemapRule:
    """Turn the two names of a rule into substitutions."""
    ensure_argument_type(remap_rule, tuple, 'remap_rule')
    if len(remap_rule) != 2:
        raise TypeError(f'remap_rule must be a tuple of length 2, got length {len(remap_rule)}')
    source, destination = remap_rule
    return (
        normalize_to_list_of_substitutions(source),
        normalize_to_list_of_substitutions(destination),
    )


def normalize_remap_rules(remap_rules: Iterable[Any]) -> list[RemapRule]:
    """Turn the names of rules into substitutions."""
    return [normalize_remap_rule(rule) for rule in remap_rules]
