"""Substitutions that look up packages, their executables, and parameters of the launch."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ament_index_python.packages import get_package_prefix, get_package_share_directory
from launch._unknown import unknown_attributes
from launch.launch_context import LaunchContext
from launch.some_substitutions_type import SomeSubstitutionsType
from launch.substitution import Substitution
from launch.substitutions import SubstitutionFailure
from launch.substitutions.values import describe_all, normalize_default
from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions

__all__ = [
    'ExecutableInPackage',
    'FindPackage',
    'FindPackagePrefix',
    'FindPackageShare',
    'Parameter',
]


class FindPackage(Substitution):
    """Base class of what looks a package up."""

    def __init__(self, package: SomeSubstitutionsType) -> None:
        """Keep the name of the package."""
        super().__init__()
        self.package = normalize_to_list_of_substitutions(package)

    def find(self, package_name: str) -> str:
        """Look the package up."""
        raise NotImplementedError

    def describe(self) -> str:
        """Name the package."""
        return f'{type(self).__name__}(pkg={describe_all(self.package)})'

    def perform(self, context: LaunchContext) -> str:
        """Look the package up."""
        return self.find(perform_substitutions(context, self.package))


class FindPackagePrefix(FindPackage):
    """The directory that a package is installed below."""

    def find(self, package_name: str) -> str:
        """Look the package up in the index."""
        return get_package_prefix(package_name)


class FindPackageShare(FindPackage):
    """The directory of the launch files, parameters and so on of a package."""

    def find(self, package_name: str) -> str:
        """Look the package up in the index."""
        return get_package_share_directory(package_name)


class ExecutableInPackage(FindPackagePrefix):
    """The path of an executable of a package."""

    def __init__(
        self, executable: SomeSubstitutionsType, package: SomeSubstitutionsType
    ) -> None:
        """Keep the names."""
        super().__init__(package)
        self.executable = normalize_to_list_of_substitutions(executable)

    def describe(self) -> str:
        """Name the package and the executable."""
        return (
            f'ExecInPkg(pkg={describe_all(self.package)}, exec={describe_all(self.executable)})'
        )

    def perform(self, context: LaunchContext) -> str:
        """Look into the directory of the package's executables, `lib/<package>`."""
        executable = perform_substitutions(context, self.executable)
        package = perform_substitutions(context, self.package)
        prefix = self.find(package)
        directory = os.path.join(prefix, 'lib', package)
        if not os.path.exists(directory):
            raise SubstitutionFailure(
                f"package '{package}' found at '{prefix}', but libexec directory "
                f"'{directory}' does not exist"
            )
        path = shutil.which(executable, path=directory)
        if path is None:
            raise SubstitutionFailure(
                f"executable '{executable}' not found on the libexec directory '{directory}' "
            )
        return path


class Parameter(Substitution):
    """The value of a parameter that SetParameter has set for all nodes."""

    def __init__(self, name: SomeSubstitutionsType, *, default: Any | None = None) -> None:
        """Keep the name, and the default for a parameter that is not set."""
        self.name = normalize_to_list_of_substitutions(name)
        self._default = normalize_default(default)

    def describe(self) -> str:
        """Name the parameter."""
        return f'Parameter(name={describe_all(self.name)})'

    def perform(self, context: LaunchContext) -> str:
        """Look the parameter up."""
        name = perform_substitutions(context, self.name)
        for item in context.launch_configurations.get('global_params', ()):
            # The other items are paths of parameter files.
            if isinstance(item, tuple) and item[0] == name:
                return str(item[1])
        if self._default is None:
            raise SubstitutionFailure(f"parameter '{name}' not found")
        return perform_substitutions(context, self._default)


__getattr__ = unknown_attributes(__name__)
