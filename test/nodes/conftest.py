"""Nodes in the process of the test: the fixture ``node_here``."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from unittest.mock import patch

import pytest
import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions


class NodeHere:
    """A node that does its work in a thread of this process, as its executable would."""

    def __init__(self, make, parameters, read):
        self._read, self._stop = read, threading.Event()
        # One thread makes the node and does its work: a context of OpenGL belongs to one.
        self._thread = ThreadPoolExecutor(1)
        self.node = self._thread.submit(self._make, make, parameters).result()
        self._work = self._thread.submit(self.node.run, self._stop)

    @staticmethod
    def _make(make, parameters):
        words = [word for each in parameters
                 for word in ('-r' if each.startswith('__') else '-p', each)]
        with patch.dict(Node.__init__.__kwdefaults__, cli_args=['--ros-args', *words]):
            return make()

    @property
    def output(self) -> str:
        """What this process has printed since the test began."""
        return self._read()

    @property
    def is_running(self) -> bool:
        return not self._work.done()

    def join(self) -> None:
        """Wait until the work has ended by itself."""
        wait([self._work])

    def interrupt(self) -> None:
        """Let the work end, as SIGINT does."""
        self._stop.set()

    def end(self) -> int | None:
        """End the node; return its status, or raise what its work has raised, once."""
        self._stop.set()
        node, self.node = self.node, None
        if node is None:
            return None
        try:
            return self._work.result()
        finally:
            node.destroy_node()
            self._thread.shutdown()


@pytest.fixture
def node_here(ros_domain, printed):
    """Return a function that starts a node in this process, by ``name:=value`` or ``__ns:=``.

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
