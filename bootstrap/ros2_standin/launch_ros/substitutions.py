"""Substitutions: where packages and their executables are."""

import os
import shutil

from ament_index_python.packages import get_package_prefix, get_package_share_directory
from launch._core import (
    LaunchContext,
    SomeSubstitutionsType,
    Substitution,
    describe,
    normalize,
    perform,
)
from launch.substitutions import SubstitutionFailure


class FindPackagePrefix(Substitution):
    """The folder that a package is installed in."""

    def __init__(self, package: SomeSubstitutionsType) -> None:
        self.package = normalize(package)

    def describe(self) -> str:
        return f'{type(self).__name__}(pkg={describe(self.package)})'

    def perform(self, context: LaunchContext) -> str:
        return get_package_prefix(perform(context, self.package))


class FindPackageShare(FindPackagePrefix):
    """The share folder of a package, which holds launch files, parameters and the like."""

    def perform(self, context: LaunchContext) -> str:
        return get_package_share_directory(perform(context, self.package))


class ExecutableInPackage(FindPackagePrefix):
    """The path of an executable of a package."""

    def __init__(self, executable: SomeSubstitutionsType, package: SomeSubstitutionsType) -> None:
        super().__init__(package)
        self.executable = normalize(executable)

    def describe(self) -> str:
        return f'ExecInPkg(pkg={describe(self.package)}, exec={describe(self.executable)})'

    def perform(self, context: LaunchContext) -> str:
        executable = perform(context, self.executable)
        folder = os.path.join(super().perform(context), 'lib', perform(context, self.package))
        path = shutil.which(executable, path=folder)
        if path is None:
            raise SubstitutionFailure(
                f"executable '{executable}' not found on the libexec directory '{folder}'")
        return path
