"""ExecuteProcess: runs a command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..descriptions import Executable
from ..some_substitutions_type import SomeSubstitutionsType
from .execute_local import ExecuteLocal


class ExecuteProcess(ExecuteLocal):
    """Runs a command line."""

    def __init__(
        self,
        *,
        cmd: Iterable[SomeSubstitutionsType],
        prefix: SomeSubstitutionsType | None = None,
        name: SomeSubstitutionsType | None = None,
        cwd: SomeSubstitutionsType | None = None,
        env: dict[SomeSubstitutionsType, SomeSubstitutionsType] | None = None,
        additional_env: dict[SomeSubstitutionsType, SomeSubstitutionsType] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the command line and the options."""
        executable = Executable(
            cmd=cmd, prefix=prefix, name=name, cwd=cwd, env=env, additional_env=additional_env
        )
        super().__init__(process_description=executable, **kwargs)

    @property
    def cmd(self) -> Any:
        """The command: texts once it was executed, substitutions before that."""
        return self.process_description.final_cmd or self.process_description.cmd

    @property
    def name(self) -> Any:
        """The name of the process: a text once it was executed, substitutions before that."""
        return self.process_description.final_name or self.process_description.name

    @property
    def cwd(self) -> Any:
        """The directory: a text once it was executed, substitutions before that."""
        return self.process_description.final_cwd or self.process_description.cwd

    @property
    def env(self) -> Any:
        """The environment: texts once it was executed, substitutions before that."""
        return self.process_description.final_env or self.process_description.env

    @property
    def additional_env(self) -> Any:
        """The variables that are added to the environment, as substitutions."""
        return self.process_description.additional_env
