"""The base of this package's nodes, and their health on ``/diagnostics``."""

import contextlib
import functools
import math
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.executors import Executor
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.service import Service
from rclpy.subscription import Subscription
from rclpy.timer import Timer

from vdl_ros.common.quoting import cause, shown
from vdl_ros.common.settings import Scalar, select
from vdl_ros.ros import qos
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import (
    EXIT_OK,
    lower_priority,
    make_executor,
    run_node,
    spin_until,
    take_settings,
)

_PERIOD_S = 1.0
# Different lines that a node logs of what it refuses, and their length: messages can be of any.
_MAX_LINES, _MAX_LENGTH = 100, 500

# (warning or '', values by name)
Health = tuple[str, Mapping[str, object]]
T = TypeVar('T')


class Diagnostics:
    """Publishes the result of ``check`` each second: level OK, or WARN with a warning."""

    def __init__(self, node: 'BaseNode', check: Callable[[], Health]) -> None:
        self._node, self._check = node, check
        self._publisher = qos.pub(node, '/diagnostics')
        node.every(_PERIOD_S, self._publish, simulated=True)

    def _publish(self) -> None:
        warning, values = self._check()
        message = DiagnosticArray(status=[DiagnosticStatus(
            level=DiagnosticStatus.WARN if warning else DiagnosticStatus.OK,
            name=self._node.get_fully_qualified_name(), message=warning or 'ok',
            hardware_id='', values=[KeyValue(key=key, value=str(value))
                                    for key, value in values.items()])])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)


class BaseNode(Node):
    """A node with the settings of its user, ``given`` by name; :meth:`main` is its program.

    A message or a request ends no process: what its callback raises is refused
    (:meth:`refusing`). An error of a timer is a bug, and ends the process as one of :meth:`work`.
    """

    NAME: ClassVar[str]
    #: Dataclasses of its parameters, besides :class:`ProcessConfig`.
    SETTINGS: ClassVar[tuple[type, ...]] = ()
    #: Whether it only shows a training, and must not slow it down.
    IS_BACKGROUND: ClassVar[bool] = False
    #: Longest time from a signal to its end, s: of nodes that step environments, which may never
    #: return. Before the launch asks again, 12 s after a Ctrl-C (``ros/launch_nodes.py``).
    ENDS_WITHIN_S: ClassVar[float] = math.inf
    #: Whether a bug in a callback ends it: a driver does not know what its motors do then.
    ENDS_BY_BUGS: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(self.NAME)
        self.given = self.take_settings()
        self.refused = 0
        self._refusals: set[str] = set()

    def take_settings(self) -> dict[str, Scalar]:
        return take_settings(self, *self.SETTINGS, ProcessConfig)[0]

    def settings(self, kind: type[T]) -> T:
        return select(kind, self.given)

    def pub(self, topic: str) -> Publisher:
        return qos.pub(self, topic)

    def sub(
        self, topic: str, callback: Callable[[Any], None], profile: QoSProfile | None = None,
    ) -> Subscription:
        return qos.sub(self, topic, callback, profile)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., Any], *args: Any, **options: Any,
    ) -> Subscription:
        return super().create_subscription(
            msg_type, topic, self._bordered(topic, callback), *args, **options)

    def create_service(
        self, srv_type: Any, srv_name: str, callback: Callable[..., Any], *args: Any,
        **options: Any,
    ) -> Service:
        return super().create_service(
            srv_type, srv_name, self._bordered(srv_name, callback), *args, **options)

    def _bordered(self, what: str, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``callback`` without its errors; after one it returns its last argument.

        That is the response of a service as it was, which reports no success.
        """
        @functools.wraps(callback)
        def call(*args: Any) -> Any:
            with self.refusing(what):
                return callback(*args)
            return args[-1]

        return call

    @property
    def is_simulated(self) -> bool:
        return bool(self.get_parameter('use_sim_time').value)

    def every(
        self, seconds: float, callback: Callable[[], object], *, simulated: bool = False,
    ) -> Timer:
        """Call back by the steady clock, or with ``simulated`` by the node's if that is simulated.

        A timer of the system's clock would pause when that is set back.
        """
        clock = (self.get_clock() if simulated and self.is_simulated
                 else Clock(clock_type=ClockType.STEADY_TIME))
        return self.create_timer(seconds, callback, clock=clock)

    @property
    def unique_name(self) -> str:
        """A name that no other node has, also of other hosts."""
        return f'{socket.gethostname()}{self.get_fully_qualified_name()}_{os.getpid()}'

    def now(self) -> float:
        return float(self.get_clock().now().nanoseconds * 1e-9)

    def stamp(self) -> Time:
        return self.get_clock().now().to_msg()

    def refuse(self, line: str, trace: str = '') -> None:
        """Count a message that cannot be used; log each line once, with the trace of a bug."""
        self.refused += 1
        line = shown(line, _MAX_LENGTH)
        if line not in self._refusals and len(self._refusals) < _MAX_LINES:
            self._refusals.add(line)
            self.get_logger().error(line + trace)

    @contextlib.contextmanager
    def refusing(self, what: str) -> Iterator[None]:
        """Refuse a message for the error of a block; one that is no ValueError is a bug."""
        try:
            yield
        except ValueError as error:
            self.refuse(f'{what} refused: {error}')
        except Exception as error:
            if self.ENDS_BY_BUGS:
                raise
            # First: writing a line to a terminal can block.
            self.make_safe()
            # Without the error's text, which may hold parts of the message.
            frames = ''.join(traceback.format_tb(error.__traceback__))
            self.refuse(f'{what} refused: {cause(error)}',
                        f'\nTraceback (most recent call last):\n{frames}')

    def make_safe(self) -> None:
        """Switch off the motors that the node has switched on: a callback has failed by a bug."""

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Run callbacks, and whatever else it does, until ``stop``; return the exit status."""
        spin_until(lambda: False, executor, stop)
        return EXIT_OK

    def stop(self) -> None:
        """End what the node has begun; called after :meth:`work`, also after an error in it."""

    def run(self, stop: threading.Event) -> int:
        executor = make_executor()
        executor.add_node(self)
        try:
            return self.work(executor, stop)
        finally:
            self.stop()
            executor.remove_node(self)

    @classmethod
    def main(cls, args: Sequence[str] | None = None, *options: Any) -> int:
        """Run the node, made with ``options``, in this process; return the exit status."""
        if cls.IS_BACKGROUND:
            lower_priority()
        return run_node(cls.NAME, lambda: cls(*options), cls.run,
                        (*cls.SETTINGS, ProcessConfig), args, cls.ENDS_WITHIN_S)
