"""Nodes as launch files start them: name, parameters, log level, and what their end means."""

import contextlib
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    GroupAction,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    Shutdown,
    TimerAction,
)
from launch.event_handlers import OnProcessExit, OnShutdown
from launch.events.process import ProcessExited
from launch.logging import get_logger
from launch.substitutions import EnvironmentVariable, PathJoinSubstitution
from launch_ros.actions import Node, PushROSNamespace
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackagePrefix

from vdl_ros.common.children import MARK, OWN_MARK, end_left
from vdl_ros.common.command_line import EXIT_DISK
from vdl_ros.common.settings import Scalar, settings_of
from vdl_ros.ros import launch_arguments
from vdl_ros.ros.dds.transport import reaches_other_hosts
from vdl_ros.ros.environment import verify_environment
from vdl_ros.ros.node_settings import BlackBoxConfig, ProcessConfig, RecordConfig
from vdl_ros.ros.process import EXIT_BAD_INPUT, state_folder

# Time for a node to save before it is killed; the default of launch, 10 s, is too short for an
# update of the policy, or for a recorder or a black box with a slow disk.
SAVING_S = '60'

# Nodes that step environments, which may be slow to step and to close, end within 8 s, and what
# Python and DDS do after that: launch would complain after 5.
_CLOSING_S = '12'
_STEPPERS = ('actor', 'evaluate', 'evaluator', 'play', 'policy_renderer')

_RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
# In a namespace an arm has frames and a simulated time of its own, as is usual for robots.
_OWN = ('tf', 'tf_static', 'clock')


def described(
    file: str, arguments: Sequence[DeclareLaunchArgument], settings: Sequence[type],
    start: Callable[[LaunchContext], list[Any]], *, local: bool = False,
) -> LaunchDescription:
    """Return the description of a launch file; one that includes it keeps its own environment.

    ``settings`` are those that a parameter file may have for every node. With ``local`` all nodes
    are on this machine: unless the user says otherwise, no other host discovers them, and shared
    memory is used.
    """
    every = [*arguments, *launch_arguments.EVERY_FILE]

    def check(context: LaunchContext) -> list[Any]:
        verify_environment(context.environment)
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
    """Return a node of this package with ``settings``, of which the user has given some.

    What is given for other nodes is ignored. ``sigterm_timeout``: time to end after SIGINT, s.
    """
    if executable in _STEPPERS:
        sigterm_timeout = _CLOSING_S
    known, name = settings_of(*settings), name or executable
    values = {key: value for key, value in given.items() if key in known}
    values |= launch_arguments.of_node(context, name, *settings)
    return make_node(
        context, executable, name=name, remappings=remappings,
        parameters=[parameters(values | {'launch_id': launch_id} | more)],
        **({} if sigterm_timeout is None else {'sigterm_timeout': sigterm_timeout}))


def make_node(
    context: LaunchContext, executable: str, *, package: str = 'vdl_ros',
    remappings: Sequence[tuple[str, str]] = (), arguments: Sequence[Any] = (),
    from_root: Sequence[str] = (), **options: Any,
) -> Node:
    """Return a node of any package, with log level and frames as in this launch.

    ``from_root`` are names that it has with a slash before them, and that are of the namespace.
    """
    level = context.launch_configurations.get('log_level', launch_arguments.LOG_LEVEL)
    words = [] if level == launch_arguments.LOG_LEVEL else ['--ros-args', '--log-level', level]
    own = [(f'/{name}', name) for name in (*_OWN, *from_root)] \
        if launch_arguments.pushed_namespace(context) else []
    return Node(package=package, executable=executable, output='screen',
                arguments=[*arguments, *words], remappings=[*remappings, *own], **options)


def of_learner(rank: int) -> list[tuple[str, str]]:
    """Return the topic remappings of a learner and of its actors; all share ``policy``."""
    return [(topic, f'learner_{rank}/{topic}')
            for topic in ('trajectories', 'observations', 'actions')] if rank else []


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


