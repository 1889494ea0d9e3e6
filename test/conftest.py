"""Fixtures for all tests: a ROS domain each, run folders, ROS peers."""

import contextlib
import csv
import gc
import json
import os
import re
import secrets
import signal
import threading
import time
from pathlib import Path

import counters  # noqa: F401
import fake_owi535 as fake
import pytest
import rclpy
from domain_coordinator import domain_id
from processes import without_shared_memory
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from vdl_ros.common import children, command_line
from vdl_ros.ros import qos
from vdl_ros.ros.dds.shared_memory import stale_shared_memory

pytest_plugins = ['browser', 'fault_rows', 'processes', 'reporter', 'schedule', 'stall_detector',
                  'two_hosts']


@pytest.fixture(autouse=True)
def ros_domain(monkeypatch):
    """Set a ROS domain that no other test and no other host uses."""
    # Random, because other machines in the network may run these tests too.
    with domain_id(lambda: secrets.randbelow(100) + 1) as number:
        remove_ports(number)
        monkeypatch.setenv('ROS_DOMAIN_ID', str(number))
        monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
        yield number


def remove_ports(domain):
    """Remove the shared memory of Fast DDS that processes killed in this domain have left."""
    # Ports of a domain, as DDS numbers them.
    ports = range(7400 + 250 * domain, 7400 + 250 * (domain + 1))

    def is_of_domain(path):
        found = re.search(r'_port(\d+)', path.name)
        return found is not None and int(found[1]) in ports

    if any(map(is_of_domain, Path('/dev/shm').iterdir())):
        for path in filter(is_of_domain, stale_shared_memory()):
            path.unlink(missing_ok=True)


@pytest.fixture
def counters_module(monkeypatch):
    """Return the argument with which processes know the environments of counters.py."""
    folder = Path(__file__).resolve().parent
    monkeypatch.setenv('PYTHONPATH', f'{folder}:{os.environ.get("PYTHONPATH", "")}')
    return 'env_modules:=counters'


@pytest.fixture(autouse=True)
def ros_home(monkeypatch, tmp_path_factory):
    """Keep what drivers remember of an emergency stop out of other tests."""
    monkeypatch.setenv('ROS_HOME', str(tmp_path_factory.mktemp('ros-home')))


@pytest.fixture(autouse=True)
def lines_without_stamps(monkeypatch):
    """Remove timestamps from log lines, so that tests do not match their digits."""
    monkeypatch.setenv('RCUTILS_CONSOLE_OUTPUT_FORMAT', '[{severity}] [{name}]: {message}')


def pytest_configure():
    """Restore the default actions of signals.

    A shell that starts the tests in the background ignores some, and child processes inherit that.
    """
    _default_signals()


def _default_signals():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def pytest_collection_finish():
    """Exclude imported objects from garbage collection, which would pause all threads."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def printed(capfd):
    """Return a function that returns what this process has printed since the test began."""
    def read():
        # capfd.readouterr would lose what another thread prints meanwhile.
        return without_shared_memory(''.join(
            os.pread(number, 1 << 24, 0).decode(errors='replace') for number in (1, 2)))
    return read


@pytest.fixture(autouse=True)
def default_signals():
    """Restore the handlers of signals after a test whose program has installed its own."""
    yield
    command_line._ours.clear()
    _default_signals()


@pytest.fixture
def run_here(capfd, monkeypatch):
    """Return a function that runs a node's main in this process: status and output."""
    # A machine that does much else takes longer to start: no line that it lasts.
    monkeypatch.setattr(children, '_LONG_S', 600.0)
    import torch  # late: it takes a second and few tests need it
    environ, threads = dict(os.environ), torch.get_num_threads()

    def run_main(main, *parameters):
        words = [word for each in parameters for word in ('-p', each)]
        status = main(['--ros-args', *words])
        return status, without_shared_memory(''.join(capfd.readouterr()))

    yield run_main
    os.environ.clear()
    os.environ.update(environ)
    torch.set_num_threads(threads)


