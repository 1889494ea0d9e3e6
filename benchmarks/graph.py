"""Processes of benchmarks: commands that end with a block, and trainings held at a steady speed.

Local training, the launched graph and other systems are measured in the same way, started as a
user does: speed from rows of progress once all take part, then they are interrupted.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage

from vdl_ros.common.metrics import ACTING, PHASES
from vdl_ros.ros import qos
from vdl_ros.ros.dds import transport
from vdl_ros.ros.statistics.statistics import Share, read

# Launch kills nodes that exceed their time 5 s later, then it ends, s.
_ENDING_S = 20.0
_LAST_LINES = 20
# Time until the first update, for each further process, and beyond the measurement.
_START_S, _START_EACH_S, _PATIENCE_S = 60.0, 30.0, 60.0
# Large networks make few updates a minute.
_TRIALS_S = 900.0
_POLL_S = 0.05
# Never reached: the run is interrupted.
_ENDLESS = {'total_steps': '1000000000000', 'stop_at_return': '1e9'}

Rows = list[tuple[float, float]]


@contextmanager
def own_domain(*, configure: bool = False) -> Iterator[str]:
    """Give this process and its children a ROS domain that no one else on this host uses.

    Args:
        configure: apply the package's DDS profile to this process; its name is yielded.
    """
    from domain_coordinator import domain_id

    with domain_id() as number:
        os.environ |= {'ROS_DOMAIN_ID': str(number), 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
        try:
            name = transport.configure().name if configure else ''
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        yield name


def module_command(module: str, *words: str) -> list[str]:
    """Return the command that calls ``main()`` of a module of this package with these words."""
    # Not -m: a folder benchmarks in the working directory would come first.
    root = str(Path(__file__).absolute().parents[1])
    return [sys.executable, '-c', f'import sys; sys.path[:0] = [{root!r}]; '
            f'from {module} import main; sys.exit(main())', *words]


def memory_mb(process: psutil.Process) -> float:
    """Return the memory of a process in MB; of pages that others use too, its share (PSS)."""
    return float(process.memory_full_info().pss) / 1e6


class _EndedError(Exception):
    """A command has ended while something of it was waited for."""


@contextmanager
def launched(
    *command: str, core: int | None = None, log: Path | None = None, may_end: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the block runs, then interrupt it as Ctrl-C does.

    Args:
        core: the one core that it and its children may use; any by default.
        log: file for what it prints; a temporary one by default.
        may_end: it may end by itself, with status 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = log or Path(folder) / 'log'
        process = None
        try:
            # An interrupt in between would leave a process that is never ended.
            with log.open('wb') as stream, delayed_interrupts():
                process = subprocess.Popen(
                    command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}))
            with contextlib.suppress(_EndedError):
                yield process
            if process.poll() is not None and (process.returncode or not may_end):
                lines = log.read_text(errors='replace').splitlines()[-_LAST_LINES:]
                raise RuntimeError('\n'.join([f'{command[0]} ended:', *lines]))
        finally:
            if process is not None:
                with delayed_interrupts():
                    _end(process)


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM at the end of the block."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda each, _: received.append(each))
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in dict.fromkeys(received):
            signal.raise_signal(each)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process group; kill it if it outlives the time that launch grants its nodes."""
    from vdl_ros.ros.launch_nodes import SAVING_S
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(float(SAVING_S) + _ENDING_S)
            return
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue


def wait(process: subprocess.Popen[bytes], condition: Callable[[], Any], seconds: float,
         what: str) -> None:
    """Wait within a block of :func:`launched`, which reports a command that ends meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            raise _EndedError
        if time.monotonic() > deadline:
            raise RuntimeError(f'{what}: not within {seconds:g} s')
        time.sleep(_POLL_S)
    if process.poll() is not None:
        raise _EndedError


class TooFewRowsError(ValueError):
    """Progress of a run is too short to measure its speed."""


def progress_rows(folder: Path) -> Rows:
    """Return (wall time in s, agent steps) of each whole line of a run's progress.csv."""
    try:
        text = (folder / 'progress.csv').read_text()
    except FileNotFoundError:
        return []
    rows = []
    for line in csv.DictReader(io.StringIO(text[:text.rfind('\n') + 1])):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            rows.append((float(line['wall_s']), float(line['agent_steps'])))
    return rows


def steady_rate(rows: Sequence[tuple[float, float]], start: float) -> float:
    """Return the agent steps per second of the rows from ``start`` on; before it is warm-up.

    Args:
        rows: (wall time in s, agent steps), each written at the end of an update.
    """
    kept = [row for row in rows if row[0] >= start]
    if len(kept) < 2 or kept[-1][0] <= kept[0][0]:
        raise TooFewRowsError(f'{len(kept)} rows of progress after {start:g} s are too few')
    (first, before), (last, after) = kept[0], kept[-1]
    return (after - before) / (last - first)


