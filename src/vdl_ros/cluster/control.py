"""Acts on all hosts of a cluster at a time: start, status, stop, bring files home, follow."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from vdl_ros.cluster.plan import FIRST_LEARNER, Plan, plan_file, save_plan
from vdl_ros.cluster.ssh import HostError, Request, ask
from vdl_ros.common.quoting import quoted, shown


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files of an archive below ``folder``, with the rights of new files.

    By hand, because ``extractall(filter='data')`` is not in every Python 3.11 that is in use.
    TarError: an absolute path, one that leads out of the folder, a link, device or sparse file.
    """
    for member in archive:
        name = PurePosixPath(member.name)
        # A sparse file of a few bytes may claim to fill the disk.
        if (name.is_absolute() or '..' in name.parts or '\0' in member.name
                or not (member.isfile() or member.isdir()) or member.issparse()):
            raise tarfile.TarError(f'{quoted(member.name)} is no file of this folder')
        path = folder / name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None
        with content, path.open('wb') as file:
            shutil.copyfileobj(content, file)


T = TypeVar('T')
# Of each state, what a user reads.
_STATES = {'running': 'running', 'gone': 'killed', 'absent': 'not started'}


def state_text(state: Mapping[str, Any]) -> str:
    return _STATES.get(state['state']) or f'ended ({state["status"]})'


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
            running = [name for name, state in found.items() if state['state'] == 'running']
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
                    what = state_text(state), state['pid'], shown(state['line'], 200)
                rows[task.name] = (task.name, str(self.plan.hosts[index]), *what)
        return [rows[task.name] for task in self.plan.tasks]

    def stop(self, timeout: float) -> list[str]:
        """End all tasks on all hosts, and bring files home; return what failed, a line each."""
        def stop_on(index: int) -> dict[str, Any]:
            return ask(self.plan.hosts[index], self.request(index, 'stop', timeout=timeout),
                       timeout)

        errors, reached = [], []
        for index, found in self._on_all(stop_on):
            host, names = self.plan.hosts[index], [task.name for task in self.plan.on(index)]
            if isinstance(found, HostError):
                errors.append(f'{found}; there may run on: {", ".join(names)}')
                continue
            reached.append(index)
            for what, text in (('killed', 'killed because they did not end'),
                               ('left', 'could not be killed')):
                among = [name for name in names if name in found.get(what, ())]
                if among:
                    line = f'{host}: {text}: {", ".join(among)}'
                    self.log(line)
                    errors += [line] if what == 'left' else []
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
            with (closing(Request(host, self.request(index, 'files', run_dir=run))) as asked,
                  tempfile.TemporaryFile() as copy):
                asked.answer()
                # Whole first: the files may be those that are written here, by another way.
                shutil.copyfileobj(asked.stream, copy)
                copy.seek(0)
                home.mkdir(parents=True, exist_ok=True)
                with tarfile.open(fileobj=copy, mode='r:') as archive:
                    unpack(archive, home)
        except (OSError, tarfile.TarError) as error:
            raise HostError(f'{host}: its files cannot be brought to {home}: '
                            f'{shown(str(error), 200)}') from None

    def _ask_states(self, index: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = ask(
            self.plan.hosts[index], self.request(index, 'status'))['tasks']
        return found

    def _start_on(self, index: int) -> dict[str, Any]:
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
                        report = request.answer()['tasks']
                        self._found(index)
                        self._show(report, offsets, ended)
            except HostError as error:
                if not self._stop.is_set():
                    self._lose(index, error)
            self._stop.wait(_RETRY_S)

    def _show(
        self, report: Mapping[str, Any], offsets: dict[str, int], ended: set[str],
    ) -> None:
        for name in offsets:
            state = report[name]
            for line in state['text'].splitlines():
                if line.strip():
                    self._control.log(f'[{name}] {shown(line.strip(), _MAX_LINE)}')
            offsets[name] = state['offset']
            if state['state'] != 'running' and name not in ended:
                ended.add(name)
                self._end(name, state)

    def _end(self, name: str, state: Mapping[str, Any]) -> None:
        if self._stop.is_set():
            return
        succeeded = state['status'] == 0
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