def black_box(context: LaunchContext) -> list[Any]:
    """Return the node that keeps the last messages, and is told when another process fails."""
    given = launch_arguments.given(context, BlackBoxConfig, node='black_box')
    if given.get('black_box') == 'none':
        return []
    box = node(context, 'black_box', given, (BlackBoxConfig, ProcessConfig), 'black_box',
               sigterm_timeout=SAVING_S)

    def tell(event: ProcessExited, context: LaunchContext) -> None:
        pid = (box.process_details or {}).get('pid')
        if event.action is not box and event.returncode and pid and not context.is_shutdown:
            # At once: the end of the launch comes next.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)

    return [box, RegisterEventHandler(OnProcessExit(on_exit=tell))]


def end_with(
    event: ProcessExited, context: LaunchContext, *, on_success: bool,
) -> list[Any] | None:
    """Handle the exit of a node that is restarted when it fails; errors end the launch."""
    if context.is_shutdown:
        if on_success and not has_finished(event):
            raise RuntimeError(f'{event.process_name} ended with status {event.returncode} and '
                               'has not saved: what it has learned since its last checkpoint, if '
                               'anything, is lost')
        return None
    if event.returncode == EXIT_BAD_INPUT:
        raise RuntimeError(f'{event.process_name} cannot run: it has logged why above')
    if event.returncode == EXIT_DISK:
        raise RuntimeError(f'{event.process_name} could not write its files: it has logged which '
                           'above')
    if on_success:
        if has_finished(event):
            return [Shutdown(reason=f'{event.process_name} has finished')]
        if event.returncode == 0:
            raise RuntimeError(f'{event.process_name} has not finished')
    return None


def end_all(
    event: ProcessExited, context: LaunchContext, *, asked: bool = False,
) -> list[Any] | None:
    """End the launch when a node exits that all others depend on.

    The launch fails with it; after a Ctrl-C only if it is ``asked`` for a result.
    """
    if not has_finished(event) and (asked or not context.is_shutdown):
        raise RuntimeError(f'{event.process_name} ended with status {event.returncode}')
    return None if context.is_shutdown else [Shutdown(reason=f'{event.process_name} has ended')]


def has_finished(event: ProcessExited) -> bool:
    """Return whether a program has ended with 0; of :func:`with_children` its mark tells it.

    The status of a process may be that of an environment: ``exit(0)`` in the middle of the
    program, or a crash of its destructors after the end.
    """
    mark = (event.env or {}).get(OWN_MARK)
    return event.returncode == 0 if mark is None else os.path.exists(mark)


@cache
def _marks() -> tempfile.TemporaryDirectory[str]:
    # An environment may clear the folder of temporary files; ROS can write here.
    folder = os.path.expanduser(os.environ.get('ROS_LOG_DIR') or state_folder())
    os.makedirs(folder, exist_ok=True)
    return tempfile.TemporaryDirectory(
        prefix='launch_', dir=os.path.abspath(folder), ignore_cleanup_errors=True)


# Who may have sent a signal that ended a process.
_ALARM = 'an alarm that an environment or a library has set and does not handle'
_OF_SIGNALS = {'SIGKILL': 'by somebody, or for want of memory'} | dict.fromkeys(
    ('SIGALRM', 'SIGVTALRM', 'SIGPROF'), _ALARM) | dict.fromkeys(
    ('SIGUSR1', 'SIGUSR2', 'SIGTERM', 'SIGHUP', 'SIGINT'),
    'by somebody, after an environment or a library has undone its handler')


def with_children(process: Any) -> list[Any]:
    """Return the actions that start a process, and that end what it left when it has ended.

    An environment starts simulators and workers, and a process that is killed closes none. An
    environment that exits says nothing, and its status may be 0.
    """
    mark = os.path.join(_marks().name, uuid.uuid4().hex)

    def on_exit(event: ProcessExited, context: LaunchContext) -> list[Any]:
        lines = []
        if event.returncode == 0 and not has_finished(event) and not context.is_shutdown:
            lines.append(f'{event.process_name} ended with status 0 in the middle of its program: '
                         'an environment or a library has called exit()')
        # After the work the alarm is that of run_program, and a crash one of a destructor.
        if event.returncode < 0 and not has_finished(event) and not context.is_shutdown:
            name = signal.Signals(-event.returncode).name
            cause = _OF_SIGNALS.get(
                name, 'as after a crash in native code of an environment or a library')
            lines.append(f'{event.process_name} was ended by {name}, {cause}')
        for line in lines:
            get_logger('launch.user').error(line)
        left = end_left(mark)
        return [LogInfo(msg=f'{event.process_name} {left}')] if left else []

    return [RegisterEventHandler(OnProcessExit(target_action=process, on_exit=on_exit)),
            GroupAction([SetEnvironmentVariable(MARK, mark),
                         SetEnvironmentVariable(OWN_MARK, mark), process])]


