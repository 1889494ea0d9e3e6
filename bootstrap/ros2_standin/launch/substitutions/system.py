"""Substitutions that ask the system: environment, files, programs, names for this run."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys

from .. import logging
from ..launch_context import LaunchContext
from ..some_substitutions_type import SomeSubstitutionsType
from ..substitution import Substitution
from ..utilities import normalize_to_list_of_substitutions, perform_substitutions
from .values import SubstitutionFailure, describe_all


class EnvironmentVariable(Substitution):
    """The value of an environment variable."""

    def __init__(
        self, name: SomeSubstitutionsType, *, default_value: SomeSubstitutionsType | None = None
    ) -> None:
        """Keep the name, and the default for a variable that is not set."""
        self.name = normalize_to_list_of_substitutions(name)
        self.default_value = (
            None if default_value is None else normalize_to_list_of_substitutions(default_value)
        )

    def describe(self) -> str:
        """Name the variable."""
        return f'EnvVar({describe_all(self.name)})'

    def perform(self, context: LaunchContext) -> str:
        """Look the variable up."""
        name = perform_substitutions(context, self.name)
        if name in context.environment:
            return context.environment[name]
        if self.default_value is None:
            raise SubstitutionFailure(f"environment variable '{name}' does not exist")
        return perform_substitutions(context, self.default_value)


class FindExecutable(Substitution):
    """The path of a program that is on the PATH."""

    def __init__(self, *, name: SomeSubstitutionsType) -> None:
        """Keep the name."""
        self.name = normalize_to_list_of_substitutions(name)

    def describe(self) -> str:
        """Name the program."""
        return f'FindExec({describe_all(self.name)})'

    def perform(self, context: LaunchContext) -> str:
        """Search the PATH."""
        name = perform_substitutions(context, self.name)
        path = shutil.which(name)
        if path is None:
            raise SubstitutionFailure(f"executable '{name}' not found on the PATH")
        return path


class FileContent(Substitution):
    """What is in a file."""

    def __init__(self, path: SomeSubstitutionsType) -> None:
        """Keep the path."""
        self.path = normalize_to_list_of_substitutions(path)

    def describe(self) -> str:
        """Name the file."""
        return f"FileContent({describe_all(self.path, ', ')})"

    def perform(self, context: LaunchContext) -> str:
        """Read the file."""
        path = perform_substitutions(context, self.path)
        try:
            with open(path, encoding='utf-8') as file:
                return file.read()
        except FileNotFoundError:
            raise SubstitutionFailure(f'File not found: {path}') from None


class Command(Substitution):
    """What a program writes to its standard output; the launch waits for it."""

    def __init__(
        self, command: SomeSubstitutionsType, *, on_stderr: SomeSubstitutionsType = 'fail'
    ) -> None:
        """Keep the command line, and what output on stderr means: fail, warn, ignore, capture."""
        self.command = normalize_to_list_of_substitutions(command)
        self.on_stderr = normalize_to_list_of_substitutions(on_stderr)

    def describe(self) -> str:
        """Give the command line."""
        return f'Command({describe_all(self.command)})'

    def perform(self, context: LaunchContext) -> str:
        """Run the program, not in a shell."""
        command = perform_substitutions(context, self.command)
        on_stderr = perform_substitutions(context, self.on_stderr)
        if on_stderr not in ('fail', 'ignore', 'warn', 'capture'):
            raise SubstitutionFailure(
                "expected 'on_stderr' to be one of: 'fail', 'ignore', 'warn' or 'capture'"
            )
        try:
            result = subprocess.run(
                shlex.split(command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if on_stderr == 'capture' else subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise SubstitutionFailure(f'file not found: {error}') from error
        if result.returncode != 0:
            message = f'executed command failed. Command: {command}'
            if result.stderr:
                message += f'\nCaptured stderr output: {result.stderr}'
            raise SubstitutionFailure(message)
        if result.stderr and on_stderr in ('fail', 'warn'):
            message = (
                f'executed command showed stderr output. Command: {command}\n'
                f'Captured stderr output:\n{result.stderr}'
            )
            if on_stderr == 'fail':
                raise SubstitutionFailure(message)
            logging.get_logger().warning(message)
        return result.stdout


class AnonName(Substitution):
    """A name that nobody else has; the same one wherever the same name is given."""

    def __init__(self, name: SomeSubstitutionsType) -> None:
        """Keep the name to begin with."""
        self.name = normalize_to_list_of_substitutions(name)

    def describe(self) -> str:
        """Give the name to begin with."""
        return f'AnonName({describe_all(self.name)})'

    def perform(self, context: LaunchContext) -> str:
        """Look the name up among the ones made so far, or make it."""
        name = perform_substitutions(context, self.name)
        made = context.launch_configurations
        if 'anon' + name not in made:
            unique = f'{socket.gethostname()}_{os.getpid()}_{random.randint(0, sys.maxsize)}'
            made['anon' + name] = re.sub('[.:-]', '_', f'{name}_{unique}')
        return made['anon' + name]


class LaunchLogDir(Substitution):
    """The log directory of this launch."""

    def describe(self) -> str:
        """Say what this is."""
        return 'LaunchLogDir()'

    def perform(self, context: LaunchContext) -> str:
        """Give the directory."""
        return logging.launch_config.log_dir
