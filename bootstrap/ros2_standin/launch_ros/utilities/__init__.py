"""Functions on names, remap rules and parameters of nodes."""

from launch._unknown import unknown_attributes

from .names import (
    is_namespace_absolute,
    is_root_namespace,
    make_namespace_absolute,
    normalize_remap_rule,
    normalize_remap_rules,
    prefix_namespace,
)
from .parameters import evaluate_parameters, normalize_parameters

__all__ = [
    'evaluate_parameters',
    'is_namespace_absolute',
    'is_root_namespace',
    'make_namespace_absolute',
    'normalize_parameters',
    'normalize_remap_rule',
    'normalize_remap_rules',
    'prefix_namespace',
]

__getattr__ = unknown_attributes(__name__)
