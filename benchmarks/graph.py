"""Processes of benchmarks: commands that end with a block, and trainings held at a steady speed.

Local training, the launched graph and other systems are measured in the same way, started as a
user does: speed from rows of progress once all take part, then they are interrupted.
"""

import contextlib
import csv
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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage

from vdl_ros.common.metrics import ACTING
from vdl_ros.ros import qos
from vdl_ros.ros.dds import transport
from vdl_ros.ros.statistics.statistics import Share, read

# Launch kills nodes that exceed their time 5 s later, then it ends, s.
_ENDING_S = 20.0
_LAST_LINES = 20
# Time until the first update, for each further process, and beyond the measurement.
_START_S, _START_EACH_S, _PATIENCE_S = 60.0, 30.0, 120.0
# Large networks make few updates a minute.
_TRIALS_S = 900.0
_POLL_S = 0.05
# Never reached: the run is interrupted.
_ENDLESS = {'total_steps': '1000000000000', 'stop_at_return': '1e9'}


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


def last_lines(text: str) -> str:
    """Return the end of what a command printed, which says why it failed."""
    return '\n'.join(text.splitlines()[-_LAST_LINES:])


class _EndedError(Exception):
    """A command has ended while something of it was waited for."""


@contextmanager
def launched(
    *command: str, log: Path | None = None, may_end: bool = False, cwd: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the block runs, then interrupt it as Ctrl-C does.

    Args:
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
                    start_new_session=True, cwd=cwd)
            with contextlib.suppress(_EndedError):
                yield process
            if process.poll() is not None and (process.returncode or not may_end):
                raise RuntimeError(f'{command[0]} ended:\n'
                                   + last_lines(log.read_text(errors='replace')))
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


def printed(log: Path) -> list[dict[str, Any]]:
    """Return the JSON objects in whole lines of a log: libraries may print, too."""
    return [json.loads(line) for line in re.findall(
        r'^{.+}$', log.read_text(errors='replace'), re.MULTILINE)]


