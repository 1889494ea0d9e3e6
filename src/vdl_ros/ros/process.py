"""The process of a node: memory, signals, settings, executor and exit status."""

import argparse
import contextlib
import ctypes
import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import rclpy
from rclpy._rclpy_pybind11 import RCLError, RCLInvalidROSArgsError
from rclpy.context import Context
from rclpy.executors import Executor
from rclpy.experimental import EventsExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future
from rclpy.utilities import get_default_context, remove_ros_args

from vdl_ros import PARENT_PID
from vdl_ros.common.children import MAKING_S, ending_within, take_mark, telling
from vdl_ros.common.command_line import say, signal_at_death_of, stop_on_signals
from vdl_ros.common.settings import Scalar, SettingError, describe, select
from vdl_ros.ros import parameters
from vdl_ros.ros.dds import shared_memory, transport
from vdl_ros.ros.environment import verify_environment
from vdl_ros.ros.node_settings import ProcessConfig

# Of <malloc.h> of glibc: M_MMAP_THRESHOLD with the largest value that it accepts, and
# M_TRIM_THRESHOLD with the freed memory to keep, bytes.
_THRESHOLDS = {-3: 32 << 20, -1: 256 << 20}


def keep_large_blocks() -> None:
    """Make malloc keep freed blocks of megabytes instead of returning them to the kernel.

    Each large message is copied through several blocks of its size. If they are mapped anew, each
    page costs a fault and is zeroed, which takes longer than the copies. Both thresholds are set,
    because setting one disables glibc's dynamic choice of both. Without glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is not None:
        for parameter, value in _THRESHOLDS.items():
            mallopt(parameter, value)


N = TypeVar('N', bound=Node)

EXIT_OK = 0
EXIT_BAD_INPUT = 2  # a restart does not help, nor after EXIT_DISK: launch files end the launch
EXIT_RESTART = 4  # another process failed that this one depends on: launch files restart this one

# Linux gives a thread of this niceness 45 / (1024 + 45) of a core beside one of niceness 0.
_NICENESS = 14


def take_settings(node: Node, *classes: type) -> tuple[dict[str, Scalar], ProcessConfig]:
    """Declare a node's parameters: return those of the user by name, and its process's settings.

    A node started by a launch file also ends with the launch.
    """
    given = parameters.given(node, *classes)
    parameters.declare(node, given, *classes)
    process = select(ProcessConfig, given)
    if process.launch_id:
        die_with_parent()
    return given, process


def split_words(
    parser: argparse.ArgumentParser, args: Sequence[str] | None,
) -> tuple[argparse.Namespace, list[str]]:
    """Return a node's own options, and its ROS arguments, which follow; None: of the process."""
    words = list(sys.argv[1:] if args is None else args)
    count = words.index('--ros-args') if '--ros-args' in words else len(words)
    return parser.parse_args(words[:count]), words[count:]


def state_folder() -> Path:
    """Return the folder of what survives a process."""
    return Path(os.environ.get('ROS_HOME') or Path.home() / '.ros') / 'vdl_ros'


def state_file(node: Node, kind: str, name: str) -> Path:
    """Return the file of what survives a process, for one full name of ``node``'s domain."""
    name = name.strip('/').replace('/', '.')
    return state_folder() / kind / f'{node.context.get_domain_id()}.{name}.json'


def make_executor(context: Context | None = None) -> Executor:
    was_enabled = faulthandler.is_enabled()
    executor = EventsExecutor(context=context)
    if not was_enabled:
        # It enables that, which takes signals from a Java machine of an environment.
        faulthandler.disable()
    return executor


def call_back(executor: Executor, timeout: float) -> None:
    """Run the callbacks of what has arrived; first wait up to ``timeout`` s if it is > 0.

    For a thread with other work between two calls. ``spin_once`` would fall behind if more than
    one message arrives in between: the events executor handles events in order, including those of
    messages that KEEP_LAST has dropped since, and timers wait behind them.
    """
    if timeout > 0:
        executor.spin_once(timeout_sec=timeout)
    executor.spin_until_future_complete(Future(), timeout_sec=0.0)


def spin_until(
    condition: Callable[[], object], executor: Executor, stop: threading.Event,
    seconds: float = math.inf,
) -> bool:
    """Run callbacks until ``condition`` or ``stop``, at most ``seconds``; return the condition."""
    deadline = time.monotonic() + seconds
    while not (true := condition()) and not stop.is_set() and time.monotonic() < deadline:
        call_back(executor, 0.1)
    return bool(true)


