"""Nodes as launch files start them: name, parameters, log level, and what their end means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    GroupAction,
    LogInfo,
    OpaqueFunction,
    SetEnvironmentVariable,
    Shutdown,
)
from launch.events.process import ProcessExited
from launch.substitutions import EnvironmentVariable
from launch_ros.actions import Node, PushROSNamespace
from launch_ros.parameter_descriptions import ParameterValue

from vdl_ros.common.settings import Scalar, settings_of
from vdl_ros.ros import launch_arguments
from vdl_ros.ros.bags.recording_config import RecordConfig
from vdl_ros.ros.dds.transport import reaches_other_hosts
from vdl_ros.ros.process import EXIT_BAD_INPUT
from vdl_ros.ros.process_config import ProcessConfig

__all__ = [
    'SAVING_S', 'announced', 'described', 'end_all', 'end_with', 'make_node', 'node',
    'of_learner', 'parameters', 'recorder',
]

# Time for a node to save before it is killed; the default of launch, 10 s, is too short for an
# update of the policy, or for a recorder with a slow disk.
SAVING_S = '60'

_RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
# In a namespace an arm has frames and a simulated time of its own, as is usual for robots.
_OWN = [(f'/{name}', name) for name in ('tf', 'tf_static', 'clock')]


def described(
    file: str, arguments: Sequence[DeclareLaunchArgument], settings: Sequence[type],
    start: Callable[[LaunchContext], list[Any]], *, local: bool = False,
) -> LaunchDescription:
    """
    Return the description of a launch file; namespace and environment end with it.

    So a launch file that includes it keeps its own.

    Args:
        file: name of the launch file.
        arguments: of the file, besides those of every launch file.
        settings: dataclasses of the settings that a parameter file may have for every node.
        start: returns the actions; called with the context.
        local: whether all nodes are on this machine: then, unless the user says otherwise, no
            other host discovers them, and shared memory is used.
    """
    every = [*arguments, *launch_arguments.EVERY_FILE]

    def check(context: LaunchContext) -> list[Any]:
        launch_arguments.reject_unknown_arguments(
            context, file, [each.name for each in every], *settings)
        namespace = launch_arguments.namespace(context)
        return [PushROSNamespace(namespace)] if namespace else []

    discovery = [SetEnvironmentVariable(
        _RANGE, EnvironmentVariable(_RANGE, default_value='LOCALHOST'))] if local else []
    return LaunchDescription([*every, GroupAction([
        OpaqueFunction(function=check), *discovery,
        SetEnvironmentVariable('RCUTILS_CONSOLE_OUTPUT_FORMAT', '[{severity}] {message}'),
        OpaqueFunction(function=start),
    ])])


def parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return node parameters; launch would read a text as YAML, and one of JSON as a mapping."""
    return {name: ParameterValue(value, value_type=str) if isinstance(value, str) else value
            for name, value in given.items()}


def node(
    context: LaunchContext, executable: str, given: Mapping[str, Scalar],
    settings: Sequence[type], launch_id: str, *, name: str = '',
    remappings: Sequence[tuple[str, str]] = (), sigterm_timeout: str | None = None, **more: Any,
) -> Node:
    """
    Return a node of this package.

    Args:
        context: of the launch.
        executable: its name, also of the node unless ``name`` is set.
        given: settings of the user; those that the node does not have are ignored.
        settings: dataclasses of the node's settings.
        launch_id: see ProcessConfig.
        name: of the node.
        remappings: of its topics.
        sigterm_timeout: time to end after SIGINT, s; None: that of launch.
        more: further parameters.

    Raises:
        SettingError: the parameter file has something for this node that it cannot have.
    """
    known = settings_of(*settings)
    values = {key: value for key, value in given.items() if key in known}
    values |= launch_arguments.of_node(context, name or executable, *settings)
    return make_node(
        context, executable, name=name or executable, remappings=remappings,
        parameters=[parameters(values | {'launch_id': launch_id} | more)],
        **({} if sigterm_timeout is None else {'sigterm_timeout': sigterm_timeout}))


def make_node(
    context: LaunchContext, executable: str, *, package: str = 'vdl_ros',
    remappings: Sequence[tuple[str, str]] = (), arguments: Sequence[Any] = (), **options: Any,
) -> Node:
    """Return a node of any package, with log level and frames as in this launch."""
    level = context.launch_configurations.get('log_level', launch_arguments.LOG_LEVEL)
    words = [] if level == launch_arguments.LOG_LEVEL else ['--ros-args', '--log-level', level]
    own = _OWN if launch_arguments.pushed_namespace(context) else []
    return Node(package=package, executable=executable, output='screen',
                arguments=[*arguments, *words], remappings=[*remappings, *own], **options)


def of_learner(rank: int) -> list[tuple[str, str]]:
    """
    Return the topic remappings of the learner ``rank`` and of its actors.

    Learner 0 keeps the names of a single learner. All learners share ``policy``.
    """
    if rank == 0:
        return []
    return [(topic, f'learner_{rank}/{topic}')
            for topic in ('trajectories', 'observations', 'actions')]


def announced(context: LaunchContext) -> list[LogInfo]:
    """Return a line for the log if other hosts can discover the nodes of this launch."""
    environment = context.environment
    if not reaches_other_hosts(environment):
        return []
    if server := environment.get('ROS_DISCOVERY_SERVER'):
        return [LogInfo(msg=f'announced to {server} (ROS_DISCOVERY_SERVER): every host that asks '
                            'this server can send to these nodes')]
    scope = environment.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '').upper()
    if scope == 'LOCALHOST':
        return [LogInfo(msg=f'announced to {environment["ROS_STATIC_PEERS"]} (ROS_STATIC_PEERS): '
                            'these hosts can send to these nodes')]
    close = '; to close it: export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST'
    return [LogInfo(msg='announced to the network: every host of it can send to these nodes'
                        + ('' if scope else close))]


def recorder(context: LaunchContext) -> list[Node]:
    """Return a recorder if the argument ``record`` is set; in a namespace, of its topics."""
    path = context.launch_configurations.get('record', '')
    if not path:
        return []
    namespace = launch_arguments.pushed_namespace(context)
    topics = {'topics': f'{namespace}/*,/statistics,/diagnostics'} if namespace else {}
    return [node(context, 'recorder', {'output': path, **topics}, (RecordConfig, ProcessConfig),
                 'recorder', sigterm_timeout=SAVING_S)]


def end_with(
    event: ProcessExited, context: LaunchContext, *, on_success: bool,
) -> list[Any] | None:
    """
    Handle the exit of a node that is restarted when it fails.

    Args:
        event: the exit.
        context: of the launch.
        on_success: whether status 0 ends the launch.

    Raises:
        RuntimeError: the node rejected its settings; the launch ends with status 1.
    """
    if context.is_shutdown:
        return None
    if event.returncode == EXIT_BAD_INPUT:
        raise RuntimeError(f'{event.process_name} cannot run with these settings: it has '
                           'logged which above')
    if event.returncode == 0 and on_success:
        return [Shutdown(reason=f'{event.process_name} has finished')]
    return None


def end_all(event: ProcessExited, context: LaunchContext) -> list[Any] | None:
    """
    End the launch when a node exits that all others depend on.

    Raises:
        RuntimeError: its status is not 0; the launch ends with status 1.
    """
    if context.is_shutdown:
        return None
    if event.returncode:
        raise RuntimeError(f'{event.process_name} ended with status {event.returncode}')
    return [Shutdown(reason=f'{event.process_name} has ended')]