def run_module(
    module: str, *words: str, limit: float, start: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the JSON object that ``main()`` of a module of this package prints in a new process.

    Args:
        start: words before the command.

    Raises:
        RuntimeError: it fails, or takes longer than ``limit``, s.
    """
    # Some environments write files where they are started.
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary), Path(temporary) / 'log'
        try:
            with launched(*start, *module_command(module, *words), log=log, may_end=True,
                          cwd=folder) as process:
                wait(process, lambda: process.poll() is not None, limit, 'its end')
        except RuntimeError as error:
            raise RuntimeError(f'{words[0]}: {str(error).splitlines()[-1]}') from None
        return printed(log)[-1]


class Row(NamedTuple):
    """Progress of a training at the end of an update.

    Attributes:
        wall_s: when, s.
        mean_return: of the last 100 episodes; -inf if there were fewer.
    """

    wall_s: float
    agent_steps: float
    mean_return: float = -math.inf


def progress_rows(folder: Path) -> list[Row]:
    try:
        text = (folder / 'progress.csv').read_text()
    except FileNotFoundError:
        return []
    rows = []
    for line in csv.DictReader(text[:text.rfind('\n') + 1].splitlines()):
        mean = float(line['mean_return_100']) if int(line['episodes']) >= 100 else -math.inf
        rows.append(Row(float(line['wall_s']), float(line['agent_steps']), mean))
    return rows


def steady_rate(rows: Sequence[Row], start: float) -> float:
    """Return the agent steps per second of the rows from ``start`` on; before it is warm-up."""
    kept = [row for row in rows if row.wall_s >= start]
    if len(kept) < 2 or kept[-1].wall_s <= kept[0].wall_s:
        raise RuntimeError(f'{len(kept)} rows of progress after {start:g} s are too few')
    first, last = kept[0], kept[-1]
    return (last.agent_steps - first.agent_steps) / (last.wall_s - first.wall_s)


def hold(
    process: subprocess.Popen[bytes], rows: Callable[[], Sequence[Row]], start: float,
    seconds: float, *, title: str = 'a run', enough: Callable[[float], bool] = lambda began: True,
    name: Callable[[psutil.Process], str] | None = None,
) -> dict[str, Any]:
    """Measure a training of :func:`launched` that has begun.

    Args:
        rows: returns its progress so far, a row at least.
        start: wall time of its progress at which the warm-up is over, s.
        enough: returns whether a measurement that began then may end, after ``seconds`` at least.
        name: returns the name of one of its processes; without it they are not measured.

    Returns:
        ``steps_per_s``, agent steps/s; ``began`` and ``ended`` of the measurement, monotonic s;
        with ``name`` also ``processes``, cores and memory.
    """
    wait(process, lambda: rows()[-1].wall_s >= start,
         start - rows()[-1].wall_s + _PATIENCE_S, f'{title}: warm-up')
    began = time.monotonic()
    use = name and _ResourceUse(process.pid, name)
    wait(process, lambda: rows()[-1].wall_s >= start + seconds and enough(began),
         seconds + _PATIENCE_S, f'{title}: the measurement')
    return {**(use.take() if use else {}), 'steps_per_s': steady_rate(rows(), start),
            'began': began, 'ended': time.monotonic()}


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


class Reports:
    """Time shares of threads, as nodes publish them."""

    def __init__(self) -> None:
        # By node and end of the window: when it arrived, its s, and by thread s by phase.
        self._found: dict[tuple[str, float], tuple[float, float, dict[str, Counter[str]]]] = {}

    def clear(self) -> None:
        self._found.clear()

    def add(self, message: MetricsMessage, now: float) -> None:
        """Take a message that arrived at that time, monotonic s."""
        share = read(message)
        if isinstance(share, Share):
            stop = message.window_stop
            key = share.node.rpartition('/')[2], stop.sec + stop.nanosec * 1e-9
            _, _, threads = self._found.setdefault(key, (now, share.seconds, {}))
            phases = threads.setdefault(share.thread, Counter())
            phases[share.phase] += share.share * share.seconds

    def shares(self, since: float = 0.0, until: float = math.inf,
               ) -> dict[str, dict[str, dict[str, float]]]:
        """Return mean shares by node, thread and phase over the reports of a time, monotonic s.

        A report has a message for each phase of each thread. One that has not arrived as a whole
        is left out.
        """
        spent: dict[str, dict[str, Counter[str]]] = {}
        for (node, _), (when, seconds, threads) in list(self._found.items()):
            if since <= when <= until and all(math.isclose(
                    phases.total(), seconds, rel_tol=1e-6) for phases in list(threads.values())):
                for thread, phases in list(threads.items()):
                    spent.setdefault(node, {}).setdefault(thread, Counter()).update(phases)
        return {node: {thread: {phase: each / phases.total() for phase, each in phases.items()}
                       for thread, phases in threads.items()} for node, threads in spent.items()}

    def delivering(self) -> int:
        """Return how many actors have published since the run began."""
        return len({node for (node, _), (_, _, threads) in list(self._found.items())
                    if 'publish' in threads.get(ACTING, ())})


@contextmanager
def listener() -> Iterator[Reports]:
    """Receive the time shares of all nodes, in a thread, while the block runs."""
    transport.configure()
    context, reports = rclpy.Context(), Reports()
    # Without the arguments of this command: some look like remappings.
    rclpy.init(args=[], context=context)
    node = Node('bench_train', context=context)
    node.create_subscription(
        MetricsMessage, '/statistics', lambda message: reports.add(message, time.monotonic()),
        qos.TOPICS['/statistics'])
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin, name='listener')
    thread.start()
    try:
        yield reports
    finally:
        stop.set()
        thread.join()
        executor.shutdown()
        node.destroy_node()
        rclpy.shutdown(context=context)


def memory_mb(process: psutil.Process) -> float:
    """Return the memory of a process in MB; of pages that others use too, its share (PSS)."""
    return float(process.memory_full_info().pss) / 1e6


class _ResourceUse:
    """Processor time and memory of a process and its children, from now on."""

    def __init__(self, pid: int, name: Callable[[psutil.Process], str]) -> None:
        root = psutil.Process(pid)
        self._processes = {name(each): each for each in [root, *root.children(recursive=True)]}
        self._began = time.monotonic()
        self._before = {name: _used(each) for name, each in self._processes.items()}

    def take(self) -> dict[str, Any]:
        """Return ``processes``, cores and memory by name."""
        seconds = time.monotonic() - self._began
        try:
            return {'processes': {
                name: {'cpu_cores': (_used(each) - self._before[name]) / seconds,
                       'memory_mb': memory_mb(each)}
                for name, each in self._processes.items()}}
        except psutil.Error as error:
            raise RuntimeError(f'a process of the run has ended: {error}') from None


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def run_serial(plan: Plan) -> dict[str, Any]:
    """Measure local training; see :func:`run`."""
    words = [sys.executable, '-m', 'vdl_ros.local_training', *(
        word for name, value in {**plan.settings, **_ENDLESS}.items()
        for word in (f'--{name}', value))]
    found = run(plan, lambda folder: [*words, '--run_dir', str(folder)])
    return found | {'time_shares': {'serial': found['summary']['time_shares']}}


def launch_command(name: str, folder: Path, settings: Mapping[str, str]) -> list[str]:
    """Return the command that starts a launch file of the package, for a training without end."""
    return ['ros2', 'launch', 'vdl_ros', name, f'run_dir:={folder}',
            *(f'{name}:={value}' for name, value in {**settings, **_ENDLESS}.items())]


def run_graph(plan: Plan, reports: Reports) -> dict[str, Any]:
    """Measure the graph of ``train.launch.py``; see :func:`run`."""
    settings = {**plan.settings, **plan.more, 'num_actors': str(plan.num_actors),
                'num_learners': str(plan.num_learners)}
    reports.clear()
    found = run(
        plan, lambda folder: launch_command('train.launch.py', folder, settings),
        ready=lambda text: reports.delivering() >= plan.num_actors,
        enough=lambda began: len(reports.shares(began)) >= plan.num_actors + plan.num_learners)
    # Without the end of the run, where checkpoint and curve are written.
    return found | {'time_shares': reports.shares(found['began'], found['ended'])}


def _name(process: psutil.Process) -> str:
    words = ' '.join(process.cmdline())
    match = re.search(r'__node:=(\w+)', words)
    return match[1] if match else 'serial' if 'vdl_ros.local_training' in words else 'launch'


def run(
    plan: Plan, command: Callable[[Path], Sequence[str]], *, beside: Sequence[str] = (),
    ready: Callable[[str], Any] = lambda text: True,
    enough: Callable[[float], bool] = lambda began: True,
) -> dict[str, Any]:
    """Start a run, measure it, interrupt it.

    Args:
        command: returns the words of the command for a run folder.
        beside: words of a second command that belongs to the run.
        ready: returns, of what the command printed, whether all actors take part.
        enough: see :func:`hold`.

    Returns:
        What :func:`hold` returns, and ``summary`` of the run.
    """
    start_s = _START_S + _START_EACH_S * (plan.num_actors + plan.num_learners - 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary) / 'run', Path(temporary) / 'log'

        def text() -> str:
            return log.read_text(errors='replace')

        def settled() -> bool:
            """Return whether the learner has chosen its threads, if it tries numbers of them."""
            return text().count('learner_threads: trying') <= text().count(
                'learner_threads: chosen')

        with launched(*command(folder), log=log) as process, (
                launched(*beside) if beside else contextlib.nullcontext()):
            wait(process, lambda: progress_rows(folder), start_s, 'the first update')
            wait(process, lambda: ready(text()), start_s, 'something from every actor')
            wait(process, settled, _TRIALS_S, 'the number of threads of the learner')
            start = progress_rows(folder)[-1].wall_s + plan.warm_up
            found = hold(process, lambda: progress_rows(folder), start, plan.seconds,
                         enough=enough, name=_name)
        if process.returncode != 0:
            raise RuntimeError(f'a run ended with status {process.returncode}')
        try:
            summary = json.loads((folder / 'summary.json').read_text())
        except (OSError, ValueError) as error:
            raise RuntimeError(f'a run cannot be read: {error}') from None
    if summary['ended_by'] != 'interrupted':
        raise RuntimeError(f'a run ended by {summary["ended_by"]}')
    return found | {'summary': summary}