def watched(
    processes: Sequence[Any],
    on_exit: Callable[[ProcessExited, LaunchContext], list[Any] | None] = end_all, *,
    start: Callable[[Any], list[Any]] = lambda process: [process],
) -> list[Any]:
    return [*(RegisterEventHandler(OnProcessExit(target_action=each, on_exit=on_exit))
              for each in processes), *(action for each in processes for action in start(each))]


def program(name: str, *words: Any, **options: Any) -> ExecuteProcess:
    path = PathJoinSubstitution([FindPackagePrefix('vdl_ros'), 'lib', 'vdl_ros', name])
    return ExecuteProcess(cmd=[path, *words], name=name, output='screen', **options)


_FIRST_S, _MAX_DELAY_S = 1.0, 32.0
# Without a while of work between them.
_MAX_RESTARTS = 8
_WORK_S = 20.0  # work that makes up for one end, s


class RestartDelays:
    """The delays before the restarts of one process.

    A process that ends now and then is started again after 1 s. For one that ends again and again
    soon after its start the delay doubles, up to 32 s, and the ninth end is the last.
    """

    def __init__(self) -> None:
        self._ends, self.count = 0.0, 0

    def next(self, lived_s: float) -> float | None:
        self._ends = max(self._ends - lived_s / _WORK_S, 0.0) + 1.0
        if self._ends > _MAX_RESTARTS:
            return None
        self.count = int(self._ends)
        return float(min(_FIRST_S * 2.0 ** int(self._ends - 1.0), _MAX_DELAY_S))


def restarted(
    make: Callable[[], Node], *, on_success: bool, needed: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> OpaqueFunction:
    """Return the action that starts a node, and starts it again when it ends.

    The ``respawn`` of ``launch`` has one delay and counts restarts for ever. Status 0 ends the
    launch with ``on_success``, and so does a ``needed`` node that ends again and again.
    """
    delays = RestartDelays()
    # Of the first start: the scope of an including launch file has ended at the others.
    scope: dict[str, Any] = {}
    environment: dict[str, str] = {}
    waiting: list[ProcessExited] = []

    def on_shutdown(event: Any, context: LaunchContext) -> None:
        # What ended last is not started again: it has ended during the shutdown.
        while waiting:
            context.emit_event_sync(waiting.pop())

    def start(context: LaunchContext) -> list[Any]:
        if not environment:
            scope.update(context.launch_configurations)
            environment.update(context.environment)
            context.register_event_handler(OnShutdown(on_shutdown=on_shutdown))
        waiting.clear()
        context.launch_configurations.update(scope)
        context.environment.update(environment)
        node, started = make(), clock()

        def on_exit(event: ProcessExited, context: LaunchContext) -> list[Any] | None:
            ended = end_with(event, context, on_success=on_success)
            if ended or context.is_shutdown:
                return ended
            delay = delays.next(clock() - started)
            if delay is None:
                reason = (f'{event.process_name} ended again and again soon after its start: it '
                          'is not started again')
                if needed:
                    raise RuntimeError(reason)
                return [LogInfo(msg=reason)]
            waiting.append(event)
            return [LogInfo(msg=f'{event.process_name} is started again in {delay:g} s '
                                f'({delays.count} of {_MAX_RESTARTS})'), TimerAction(
                period=delay, actions=[GroupAction([OpaqueFunction(function=start)])],
                cancel_on_shutdown=True)]

        return watched([node], on_exit, start=with_children)

    return OpaqueFunction(function=start)
