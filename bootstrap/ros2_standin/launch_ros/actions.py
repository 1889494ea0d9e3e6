"""Actions for nodes: Node, and PushROSNamespace for the nodes after it."""

import atexit
import functools
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from launch._core import LaunchContext, SomeSubstitutionsType, normalize, perform
from launch.actions import Action, ExecuteProcess
from launch.logging import get_logger

from .parameter_descriptions import ParameterValue
from .substitutions import ExecutableInPackage

_NAME = re.compile('[A-Za-z_][A-Za-z0-9_]*')


class Node(ExecuteProcess):
    """Runs an executable of a package as a ROS node.

    Parameters reach the node in a temporary parameter file, under its full name if name and
    namespace are known, else for any node of the process.

    Args:
        namespace: of the node; below that of PushROSNamespace unless it starts with '/'.
        exec_name: of the process; by default that of the executable.
        parameters: mappings from names to values (see ParameterValue), or paths of files.
        remappings: pairs of a name and what replaces it.
    """

    def __init__(
        self,
        *,
        package: SomeSubstitutionsType,
        executable: SomeSubstitutionsType,
        name: SomeSubstitutionsType | None = None,
        namespace: SomeSubstitutionsType | None = None,
        exec_name: SomeSubstitutionsType | None = None,
        parameters: Iterable[Any] | None = None,
        remappings: Iterable[tuple[SomeSubstitutionsType, SomeSubstitutionsType]] | None = None,
        arguments: Iterable[SomeSubstitutionsType] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(cmd=[ExecutableInPackage(executable, package), *(arguments or ())],
                         name=exec_name, **options)
        self._node_name = None if name is None else normalize(name)
        self._namespace = None if namespace is None else normalize(namespace)
        self._remappings = [(normalize(old), normalize(new)) for old, new in remappings or ()]
        self._parameters = [
            {key: _parameter(value) for key, value in each.items()}
            if isinstance(each, Mapping) else _path(each) for each in parameters or ()]

    def command(self, context: LaunchContext) -> list[str]:
        cmd = [*super().command(context), '--ros-args']
        name = namespace = None
        if self._node_name is not None:
            name = perform(context, self._node_name)
            if not _NAME.fullmatch(name):
                raise ValueError(f"Invalid node name '{name}'")
            cmd += ['-r', f'__node:={name}']
        pushed = context.launch_configurations.get('ros_namespace', '')
        if self._namespace is not None or pushed:
            given = '' if self._namespace is None else perform(context, self._namespace)
            namespace = _join_namespaces(pushed, given)
            cmd += ['-r', f'__ns:={namespace}']
        node = '/**' if name is None or namespace is None else f'{namespace.rstrip("/")}/{name}'
        for each in self._parameters:
            if isinstance(each, dict):
                values = {perform(context, normalize(key)): value.evaluate(context)
                          for key, value in each.items()}
                path = _write_parameter_file({node: {'ros__parameters': values}})
            else:
                path = perform(context, each)
                if not os.path.isfile(path):
                    get_logger('launch_ros.actions.node').warning(
                        f'Parameter file path is not a file: {path}')
                    continue
            cmd += ['--params-file', path]
        for old, new in self._remappings:
            cmd += ['-r', f'{perform(context, old)}:={perform(context, new)}']
        return cmd


class PushROSNamespace(Action):
    """Puts the nodes after it, in the same scope, into a namespace."""

    def __init__(self, namespace: SomeSubstitutionsType) -> None:
        self._namespace = normalize(namespace)

    def execute(self, context: LaunchContext) -> None:
        configurations = context.launch_configurations
        configurations['ros_namespace'] = _join_namespaces(
            configurations.get('ros_namespace', ''), perform(context, self._namespace))


def _join_namespaces(base: str, namespace: str) -> str:
    """Return the absolute namespace of one below another; raise ValueError for a wrong name."""
    if not namespace.startswith('/'):
        namespace = f'{base.rstrip("/")}/{namespace}'
    namespace = namespace.rstrip('/') or '/'
    if namespace != '/' and not all(map(_NAME.fullmatch, namespace.split('/')[1:])):
        raise ValueError(f"Invalid namespace '{namespace}'")
    return namespace


def _parameter(value: Any) -> ParameterValue:
    return value if isinstance(value, ParameterValue) else ParameterValue(value)


def _path(value: Any) -> Any:
    return normalize(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _write_parameter_file(content: dict[str, Any]) -> str:
    """Write a parameter file, which is removed when the launch ends; return its path."""
    folder = _temporary_folder()
    # A process may have cleared the folder of temporary files.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix='launch_params_', dir=folder)
    Path(path).write_text(yaml.safe_dump(content), encoding='utf-8')
    os.close(handle)
    return path


@functools.cache
def _temporary_folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix='launch_params_')
    atexit.register(folder.cleanup)
    return folder.name
