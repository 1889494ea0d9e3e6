"""The type of an argument that takes a text, a substitution, or several to be joined."""

import collections.abc
from collections.abc import Iterable

from .substitution import Substitution

SomeSubstitutionsType = str | Substitution | Iterable[str | Substitution]

SomeSubstitutionsType_types_tuple = (str, Substitution, collections.abc.Iterable)
