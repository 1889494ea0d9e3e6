"""The actions that launch files use."""

from .._unknown import unknown_attributes
from .execute_local import ExecuteLocal
from .execute_process import ExecuteProcess
from .files import DeclareLaunchArgument, GroupAction, IncludeLaunchDescription
from .flow import (
    EmitEvent,
    LogInfo,
    OpaqueCoroutine,
    OpaqueFunction,
    RegisterEventHandler,
    Shutdown,
    TimerAction,
    UnregisterEventHandler,
)
from .settings import (
    AppendEnvironmentVariable,
    PopEnvironment,
    PopLaunchConfigurations,
    PushEnvironment,
    PushLaunchConfigurations,
    ResetEnvironment,
    ResetLaunchConfigurations,
    SetEnvironmentVariable,
    SetLaunchConfiguration,
    UnsetEnvironmentVariable,
    UnsetLaunchConfiguration,
)

__all__ = [
    'AppendEnvironmentVariable',
    'DeclareLaunchArgument',
    'EmitEvent',
    'ExecuteLocal',
    'ExecuteProcess',
    'GroupAction',
    'IncludeLaunchDescription',
    'LogInfo',
    'OpaqueCoroutine',
    'OpaqueFunction',
    'PopEnvironment',
    'PopLaunchConfigurations',
    'PushEnvironment',
    'PushLaunchConfigurations',
    'RegisterEventHandler',
    'ResetEnvironment',
    'ResetLaunchConfigurations',
    'SetEnvironmentVariable',
    'SetLaunchConfiguration',
    'Shutdown',
    'TimerAction',
    'UnregisterEventHandler',
    'UnsetEnvironmentVariable',
    'UnsetLaunchConfiguration',
]

__getattr__ = unknown_attributes(__name__)
