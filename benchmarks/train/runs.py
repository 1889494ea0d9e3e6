"""Training runs: started as a user does, measured once they are steady, then interrupted.

Serial mode and the launched graph are measured in the same way: speed from the run's
progress.csv, losses and bytes from its summary.json, processor time and memory from the system.
Time shares of the graph's threads come from ``/statistics``.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage

from benchmarks.graph import launched, memory_mb, module_command
from benchmarks.train.table import TooFewRowsError, progress_rows, steady_rate
from vdl_ros.common.metrics import ACTING, PHASES
from vdl_ros.ros import qos
from vdl_ros.ros.dds import transport
from vdl_ros.ros.statistics.statistics import Share, read

__all__ = ['Listener', 'Plan', 'reporting_nodes', 'run_graph', 'run_part', 'run_serial',
           'shares_by_thread', 'whole_reports']

# Time until the first update, for each further process, and beyond the measurement.
_START_S, _START_EACH_S, _PATIENCE_S = 60.0, 30.0, 60.0
# Large networks make few updates a minute.
_TRIALS_S = 900.0
_POLL_S = 0.05
# Never reached: the run is interrupted.
_ENDLESS = {'total_steps': '1000000000000', 'stop_at_return': '1e9'}


@dataclass(frozen=True)
class Plan:
    """Settings and duration of a run.

    Attributes:
        settings: of environment and training, texts by name.
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

    def time_shares(
        self, since: float, until: float = float('inf'),
    ) -> dict[str, dict[str, dict[str, float]]]:
        """Return shares by node, thread and phase between two times, monotonic s."""
        return shares_by_thread(
            share for when, share in list(self._received) if since <= when <= until)

    def reported(self, since: float) -> int:
        """Return how many nodes have sent a whole report since a time, monotonic s."""
        return len(reporting_nodes(share for when, share in list(self._received) if when >= since))

    def delivering(self) -> int:
        """Return how many actors have published since the run began."""
        return len({share.node for _, share in list(self._received)
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
    """Processor time and memory of a command's processes, and of all others."""

    def __init__(self, pid: int, name: Callable[[psutil.Process], str]) -> None:
        root = psutil.Process(pid)
        self._processes = {name(each): each for each in [root, *root.children(recursive=True)]}
        self._began, self._busy = time.monotonic(), _busy()
        self._before = {name: _used(each) for name, each in self._processes.items()}

    def take(self) -> tuple[dict[str, dict[str, float]], float]:
        """Return cores and memory by process, and the cores that all others used.

        Raises:
            RuntimeError: one of the processes has ended.
        """
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
    """Measure serial mode.

    Raises:
        RuntimeError: the run ended too early, or with an error.
    """
    def command(folder: Path) -> list[str]:
        words = [sys.executable, '-m', 'vdl_ros.local_training']
        for name, value in (plan.settings | _ENDLESS).items():
            words += [f'--{name}', value]
        return [*words, '--run_dir', str(folder)]

    found = _run(plan, command, lambda process: 'serial', lambda since: True)
    return found | {'time_shares': {'serial': found['summary']['time_shares']}}


def run_graph(plan: Plan, listener: Listener) -> dict[str, Any]:
    """Measure the graph of ``train.launch.py``.

    Raises:
        RuntimeError: the run ended too early, or with an error.
    """
    def command(folder: Path) -> list[str]:
        settings = plan.settings | plan.more | _ENDLESS | {
            'num_actors': str(plan.num_actors), 'num_learners': str(plan.num_learners),
            'run_dir': str(folder)}
        return ['ros2', 'launch', 'vdl_ros', 'train.launch.py',
                *(f'{name}:={value}' for name, value in settings.items())]

    def complete(since: float) -> bool:
        return listener.reported(since) >= plan.num_actors + plan.num_learners

    listener.clear()
    found = _run(plan, command, _node_name, complete,
                 lambda: listener.delivering() >= plan.num_actors)
    # Without the end of the run, where checkpoint and curve are written.
    return found | {'time_shares': listener.time_shares(found['began'], found['ended'])}


def _node_name(process: psutil.Process) -> str:
    match = re.search(r'__node:=(\w+)', ' '.join(process.cmdline()))
    return match[1] if match else 'launch'


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

        def rows() -> list[tuple[float, float]]:
            try:
                return progress_rows((folder / 'progress.csv').read_text())
            except FileNotFoundError:
                return []

        def wait(condition: Callable[[], bool], seconds: float, what: str) -> bool:
            """Return whether the run goes on."""
            deadline = time.monotonic() + seconds
            while not condition():
                if process.poll() is not None:
                    return False
                if time.monotonic() > deadline:
                    raise RuntimeError(f'{what}: not within {seconds:g} s')
                time.sleep(_POLL_S)
            return process.poll() is None

        def wall() -> float:
            return rows()[-1][0] if rows() else -1.0

        def wall_reaches(moment: float) -> Callable[[], bool]:
            return lambda: wall() >= moment

        def settled() -> bool:
            """Return whether the learner has chosen its threads, if it tries numbers of them."""
            text = log.read_text(errors='replace')
            return text.count('learner_threads: trying') <= text.count('learner_threads: chosen')

        with launched(*command(folder), log=log) as process:
            if wait(lambda: wall() >= 0, start_s, 'the first update') and wait(
                    ready, start_s, 'something from every actor') and wait(
                    settled, _TRIALS_S, 'the number of threads of the learner') and wait(
                    wall_reaches(wall() + plan.warm_up), plan.warm_up + _PATIENCE_S, 'warm-up'):
                start, began = wall(), time.monotonic()
                use = _ResourceUse(process.pid, name)
                if wait(lambda: wall() >= start + plan.seconds and complete(began),
                        plan.seconds + _PATIENCE_S, 'measurement'):
                    processes, foreign = use.take()
                    measured, ended = rows(), time.monotonic()
        # A command that ended early has raised, with its last lines.
        if process.returncode != 0:
            raise RuntimeError(f'a run ended with status {process.returncode}')
        try:
            summary = json.loads((folder / 'summary.json').read_text())
            speed, *_ = steady_rate(measured, start)
        except (OSError, ValueError, TooFewRowsError) as error:
            raise RuntimeError(f'a run cannot be read: {error}') from None
    if summary['ended_by'] != 'interrupted':
        raise RuntimeError(f'a run ended by {summary["ended_by"]}')
    return {'steps_per_s': speed, 'processes': processes, 'foreign_cores': foreign,
            'summary': summary, 'began': began, 'ended': ended}


def run_part(part: str, plan: Plan, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a part of a training alone; see train/parts.py.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        module_command('benchmarks.train.parts', part, str(plan.seconds), json.dumps(settings)),
        capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f'status {done.returncode}']
        raise RuntimeError(f'{part}: {lines[-1]}')
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