@dataclass(frozen=True)
class Plan:
    """Settings and duration of a run.

    Attributes:
        settings: of environment and training, texts by name.
        more: settings of the launch file alone.
        warm_up: s before the measurement, once all actors have delivered.
        seconds: s of the measurement.
        num_learners: of the graph; they share the actors.
    """

    settings: Mapping[str, str]
    more: Mapping[str, str]
    num_actors: int
    warm_up: float
    seconds: float
    num_learners: int = 1


class Listener:
    """Receives the time shares of nodes; spins in a thread until it is closed."""

    def __init__(self) -> None:
        transport.configure()
        self._context = rclpy.Context()
        # Without the arguments of this command: some look like remappings.
        rclpy.init(args=[], context=self._context)
        self._node = Node('bench_train', context=self._context)
        self._received: list[tuple[float, Share]] = []
        self._stop = threading.Event()
        self._node.create_subscription(
            MetricsMessage, '/statistics', self._on_statistics, qos.TOPICS['/statistics'])
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, name='listener')
        self._thread.start()

    def _spin(self) -> None:
        while not self._stop.is_set():
            self._executor.spin_once(timeout_sec=0.1)

    def _on_statistics(self, message: MetricsMessage) -> None:
        share = read(message)
        if isinstance(share, Share):
            self._received.append((time.monotonic(), share))

    def clear(self) -> None:
        """Forget earlier runs."""
        self._received.clear()

    def between(self, since: float, until: float = math.inf) -> list[Share]:
        """Return the shares received between two times, monotonic s."""
        return [share for when, share in list(self._received) if since <= when <= until]

    def delivering(self) -> int:
        """Return how many actors have published since the run began."""
        return len({share.node for share in self.between(0.0)
                    if share.thread == ACTING and share.phase == 'publish'})

    def close(self) -> None:
        """Unsubscribe and end the thread."""
        self._stop.set()
        self._thread.join()
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