@pytest.fixture
def refused(run_here):
    """Return a function that returns the line with which a node refuses its parameters."""
    def line(main, *parameters):
        status, said = run_here(main, *parameters)
        assert status == 2, (parameters, said)
        found, = said.splitlines()
        return found
    return line


class Run:
    """A run folder."""

    def __init__(self, path: Path):
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def summary(self) -> dict:
        return json.loads((self.path / 'summary.json').read_text())

    @property
    def checkpoint(self) -> Path:
        return self.path / 'checkpoint.pt'

    def scalars(self, tag: str) -> list[float]:
        """Return the values of a tag in the event files."""
        # Imported late: it takes a second and few tests need it.
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator(str(self.path))
        events.Reload()
        return [event.value for event in events.Scalars(tag)]

    @property
    def progress(self) -> list[dict[str, str]]:
        """The complete rows of progress.csv."""
        try:
            with (self.path / 'progress.csv').open() as file:
                return [row for row in csv.DictReader(file) if None not in row.values()]
        except FileNotFoundError:
            return []

    @property
    def steps(self) -> int:
        """Agent steps in the last complete row of progress.csv; 0 without rows."""
        try:
            rows = (self.path / 'progress.csv').read_text().split('\n')[1:-1]
        except FileNotFoundError:
            return 0
        return int(rows[-1].split(',')[0]) if rows else 0


@pytest.fixture
def run(tmp_path):
    """Return a run folder that does not exist yet."""
    return Run(tmp_path / 'run')


def end_of(topic, *more):
    """Return type, name and profile, which are given or those of a name in qos.TABLE."""
    return (topic, *more) if more else (qos.TABLE[topic].message, topic, qos.TOPICS[topic])


class Peer:
    """A node of the test, with publishers, subscriptions and service calls."""

    def __init__(self):
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self.node = Node('peer', context=self._context, start_parameter_services=False,
                         enable_rosout=False)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)

    def listen(self, *topic):
        """Return the list of messages; the topic is as for :func:`end_of`."""
        received = []
        kind, name, profile = end_of(*topic)
        self.node.create_subscription(kind, name, received.append, profile)
        return received

    def talk(self, *topic):
        """Return a publisher, once it has a subscriber."""
        publisher = self.node.create_publisher(*end_of(*topic))
        self.until(publisher.get_subscription_count, f'a subscriber of {publisher.topic_name}')
        return publisher

    def call(self, kind, service, request):
        """Return the service's response."""
        client = self.node.create_client(kind, service)
        self.until(client.service_is_ready, service)
        calls = []
        # Repeated: a service that has not discovered this client yet does not respond.
        self.until(lambda: any(each.done() for each in calls), f'a response of {service}',
                   every=10.0, say=lambda: calls.append(client.call_async(request)))
        return next(each.result() for each in calls if each.done())

    def until(self, condition, what, timeout=240.0, every=0.02, say=None):
        """Return the value of ``condition`` once it is true; call ``say`` every ``every`` s."""
        deadline = time.monotonic() + timeout
        due = time.monotonic()
        while not (value := condition()):
            assert time.monotonic() < deadline, (
                f'{what}: not within {timeout:g} s; nodes {self.node.get_node_names()}')
            if say is not None and time.monotonic() >= due:
                due += every
                say()
            self._executor.spin_once(timeout_sec=0.01)
        return value

    @staticmethod
    @contextlib.contextmanager
    def saying(say, every=0.05):
        """Call ``say`` every ``every`` s from a thread during the block."""
        stop = threading.Event()

        def repeat():
            while not stop.wait(every):
                say()

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def close(self):
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)


@pytest.fixture
def peer(ros_domain):
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def bench(monkeypatch):
    """Return a device that is found by the processes of the test."""
    with fake.plugged_in() as bench:
        for name, value in bench.env.items():
            monkeypatch.setenv(name, value)
        yield bench
