"""Acts on all hosts of a cluster at a time: start, status, stop, bring files home, follow."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from vdl_ros.cluster.host_agent import LOG_BYTES, RUN_FILE
from vdl_ros.cluster.plan import FIRST_LEARNER, Plan, plan_file, save_plan
from vdl_ros.cluster.ssh import ANSWER_S, Answer, HostError, Request, TaskState, ask
from vdl_ros.common.files import atomic_file
from vdl_ros.common.quoting import quoted, shown

# What a host may send home of a run: bytes, and files; and at which rate at least, bytes/s.
_RUN_BYTES, _RUN_FILES = 1 << 36, 100_000
_LEAST_RATE = 1e5


def receive(asked: Request, home: Path, names: Sequence[str], *, run: bool) -> None:
    """Write the files that a host sends into the folder ``home``.

    HostError: it sends others than the logs of its tasks, ``names``, and with ``run`` the files
    of a run; or too many, or too slowly. Each file is written whole or not at all: it may be the
    one that the host reads, by another way.
    """
    logs = [f'logs/{name}.log' for name in names]
    most_bytes = len(logs) * LOG_BYTES + (_RUN_BYTES if run else 0)
    most_files = len(logs) + (_RUN_FILES if run else 0)
    began, count, received = time.monotonic(), 0, 0

    def time_left() -> float:
        return max(ANSWER_S + received / _LEAST_RATE - (time.monotonic() - began), 0.0)

    while (found := asked.answer(time_left())).name:
        if found.name not in logs and not (run and RUN_FILE.fullmatch(found.name)):
            raise HostError(f'{asked.host}: {quoted(found.name)} is not one of the files that '
                            'it may send')
        count, received = count + 1, received + found.size
        if count > most_files or received > most_bytes:
            raise HostError(f'{asked.host}: it sends more than {most_files} files or '
                            f'{most_bytes} bytes')
        path = home / found.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with asked.within(time_left()), atomic_file(path) as partial, partial.open('wb') as file:
            left = found.size
            while left:
                data = asked.stream.read(min(left, 1 << 20))
                if not data:
                    raise HostError(f'{asked.host}: the connection was closed within a file')
                file.write(data)
                left -= len(data)


T = TypeVar('T')
# Of each state, what a user reads.
_STATES = {'running': 'running', 'gone': 'killed', 'absent': 'not started'}


def state_text(task: TaskState) -> str:
    return _STATES.get(task.state) or f'ended ({task.status})'


class Control:
    """Acts on all hosts of a plan at a time; ``log`` takes lines, in any thread."""

    def __init__(self, plan: Plan, log: Callable[[str], None]) -> None:
        self.plan, self.log = plan, log

    def start(self) -> list[str]:
        """Start all tasks, or none; return why not, a line for each host."""
        kept = plan_file(self.plan.name)
        if kept.exists():
            return [f'name: {self.plan.name!r} is not allowed: this cluster was started and not '
                    f'stopped ({kept}): stop it, or choose another name']
        errors: list[str] = []
        for index, found in self._on_all(self._ask_states):
            if isinstance(found, HostError):
                errors.append(str(found))
                continue
            running = [name for name, task in found.items() if task.state == 'running']
            if running:
                errors.append(f'{self.plan.hosts[index]}: {", ".join(running)} of the cluster '
                              f'{self.plan.name!r} runs already: stop it, or choose another name')
        if errors:
            return errors
        # Before the start: what may have been started can be stopped.
        save_plan(self.plan)
        errors = [str(found) for _, found in self._on_all(self._start_on)
                  if isinstance(found, HostError)]
        if errors:
            self.stop(0.1)
        return errors

    def status(self) -> list[tuple[str, str, str, int, str]]:
        """Return name, host, state, process number and last line of the log of each task."""
        rows = {}
        for index, found in self._on_all(self._ask_states):
            for task in self.plan.on(index):
                what = 'unknown', 0, str(found)
                if not isinstance(found, HostError):
                    state = found[task.name]
                    what = state_text(state), state.pid, shown(state.line, 200)
                rows[task.name] = (task.name, str(self.plan.hosts[index]), *what)
        return [rows[task.name] for task in self.plan.tasks]

    def stop(self, timeout: float) -> list[str]:
        """End all tasks on all hosts, and bring files home; return what failed, a line each."""
        def stop_on(index: int) -> Answer:
            return ask(self.plan.hosts[index], self.request(index, 'stop', timeout=timeout),
                       timeout)

        errors, reached = [], []
        for index, found in self._on_all(stop_on):
            host, names = self.plan.hosts[index], [task.name for task in self.plan.on(index)]
            if isinstance(found, HostError):
                errors.append(f'{found}; there may run on: {", ".join(names)}')
                continue
            reached.append(index)
            for those, text in ((found.killed, 'killed because they did not end'),
                                (found.left, 'could not be killed')):
                among = [name for name in names if name in those]
                if among:
                    line = f'{host}: {text}: {", ".join(among)}'
                    self.log(line)
                    errors += [line] if those is found.left else []
        errors += [str(found) for _, found in self._on_all(self._fetch, reached)
                   if isinstance(found, HostError)]
        if not errors:
            plan_file(self.plan.name).unlink(missing_ok=True)
        return errors

    def _fetch(self, index: int) -> None:
        host, names = self.plan.hosts[index], [task.name for task in self.plan.on(index)]
        # A run that is here needs no copy.
        run = self.plan.first_run_dir if FIRST_LEARNER in names and not host.here else ''
        home = Path(self.plan.run_dir)
        try:
            with closing(Request(host, self.request(index, 'files', run_dir=run))) as asked:
                receive(asked, home, names, run=bool(run))
        except OSError as error:
            raise HostError(f'{host}: its files cannot be brought to {home}: '
                            f'{shown(str(error), 200)}') from None

    def _ask_states(self, index: int) -> dict[str, TaskState]:
        return self.tasks_in(index, ask(self.plan.hosts[index], self.request(index, 'status')))

    def tasks_in(self, index: int, answer: Answer) -> dict[str, TaskState]:
        """Return the states of the tasks of a host; HostError: its answer lacks one."""
        try:
            return {task.name: answer.tasks[task.name] for task in self.plan.on(index)}
        except KeyError as error:
            raise HostError(f'{self.plan.hosts[index]}: its answer has no task {error}') from None

    def _start_on(self, index: int) -> Answer:
        host = self.plan.hosts[index]
        return ask(host, self.request(index, 'start', tasks=[
            {'name': task.name, 'command': task.command, 'environment': dict(task.environment),
             'cwd': os.getcwd() if host.here else ''} for task in self.plan.on(index)]))

    def request(self, index: int, kind: str, **more: object) -> dict[str, object]:
        return {'request': kind, 'cluster': self.plan.name,
                'tasks': [{'name': task.name} for task in self.plan.on(index)], **more}

    def _on_all(
        self, act: Callable[[int], T], hosts: Sequence[int] | None = None,
    ) -> list[tuple[int, T | HostError]]:
        """Call ``act`` with the index of each host, at the same time; return results or errors."""
        def safe(index: int) -> T | HostError:
            try:
                return act(index)
            except HostError as error:
                return error

        indices = range(len(self.plan.hosts)) if hosts is None else hosts
        with ThreadPoolExecutor(len(indices) or 1) as pool:
            return list(zip(indices, pool.map(safe, indices), strict=True))


# Between two attempts to reach a host that is gone, s.
_RETRY_S = 5.0
# After a report of a host, which comes every second, s.
_PAUSE_S = 0.5
_MAX_LINE = 500


class Watch:
    """Follows all hosts, each in a thread, until ``stop`` is set: when a learner has ended.

    A host that does not answer is missed: its tasks may go on there, and nothing is started
    elsewhere in their place.
    """

    def __init__(self, control: Control, stop: threading.Event) -> None:
        self._control, self._stop = control, stop
        self._lock = threading.Lock()
        self._lost: set[int] = set()
        self._requests: dict[int, Request] = {}
        self.failed = False  #: whether a learner ended, or none of the hosts is usable
        self._threads = [threading.Thread(target=self._follow, args=(index,), daemon=True)
                         for index in range(len(control.plan.hosts))]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        self._stop.wait()
        with self._lock:
            requests = list(self._requests.values())
        for request in requests:
            request.end()
        for thread in self._threads:
            thread.join()

    def _follow(self, index: int) -> None:
        control = self._control
        offsets = {task.name: 0 for task in control.plan.on(index)}
        ended: set[str] = set()
        while not self._stop.is_set():
            try:
                asked = control.request(index, 'follow', offsets=offsets)
                with closing(Request(control.plan.hosts[index], asked)) as request:
                    with self._lock:
                        self._requests[index] = request
                    while not self._stop.is_set():
                        report = control.tasks_in(index, request.answer())
                        self._found(index)
                        self._show(report, offsets, ended)
                        # One that reports without a pause does not fill the log.
                        self._stop.wait(_PAUSE_S)
            except HostError as error:
                if not self._stop.is_set():
                    self._lose(index, error)
            self._stop.wait(_RETRY_S)

    def _show(
        self, report: Mapping[str, TaskState], offsets: dict[str, int], ended: set[str],
    ) -> None:
        for name in offsets:
            state = report[name]
            for line in state.text.splitlines():
                if line.strip():
                    self._control.log(f'[{name}] {shown(line.strip(), _MAX_LINE)}')
            offsets[name] = state.offset
            if state.state != 'running' and name not in ended:
                ended.add(name)
                self._end(name, state)

    def _end(self, name: str, state: TaskState) -> None:
        if self._stop.is_set():
            return
        succeeded = state.status == 0
        self._control.log(f'{name}: {state_text(state)}')
        # The others end with learner 0, which writes the run.
        if name == FIRST_LEARNER or (name.startswith('learner') and not succeeded):
            self.failed |= not succeeded
            self._stop.set()

    def _lose(self, index: int, error: HostError) -> None:
        """Say once that a host is gone, and what that means."""
        with self._lock:
            known = index in self._lost
            self._lost.add(index)
            lost = set(self._lost)
        if not known:
            self._control.log(f'{error}: {without(self._control.plan, index, lost)}')

    def _found(self, index: int) -> None:
        with self._lock:
            if index not in self._lost:
                return
            self._lost.discard(index)
        self._control.log(f'{self._control.plan.hosts[index]} answers again')


def without(plan: Plan, index: int, lost: set[int]) -> str:
    """Return what the loss of a host means for the training; ``lost`` are all that are lost."""
    tasks = plan.on(index)
    names = ', '.join(task.name for task in tasks)
    learners = [task.name for task in tasks if task.is_learner]
    if learners:
        return f'{names} missed; the training waits for {", ".join(learners)}'
    served = {task.rank for task in plan.tasks if task.is_actor and task.host not in lost}
    waiting = sorted({task.rank for task in tasks if task.is_actor} - served)
    if waiting:
        ranks = ', '.join(f'learner_{rank}' for rank in waiting)
        return f'{names} missed; the training waits, because {ranks} has no other actor'
    return f'{names} missed; the training goes on without'