def shares_by_thread(shares: Iterable[Share]) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean shares by node, thread and phase, over the time of all whole reports."""
    spent: dict[str, dict[str, dict[str, float]]] = {}
    for each in whole_reports(shares):
        thread = spent.setdefault(each.node.rpartition('/')[2], {}).setdefault(each.thread, {})
        thread[each.phase] = thread.get(each.phase, 0.0) + each.share * each.seconds
    # Divided by the sum of all phases: a thread does not report a phase before its first time.
    return {node: {name: {phase: seconds / sum(thread.values())
                          for phase, seconds in thread.items()}
                   for name, thread in threads.items()} for node, threads in spent.items()}


def reporting_nodes(shares: Iterable[Share]) -> set[str]:
    """Return the nodes whose threads all have a whole report among ``shares``, in order.

    All threads of a node are known once a phase of one of them arrives for the second time.
    """
    shares = list(shares)
    seen: set[tuple[str, str, str]] = set()
    repeated: set[str] = set()
    for each in shares:
        key = each.node, each.thread, each.phase
        if key in seen:
            repeated.add(each.node)
        seen.add(key)
    whole = {(each.node, each.thread) for each in whole_reports(shares)}
    return repeated - {node for node, thread, _ in seen if (node, thread) not in whole}


def whole_reports(shares: Iterable[Share]) -> list[Share]:
    """Return those of ``shares``, in order of arrival, whose report has arrived as a whole.

    A thread's report has a message for each of its phases, in the order of PHASES; their shares
    add up to 1. The rest of a cut report would distort the mean.
    """
    reports: dict[tuple[str, str], list[list[Share]]] = {}
    for each in shares:
        found = reports.setdefault((each.node, each.thread), [])
        if not found or found[-1][-1].seconds != each.seconds or (
                PHASES.index(each.phase) <= PHASES.index(found[-1][-1].phase)):
            found.append([])
        found[-1].append(each)
    return [each for found in reports.values() for report in found
            if math.isclose(sum(share.share for share in report), 1.0, abs_tol=1e-6)
            for each in report]


class _ResourceUse:
    """Processor time and memory of a process and its children, from now on."""

    def __init__(self, pid: int, name: Callable[[psutil.Process], str]) -> None:
        root = psutil.Process(pid)
        self._processes = {name(each): each for each in [root, *root.children(recursive=True)]}
        self._began, self._busy = time.monotonic(), _busy()
        self._before = {name: _used(each) for name, each in self._processes.items()}

    def take(self) -> tuple[dict[str, dict[str, float]], float]:
        """Return cores and memory by process, and the cores that all others used."""
        seconds = time.monotonic() - self._began
        try:
            found = {
                name: {'cpu_cores': (_used(each) - self._before[name]) / seconds,
                       'memory_mb': memory_mb(each)}
                for name, each in self._processes.items()}
        except psutil.Error as error:
            raise RuntimeError(f'a process of the run has ended: {error}') from None
        others = (_busy() - self._busy) / seconds - sum(
            each['cpu_cores'] for each in found.values())
        return found, max(others, 0.0)


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def run_serial(plan: Plan) -> dict[str, Any]:
    """Measure local training."""
    def command(folder: Path) -> list[str]:
        words = [sys.executable, '-m', 'vdl_ros.local_training']
        for name, value in (plan.settings | _ENDLESS).items():
            words += [f'--{name}', value]
        return [*words, '--run_dir', str(folder)]

    found = _run(plan, command, lambda process: 'serial', lambda since: True)
    return found | {'time_shares': {'serial': found['summary']['time_shares']}}


def run_graph(plan: Plan, listener: Listener) -> dict[str, Any]:
    """Measure the graph of ``train.launch.py``."""
    def command(folder: Path) -> list[str]:
        settings = plan.settings | plan.more | _ENDLESS | {
            'num_actors': str(plan.num_actors), 'num_learners': str(plan.num_learners),
            'run_dir': str(folder)}
        return ['ros2', 'launch', 'vdl_ros', 'train.launch.py',
                *(f'{name}:={value}' for name, value in settings.items())]

    def name(process: psutil.Process) -> str:
        match = re.search(r'__node:=(\w+)', ' '.join(process.cmdline()))
        return match[1] if match else 'launch'

    def complete(since: float) -> bool:
        return len(reporting_nodes(listener.between(since))) >= plan.num_actors + plan.num_learners

    listener.clear()
    found = _run(plan, command, name, complete, lambda: listener.delivering() >= plan.num_actors)
    # Without the end of the run, where checkpoint and curve are written.
    return found | {'time_shares': shares_by_thread(
        listener.between(found['began'], found['ended']))}


def _run(
    plan: Plan, command: Callable[[Path], Sequence[str]],
    name: Callable[[psutil.Process], str], complete: Callable[[float], bool],
    ready: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Start a run, measure it, interrupt it.

    Args:
        command: returns the words of the command for a run folder.
        name: returns the name of one of its processes.
        complete: returns whether all nodes have reported since a time; awaited before the end.
        ready: returns whether all actors take part; awaited before the warm-up.

    Returns:
        ``steps_per_s``; ``processes``, cores and memory by name; ``foreign_cores`` of all other
        processes; ``summary`` of the run; ``began`` and ``ended`` of the measurement, monotonic s.
    """
    start_s = _START_S + _START_EACH_S * (plan.num_actors + plan.num_learners - 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary) / 'run', Path(temporary) / 'log'

        def wall() -> float:
            rows = progress_rows(folder)
            return rows[-1][0] if rows else -1.0

        def settled() -> bool:
            """Return whether the learner has chosen its threads, if it tries numbers of them."""
            text = log.read_text(errors='replace')
            return text.count('learner_threads: trying') <= text.count('learner_threads: chosen')

        with launched(*command(folder), log=log) as process:
            wait(process, lambda: wall() >= 0, start_s, 'the first update')
            wait(process, ready, start_s, 'something from every actor')
            wait(process, settled, _TRIALS_S, 'the number of threads of the learner')
            warm = wall() + plan.warm_up
            wait(process, lambda: wall() >= warm, plan.warm_up + _PATIENCE_S, 'warm-up')
            start, began = wall(), time.monotonic()
            use = _ResourceUse(process.pid, name)
            wait(process, lambda: wall() >= start + plan.seconds and complete(began),
                 plan.seconds + _PATIENCE_S, 'measurement')
            processes, foreign = use.take()
            measured, ended = progress_rows(folder), time.monotonic()
        if process.returncode != 0:
            raise RuntimeError(f'a run ended with status {process.returncode}')
        try:
            summary = json.loads((folder / 'summary.json').read_text())
            speed = steady_rate(measured, start)
        except (OSError, ValueError) as error:
            raise RuntimeError(f'a run cannot be read: {error}') from None
    if summary['ended_by'] != 'interrupted':
        raise RuntimeError(f'a run ended by {summary["ended_by"]}')
    return {'steps_per_s': speed, 'processes': processes, 'foreign_cores': foreign,
            'summary': summary, 'began': began, 'ended': ended}
