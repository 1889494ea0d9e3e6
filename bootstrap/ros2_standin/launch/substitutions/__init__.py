"""The substitutions that launch files use."""

from .._unknown import unknown_attributes
from .logic import (
    AllSubstitution,
    AndSubstitution,
    AnySubstitution,
    EqualsSubstitution,
    IfElseSubstitution,
    NotEqualsSubstitution,
    NotSubstitution,
    OrSubstitution,
)
from .system import (
    AnonName,
    Command,
    EnvironmentVariable,
    FileContent,
    FindExecutable,
    LaunchLogDir,
)
from .values import (
    LaunchConfiguration,
    LocalSubstitution,
    PathJoinSubstitution,
    PythonExpression,
    SubstitutionFailure,
    TextSubstitution,
    ThisLaunchFile,
    ThisLaunchFileDir,
)

__all__ = [
    'AllSubstitution',
    'AndSubstitution',
    'AnonName',
    'AnySubstitution',
    'Command',
    'EnvironmentVariable',
    'EqualsSubstitution',
    'FileContent',
    'FindExecutable',
    'IfElseSubstitution',
    'LaunchConfiguration',
    'LaunchLogDir',
    'LocalSubstitution',
    'NotEqualsSubstitution',
    'NotSubstitution',
    'OrSubstitution',
    'PathJoinSubstitution',
    'PythonExpression',
    'SubstitutionFailure',
    'TextSubstitution',
    'ThisLaunchFile',
    'ThisLaunchFileDir',
]

__getattr__ = unknown_attributes(__name__)
