"""
Launch arguments declared from settings, and the node parameters made from them.

Arguments that the user does not set are not passed to the node, so that a preset or a resumed run
can set them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch import LaunchContext
from launch.actions import DeclareLaunchArgument, LogInfo, Shutdown
from launch.events.process import ProcessExited
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from vdl_ros.common.settings import Scalar, SettingError, as_text, settings_of, suggestion
from vdl_ros.config_file import read_config
from vdl_ros.ros.dds.transport import reaches_other_hosts
from vdl_ros.ros.process import EXIT_BAD_INPUT
from vdl_ros.ros.process_config import ProcessConfig

__all__ = [
    'CONFIG', 'RECORD', 'SAVING_S', 'announced', 'declare', 'end_all', 'end_with', 'given', 'node',
    'of_learner', 'parameters', 'recorder', 'reject_unknown_arguments',
]

RECORD = DeclareLaunchArgument(
    'record', default_value='',
    description='Record every topic to this bag, a folder that must not exist; empty: no bag.')

CONFIG = DeclareLaunchArgument(
    'config', default_value='',
    description='YAML file with settings by name, such as the config.yaml of a run; the arguments '
                'that are given override it. It names env_modules too: use files that you trust.')

# Time for a node to save before it is killed; the default of launch, 10 s, is too short for an
# update of the policy, or for a recorder with a slow disk.
SAVING_S = '60'

# Not for users; see ProcessConfig.
_HIDDEN = ('launch_id',)


def declare(*classes: type) -> list[DeclareLaunchArgument]:
    """Return one launch argument per setting, with description, range and default."""
    return [
        DeclareLaunchArgument(
            name, default_value=as_text(setting.default),
            description=f'{setting.doc} ({setting.allowed}'
                        f'{"; " + setting.unit if setting.unit else ""})')
        for name, setting in settings_of(*classes).items() if name not in _HIDDEN]


def given(context: LaunchContext, *classes: type) -> dict[str, Scalar]:
    """
    Return the settings that the command line, an including launch file or ``config`` sets.

    Raises:
        SettingError: an invalid value, or a file that cannot be read.
    """
    config = context.launch_configurations.get('config', '')
    in_file = read_config(Path(config), ProcessConfig) if config else {}
    on_command_line = {word.split(':=', 1)[0] for word in context.argv if ':=' in word}
    found = {}
    for name, setting in settings_of(*classes).items():
        text = context.launch_configurations.get(name)
        if name in _HIDDEN or text is None:
            continue
        if name in on_command_line or text != as_text(setting.default):
            found[name] = setting.parse(text)
        elif name in in_file:
            found[name] = setting.check(in_file[name])
    return found


def parameters(given: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return node parameters; launch would read a text as YAML, and one of JSON as a mapping."""
    return {name: ParameterValue(value, value_type=str) if isinstance(value, str) else value
            for name, value in given.items()}


def node(
    name: str, given: Mapping[str, Scalar], settings: Sequence[type], launch_id: str, *,
    node_name: str = '', remappings: Sequence[tuple[str, str]] = (), **more: Any,
) -> Node:
    """
    Return a node of this package.

    Args:
        name: of the executable, and of the node unless ``node_name`` is set.
        given: settings of the user; those that the node does not have are ignored.
        settings: dataclasses of the node's settings.
        launch_id: see ProcessConfig.
        node_name: of the node.
        remappings: of its topics.
        more: further parameters.
    """
    known = settings_of(*settings)
    return Node(
        package='vdl_ros', executable=name, name=node_name or name, output='screen',
        remappings=list(remappings),
        parameters=[{key: value for key, value in given.items() if key in known}
                    | {'launch_id': launch_id} | more])


def of_learner(rank: int) -> list[tuple[str, str]]:
    """
    Return the topic remappings of the learner ``rank`` and of its actors.

    Learner 0 keeps the names of a single learner. All learners share ``policy``.
    """
    if rank == 0:
        return []
    return [(topic, f'learner_{rank}/{topic}')
            for topic in ('trajectories', 'observations', 'actions')]


def reject_unknown_arguments(context: LaunchContext, file: str, known: Sequence[str]) -> None:
    """
    Raise an error for an unknown launch argument, which ``ros2 launch`` would ignore.

    Args:
        context: of the launch.
        file: name of the launch file; nothing is checked if another file includes it, because
            that file has other arguments.
        known: names of its arguments.

    Raises:
        SettingError: an argument that the file does not have.
    """
    if not any(word.rsplit('/', 1)[-1] == file for word in sys.argv):
        return
    for word in context.argv:
        name = word.split(':=', 1)[0]
        if ':=' in word and name not in known:
            raise SettingError(f'{name}: no such argument of {file}{suggestion(name, known)}')


def announced(context: LaunchContext) -> list[LogInfo]:
    """Return a line for the log if other hosts can discover the nodes of this launch."""
    if not reaches_other_hosts(context.environment):
        return []
    return [LogInfo(msg='announced to the network: every host of it can send to these nodes; '
                        'to close it: export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST')]


def recorder(context: LaunchContext) -> list[Node]:
    """Return a recorder node if the argument ``record`` is set."""
    path = context.launch_configurations.get('record', '')
    if not path:
        return []
    return [Node(package='vdl_ros', executable='recorder', name='recorder', output='screen',
                 parameters=[{'output': path, 'launch_id': 'recorder'}],
                 sigterm_timeout=SAVING_S)]


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
        raise RuntimeError(f'{event.process_name} cannot run with these settings')
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