def die_with_parent() -> None:
    """Let the kernel send SIGINT to this process when its parent, a ``ros2 launch``, is killed."""
    signal_at_death_of(PARENT_PID, signal.SIGINT)


def lower_priority() -> None:
    """Leave 96 % of a core to a busy thread of normal priority; call it before threads start."""
    os.nice(_NICENESS)


class Niceness:
    """How much of a core the thread that made it leaves to threads of normal priority."""

    # Linux gives a thread 335 / (1024 + 335) of a core beside one that is less nice by 5.
    _STEP = 5

    def __init__(self) -> None:
        self._normal = os.getpriority(os.PRIO_PROCESS, 0)

    def leave_cores(self, wanted: bool) -> bool:
        """Leave three quarters of a core to a busy thread, or as before; return whether it may."""
        value = min(self._normal + self._STEP * wanted, 19)
        try:
            if value != os.getpriority(os.PRIO_PROCESS, 0):
                os.setpriority(os.PRIO_PROCESS, 0, value)
        except PermissionError:
            # Only root takes back what it has left to others.
            return False
        return True


class _SetUpError(Exception):
    """An input that cannot be used; the message is one line."""


@contextlib.contextmanager
def set_up() -> Iterator[None]:
    """End the process with one line and status 2 at an error of the block by its input.

    That is a ValueError, an OSError, or what ROS refuses, such as keys without DDS Security.

    :func:`run_node` does that while it makes the node; use this for set-up that ``work`` does.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise _SetUpError(str(error)) from error
    except RCLError as error:
        reason = str(error).partition(', at ')[0]
        raise _SetUpError(f'ROS: {" ".join(reason.split())}') from error


def run_node(
    name: str,
    make: Callable[[], N],
    work: Callable[[N, threading.Event], int],
    settings: Sequence[type],
    args: Sequence[str] | None = None,
    ends_within: float = math.inf,
) -> int:
    """Run one node in this process; return the exit status.

    For errors of ``make`` see :func:`set_up`. Those of ``work``, which returns the status, are
    bugs: they end the process with a traceback and status 1, and its launch may start it again.
    ``settings`` are for ``--help``; ``args`` are those of the process by default; ``ends_within``
    is the longest time from a signal to the end, s.
    """
    words = list(sys.argv[1:] if args is None else args)
    try:
        non_ros = remove_ros_args(args=[name, *words])[1:]
    except RCLInvalidROSArgsError as error:
        print(f'{name}: {error}', file=sys.stderr)
        return EXIT_BAD_INPUT
    if non_ros in (['-h'], ['--help']):
        print(f'usage: ros2 run vdl_ros {name} --ros-args -p NAME:=VALUE ...\n\nparameters:\n'
              f'{describe(*settings)}')
        return EXIT_OK
    take_mark()
    node, is_ended = None, threading.Event()
    lines = ['an environment or a library has called rclpy.shutdown(), which ends this node: '
             'its own nodes need a context of their own']
    try:
        # Before all else; rclpy's handlers would end the context before the last message is sent.
        stop = stop_on_signals()

        def end() -> None:
            is_ended.set()
            stop.set()

        with ending_within(ends_within, name, stop):
            with set_up():
                if non_ros:
                    raise SettingError(f'{non_ros[0]!r}: unknown argument; a parameter is set by '
                                       '--ros-args -p name:=value')
                verify_environment()
                shared_memory.clean_stale_shared_memory(ports=False)
                transport.configure()
                keep_large_blocks()
                rclpy.init(args=words, signal_handler_options=SignalHandlerOptions.NO)
                get_default_context().on_shutdown(end)
                # It may import or make an environment, which may never return.
                with telling(f'{name}: joins the graph'), shared_memory.reserved(), ending_within(
                        MAKING_S if math.isinf(ends_within) else math.inf, name, stop):
                    node = make()
            status = work(node, stop)
            if not is_ended.is_set():
                return status
    except _SetUpError as error:
        if not is_ended.is_set():
            lines = str(error).splitlines()
    except Exception:
        # Else a consequence of that call.
        if not is_ended.is_set():
            raise
    finally:
        if node is not None:
            node.destroy_node()
        rclpy.try_shutdown()
    for line in lines:
        say(f'{name}: {line}', sys.stderr)
    return EXIT_BAD_INPUT
