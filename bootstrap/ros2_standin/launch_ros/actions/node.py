"""Node: a process that is a ROS node, with its name, parameters and remappings."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from launch.actions import ExecuteProcess
from launch.launch_context import LaunchContext
from launch.logging import get_logger
from launch.some_substitutions_type import SomeSubstitutionsType
from launch.substitution import Substitution
from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions

from ..parameter_descriptions import write_temporary_file
from ..substitutions import ExecutableInPackage
from ..utilities.names import (
    make_namespace_absolute,
    normalize_remap_rules,
    prefix_namespace,
    validate_namespace,
    validate_node_name,
)
from ..utilities.parameters import evaluate_parameters, normalize_parameters, to_command_line


class _Late(Substitution):
    """A text that the node knows once its own substitutions have been performed."""

    def __init__(self, description: str, text: Callable[[], str]) -> None:
        self._description = description
        self._text = text

    def describe(self) -> str:
        return f"LocalVar('{self._description}')"

    def perform(self, context: LaunchContext) -> str:
        return self._text()


class Node(ExecuteProcess):
    """
    Runs an executable of a package with arguments for ROS.

    Parameters that are given as values go to the node in a parameter file of its own, under its
    full name if both the name and the namespace are known, and else for any node in the process.
    """

    UNSPECIFIED_NODE_NAME = '<node_name_unspecified>'
    UNSPECIFIED_NODE_NAMESPACE = '<node_namespace_unspecified>'

    def __init__(
        self,
        *,
        executable: SomeSubstitutionsType,
        package: SomeSubstitutionsType | None = None,
        name: SomeSubstitutionsType | None = None,
        namespace: SomeSubstitutionsType | None = None,
        exec_name: SomeSubstitutionsType | None = None,
        parameters: Any | None = None,
        remappings: Iterable[Any] | None = None,
        ros_arguments: Iterable[SomeSubstitutionsType] | None = None,
        arguments: Iterable[SomeSubstitutionsType] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep everything; without a package the executable is any program."""
        self.node_package = package
        self.node_executable = executable
        cmd: list[Any] = [
            executable if package is None else ExecutableInPackage(executable, package),
            *(arguments or ()),
        ]
        if ros_arguments is not None:
            cmd += ['--ros-args', *ros_arguments]
        cmd.append('--ros-args')
        if name is not None:
            cmd += ['-r', _Late('node name', lambda: f'__node:={self._expanded_name}')]
        super().__init__(cmd=cmd, name=exec_name, **kwargs)
        self._given_name = name
        self._given_namespace = namespace
        self._parameters = normalize_parameters([] if parameters is None else parameters)
        self._remappings = normalize_remap_rules(remappings or ())
        self._expanded_name = self.UNSPECIFIED_NODE_NAME
        self.expanded_node_namespace = self.UNSPECIFIED_NODE_NAMESPACE
        self.expanded_remapping_rules: list[tuple[str, str]] | None = None
        self._node_name: str | None = None

    @property
    def node_name(self) -> str:
        """The full name of the node, once the action was executed."""
        if self._node_name is None:
            raise RuntimeError("cannot access 'node_name' before executing action")
        return self._node_name

    def is_node_name_fully_specified(self) -> bool:
        """Say whether both the name and the namespace of the node are known."""
        return '<' not in self.node_name

    def prepare(self, context: LaunchContext) -> None:
        """Work out the arguments for ROS, and then the command."""
        self.expand_names(context)
        arguments: list[str] = []
        if self.expanded_node_namespace != self.UNSPECIFIED_NODE_NAMESPACE:
            arguments += ['-r', f'__ns:={self.expanded_node_namespace}']
        for item in context.launch_configurations.get('global_params', ()):
            if isinstance(item, tuple):
                arguments += ['-p', f'{item[0]}:={to_command_line(item[1])}']
            else:
                arguments += ['--params-file', _existing_file(item)]
        for item in evaluate_parameters(context, self._parameters):
            arguments += self._parameter_arguments(context, item)
        remappings = list(context.launch_configurations.get('ros_remaps', ()))
        for source, destination in self._remappings:
            remappings.append(
                (
                    perform_substitutions(context, source),
                    perform_substitutions(context, destination),
                )
            )
        self.expanded_remapping_rules = remappings or None
        for source, destination in remappings:
            arguments += ['-r', f'{source}:={destination}']
        self.process_description.cmd += [
            normalize_to_list_of_substitutions(argument) for argument in arguments
        ]
        super().prepare(context)

    def expand_names(self, context: LaunchContext) -> None:
        """Work out the name and the namespace of the node."""
        if self._node_name is not None:
            return
        try:
            if self._given_name is not None:
                parts = normalize_to_list_of_substitutions(self._given_name)
                self._expanded_name = perform_substitutions(context, parts)
                validate_node_name(self._expanded_name)
            namespace = None
            if self._given_namespace is not None:
                parts = normalize_to_list_of_substitutions(self._given_namespace)
                namespace = perform_substitutions(context, parts)
            base = context.launch_configurations.get('ros_namespace')
            namespace = make_namespace_absolute(prefix_namespace(base, namespace))
            if namespace is not None:
                validate_namespace(namespace)
                self.expanded_node_namespace = namespace
        except Exception:
            get_logger('launch_ros.actions.node').error(
                'Error while expanding or validating node name or namespace for '
                f"'package={self.node_package}, executable={self.node_executable}, "
                f"name={self._given_name}, namespace={self._given_namespace}':"
            )
            raise
        self._node_name = prefix_namespace(self.expanded_node_namespace, self._expanded_name)

    def execute(self, context: LaunchContext) -> None:
        """Start the node, and warn if it is not the only one of its name."""
        super().execute(context)
        if self.is_node_name_fully_specified():
            counts = context.get_locals_as_dict().get('unique_ros_node_names')
            if counts is None:
                counts = collections.Counter()
                context.extend_globals({'unique_ros_node_names': counts})
            counts[self.node_name] += 1
            if counts[self.node_name] > 1:
                get_logger(self.name).warning(
                    f'there are now at least {counts[self.node_name]} nodes with the name '
                    f'{self.node_name} created within this launch context'
                )

    def _parameter_arguments(self, context: LaunchContext, item: Any) -> list[str]:
        if isinstance(item, dict):
            node = self.node_name if self.is_node_name_fully_specified() else '/**'
            content = {node: {'ros__parameters': item}}
            text = yaml.safe_dump(content, default_flow_style=False)
            return ['--params-file', str(write_temporary_file(text))]
        if isinstance(item, Path):
            if item.is_file():
                return ['--params-file', str(item)]
            get_logger('launch_ros.actions.node').warning(
                f'Parameter file path is not a file: {item}'
            )
            return []
        name, value = item.evaluate(context)
        return ['-p', f'{name}:={to_command_line(value)}']


def _existing_file(path: str) -> str:
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"SetParametersFromFile: there is no file '{path}'")
    return path
