"""Actions that set something for all nodes that come after them in the same scope."""

from __future__ import annotations

import os
from typing import Any

from launch.action import Action
from launch.launch_context import LaunchContext
from launch.logging import logging_directory
from launch.some_substitutions_type import SomeSubstitutionsType
from launch.substitutions import SubstitutionFailure
from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions

from ..ros_adapters import get_ros_node
from ..utilities.names import make_namespace_absolute, prefix_namespace, validate_namespace
from ..utilities.parameters import evaluate, flatten


def _add(context: LaunchContext, name: str, items: list[Any]) -> None:
    """Extend a list among the configurations, leaving that of an outer scope as it is."""
    configurations = context.launch_configurations
    configurations[name] = [*configurations.get(name, ()), *items]


class PushROSNamespace(Action):
    """Puts nodes into a namespace."""

    def __init__(self, namespace: SomeSubstitutionsType, **kwargs: Any) -> None:
        """Keep the namespace."""
        super().__init__(**kwargs)
        self.namespace = normalize_to_list_of_substitutions(namespace)

    def execute(self, context: LaunchContext) -> None:
        """Put the namespace into the one that holds so far."""
        pushed = perform_substitutions(context, self.namespace)
        previous = context.launch_configurations.get('ros_namespace')
        namespace = make_namespace_absolute(prefix_namespace(previous, pushed)) or '/'
        try:
            validate_namespace(namespace)
        except ValueError as error:
            raise SubstitutionFailure(
                'The resulting namespace is invalid: '
                f"[previous_namespace='{previous}', pushed_namespace='{pushed}']"
            ) from error
        context.launch_configurations['ros_namespace'] = namespace


PushRosNamespace = PushROSNamespace


class SetParameter(Action):
    """Gives nodes a parameter."""

    def __init__(self, name: SomeSubstitutionsType, value: Any, **kwargs: Any) -> None:
        """Keep the name and the value."""
        super().__init__(**kwargs)
        self._parameters = flatten({tuple(normalize_to_list_of_substitutions(name)): value})

    @property
    def name(self) -> Any:
        """The name of the parameter, as substitutions."""
        return self._parameters[0][0]

    @property
    def value(self) -> Any:
        """The value of the parameter, not worked out."""
        return self._parameters[0][1]

    def execute(self, context: LaunchContext) -> None:
        """Work the value out now, and give it to the nodes to come."""
        _add(context, 'global_params', list(evaluate(context, self._parameters).items()))


class SetParametersFromFile(Action):
    """Gives nodes a parameter file."""

    def __init__(self, filename: SomeSubstitutionsType, **kwargs: Any) -> None:
        """Keep the path."""
        super().__init__(**kwargs)
        self._filename = normalize_to_list_of_substitutions(filename)

    def execute(self, context: LaunchContext) -> None:
        """Give the file to the nodes to come."""
        _add(context, 'global_params', [perform_substitutions(context, self._filename)])


class SetRemap(Action):
    """Gives nodes a remap rule."""

    def __init__(
        self, src: SomeSubstitutionsType, dst: SomeSubstitutionsType, **kwargs: Any
    ) -> None:
        """Keep the two names."""
        super().__init__(**kwargs)
        self.src = normalize_to_list_of_substitutions(src)
        self.dst = normalize_to_list_of_substitutions(dst)

    def execute(self, context: LaunchContext) -> None:
        """Give the rule to the nodes to come."""
        rule = tuple(perform_substitutions(context, side) for side in (self.src, self.dst))
        _add(context, 'ros_remaps', [rule])


class SetUseSimTime(Action):
    """Sets `use_sim_time` of the node that the launch itself has; use SetParameter for others."""

    def __init__(self, value: bool, **kwargs: Any) -> None:
        """Keep the value."""
        super().__init__(**kwargs)
        self.value = value

    def execute(self, context: LaunchContext) -> None:
        """Set the parameter."""
        from rclpy.parameter import Parameter

        parameter = Parameter('use_sim_time', Parameter.Type.BOOL, self.value)
        get_ros_node(context).set_parameters([parameter])


class SetROSLogDir(Action):
    """Has nodes write their log files below another directory."""

    def __init__(self, new_log_dir: SomeSubstitutionsType, **kwargs: Any) -> None:
        """Keep the directory, which may be relative to the present one."""
        super().__init__(**kwargs)
        self.log_dir = normalize_to_list_of_substitutions(new_log_dir)

    def execute(self, context: LaunchContext) -> None:
        """Set the environment variable that nodes look at."""
        directory = perform_substitutions(context, self.log_dir)
        context.environment['ROS_LOG_DIR'] = os.path.join(logging_directory(), directory)
