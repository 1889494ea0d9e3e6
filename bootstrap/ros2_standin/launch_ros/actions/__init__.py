"""The actions that launch files use for nodes."""

from launch._unknown import unknown_attributes

from .lifecycle_node import LifecycleNode
from .node import Node
from .settings import (
    PushROSNamespace,
    PushRosNamespace,
    SetParameter,
    SetParametersFromFile,
    SetRemap,
    SetROSLogDir,
    SetUseSimTime,
)

__all__ = [
    'LifecycleNode',
    'Node',
    'PushROSNamespace',
    'PushRosNamespace',
    'SetParameter',
    'SetParametersFromFile',
    'SetROSLogDir',
    'SetRemap',
    'SetUseSimTime',
]

__getattr__ = unknown_attributes(__name__)
