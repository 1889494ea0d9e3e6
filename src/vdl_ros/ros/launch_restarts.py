"""A node that its launch starts again when it fails, with delays that grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from launch import LaunchContext
from launch.actions import (
    GroupAction,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit
from launch.events.process import ProcessExited
from launch_ros.actions import Node

from vdl_ros.ros.launch_nodes import end_with
from vdl_ros.ros.restart_delays import RestartDelays

__all__ = ['restarted']


def restarted(
    make: Callable[[], Node], *, on_success: bool, needed: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> OpaqueFunction:
    """
    Return the action that starts a node, and starts it again when it ends.

    The ``respawn`` of ``launch`` has one delay and counts restarts for ever.

    Args:
        make: returns the node's action; called for every start.
        on_success: whether status 0 ends the launch.
        needed: whether the launch ends if the node ends again and again.
        clock: time, s.
    """
    delays = RestartDelays()
    # Of the first start: the scope of an including launch file has ended at the others.
    scope: dict[str, Any] = {}
    environment: dict[str, str] = {}

    def start(context: LaunchContext) -> list[Any]:
        if not environment:
            scope.update(context.launch_configurations)
            environment.update(context.environment)
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
            return [TimerAction(
                period=delay, actions=[GroupAction([OpaqueFunction(function=start)])],
                cancel_on_shutdown=True)]

        return [RegisterEventHandler(OnProcessExit(target_action=node, on_exit=on_exit)), node]

    return OpaqueFunction(function=start)
