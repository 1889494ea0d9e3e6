"""Executable: the command line of a process, before and after its substitutions are performed."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._unknown import reject_keywords, unknown_attributes
from .launch_context import LaunchContext
from .some_substitutions_type import SomeSubstitutionsType
from .substitution import Substitution
from .substitutions import LaunchConfiguration
from .utilities import normalize_to_list_of_substitutions, perform_substitutions

if TYPE_CHECKING:
    from .action import Action

    Environment = Mapping[SomeSubstitutionsType, SomeSubstitutionsType]
    Pairs = list[tuple[list[Substitution], list[Substitution]]] | None

__all__ = ['Executable']

_numbers = itertools.count(1)


def _optional(value: SomeSubstitutionsType | None) -> list[Substitution] | None:
    return None if value is None else normalize_to_list_of_substitutions(value)


def _pairs(environment: Environment | None) -> Pairs:
    if environment is None:
        return None
    return [
        (normalize_to_list_of_substitutions(name), normalize_to_list_of_substitutions(value))
        for name, value in environment.items()
    ]


class Executable:
    """
    A command with its name, directory and environment.

    `env` replaces the environment and `additional_env` adds to it.  Without a `prefix` of its own
    the command takes the one of the launch configuration `launch-prefix`, if the name of the
    executable matches `launch-prefix-filter`.
    """

    def __init__(
        self,
        *,
        cmd: Iterable[SomeSubstitutionsType],
        prefix: SomeSubstitutionsType | None = None,
        name: SomeSubstitutionsType | None = None,
        cwd: SomeSubstitutionsType | None = None,
        env: Environment | None = None,
        additional_env: Environment | None = None,
        arguments: Iterable[SomeSubstitutionsType] | None = None,
        **unknown: object,
    ) -> None:
        """Keep the parts."""
        reject_keywords(self, unknown)
        self.cmd = [
            normalize_to_list_of_substitutions(part) for part in [*cmd, *(arguments or ())]
        ]
        self.arguments = arguments
        self.prefix = normalize_to_list_of_substitutions(
            LaunchConfiguration('launch-prefix', default='') if prefix is None else prefix
        )
        self._prefix_filter = (
            LaunchConfiguration('launch-prefix-filter', default='') if prefix is None else None
        )
        self.name = _optional(name)
        self.cwd = _optional(cwd)
        self.env = _pairs(env)
        self.additional_env = _pairs(additional_env)
        self.final_cmd: list[str] | None = None
        self.final_name: str | None = None
        self.final_cwd: str | None = None
        self.final_env: dict[str, str] | None = None

    def prepare(self, context: LaunchContext, action: Action | None = None) -> None:
        """Perform the substitutions and give the process its name, which ends with a number."""
        cmd = [perform_substitutions(context, part) for part in self.cmd]
        if self._prefix_filter is None or re.match(
            self._prefix_filter.perform(context), os.path.basename(cmd[0])
        ):
            cmd = shlex.split(perform_substitutions(context, self.prefix)) + cmd
        self.final_cmd = cmd
        name = (
            os.path.basename(cmd[0])
            if self.name is None
            else perform_substitutions(context, self.name)
        )
        self.final_name = f'{name}-{next(_numbers)}'
        self.final_cwd = None if self.cwd is None else perform_substitutions(context, self.cwd)
        environment: Any = context.environment if self.env is None else {}
        self.final_env = {
            **environment,
            **{
                perform_substitutions(context, name): perform_substitutions(context, value)
                for name, value in [*(self.env or ()), *(self.additional_env or ())]
            },
        }


__getattr__ = unknown_attributes(__name__)
