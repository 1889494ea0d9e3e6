"""Nodes in the process of the test: the fixture ``node_here``."""

from __future__ import annotations

import contextlib
import threading
from unittest.mock import patch

import pytest
import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions


class NodeHere:
    """A node that does its work in a thread of this process, as its executable would."""

    def __init__(self, make, parameters, read):
        self._read = read
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._error: BaseException | None = None
        self.node = None
        #: The exit status of the work, once it has ended.
        self.status: int | None = None
        self._thread = threading.Thread(target=self._run, args=(make, parameters))
        self._thread.start()
        self._begun.wait()
        if self.node is None:
            self._thread.join()
            raise self._error

    def _run(self, make, parameters):
        try:
            words = [word for each in parameters for word in ('-p', each)]
            # Here and not in the test's thread: a context of OpenGL belongs to one.
            with patch.dict(Node.__init__.__kwdefaults__, cli_args=['--ros-args', *words]):
                self.node = make()
            self._begun.set()
            self.status = self.node.run(self._stop)
        except BaseException as error:
            self._error = error
        finally:
            self._begun.set()

    @property
    def output(self) -> str:
        """What this process has printed since the test began."""
        return self._read()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait until the work has ended by itself."""
        self._thread.join()

    def interrupt(self) -> None:
        """Let the work end, as SIGINT does."""
        self._stop.set()

    def end(self) -> int | None:
        """End the node; return its status, or raise what its work has raised."""
        self._stop.set()
        self._thread.join()
        if self.node is not None:
            self.node.destroy_node()
            self.node = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self.status


@pytest.fixture
def node_here(ros_domain, printed):
    """
    Return a function that starts a node in this process, with the parameters ``name:=value``.

    All nodes end with the test.
    """
    with contextlib.ExitStack() as ends:
        ends.callback(rclpy.try_shutdown)

        def start(make, *parameters):
            if not rclpy.ok():
                rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
            running = NodeHere(make, parameters, printed)
            ends.callback(running.end)
            return running

        yield start
