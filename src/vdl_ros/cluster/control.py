"""Starts, shows and stops the tasks of a plan on all hosts at a time, and brings files home."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from vdl_ros.cluster.archive import unpack
from vdl_ros.cluster.plan import FIRST_LEARNER, Plan, plan_file, save_plan
from vdl_ros.cluster.ssh import HostError, Request, ask
from vdl_ros.common.quoting import shown

__all__ = ['Control', 'state_text']

T = TypeVar('T')
# Of each state, what a user reads.
_STATES = {'running': 'running', 'gone': 'killed', 'absent': 'not started'}


def state_text(state: Mapping[str, Any]) -> str:
    """Return the state of a task in a word or two; what a host sent is not trusted."""
    if state.get('state') == 'ended':
        return f'ended ({shown(str(state.get("status")), 20)})'
    return _STATES.get(str(state.get('state')), 'unknown')


class Control:
    """Acts on all hosts of a plan at a time."""

    def __init__(self, plan: Plan, log: Callable[[str], None]) -> None:
        """
        Keep what to act on.

        Args:
            plan: what runs where.
            log: takes a line for the user; called in any thread.
        """
        self.plan, self.log = plan, log

    def start(self) -> list[str]:
        """
        Start all tasks, or none; return why not, a line for each host.

        Nothing is started before every host has answered and has none of the tasks.
        """
        kept = plan_file(self.plan.name)
        if kept.exists():
            return [f'name: {self.plan.name!r} is not allowed: this cluster was started and not '
                    f'stopped ({kept}): stop it, or choose another name']
        errors: list[str] = []
        for index, found in self._on_all(self._ask_states):
            if isinstance(found, HostError):
                errors.append(str(found))
                continue
            running = [name for name, state in found.items() if state.get('state') == 'running']
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
        rows: dict[str, tuple[str, str, str, int, str]] = {}
        for index, found in self._on_all(self._ask_states):
            host = str(self.plan.hosts[index])
            for task in self.plan.on(index):
                if isinstance(found, HostError):
                    rows[task.name] = (task.name, host, 'unknown', 0, str(found))
                    continue
                state = found.get(task.name, {})
                pid = state.get('pid', 0)
                rows[task.name] = (task.name, host, state_text(state),
                                   pid if isinstance(pid, int) else 0,
                                   shown(str(state.get('line', '')), 200))
        return [rows[task.name] for task in self.plan.tasks]

    def stop(self, timeout: float) -> list[str]:
        """
        End all tasks on all hosts, and bring files home; return what failed, a line each.

        Args:
            timeout: see ``host_agent.stop``.
        """
        def stop_on(index: int) -> dict[str, Any]:
            return ask(self.plan.hosts[index], self._request(index, 'stop', timeout=timeout),
                       self.plan.ssh_config, timeout)

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
        errors += self.bring_home(reached)
        if not errors:
            plan_file(self.plan.name).unlink(missing_ok=True)
        return errors

    def bring_home(self, hosts: Sequence[int]) -> list[str]:
        """Bring logs and the files of the run from these hosts; return a line per failure."""
        return [str(found) for _, found in self._on_all(self._fetch, hosts)
                if isinstance(found, HostError)]

    def _fetch(self, index: int) -> None:
        """
        Bring the files of one host into the run folder.

        Raises:
            HostError: it does not answer, or what it sends is no archive of plain files.
        """
        host, names = self.plan.hosts[index], [task.name for task in self.plan.on(index)]
        # A run that is here needs no copy.
        run = self.plan.first_run_dir if FIRST_LEARNER in names and not host.here else ''
        home = Path(self.plan.run_dir)
        try:
            with (Request(host, self._request(index, 'files', run_dir=run),
                          self.plan.ssh_config) as asked, tempfile.TemporaryFile() as copy):
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
        """Return the states of the tasks of a host by name; see ``host_agent.states``."""
        found = ask(self.plan.hosts[index], self._request(index, 'status'),
                    self.plan.ssh_config).get('tasks')
        names = {task.name for task in self.plan.on(index)}
        return {name: state for name, state in found.items()
                if name in names and isinstance(state, dict)} if isinstance(found, dict) else {}

    def _start_on(self, index: int) -> dict[str, Any]:
        """Start the tasks of a host."""
        host = self.plan.hosts[index]
        request = self._request(index, 'start')
        request['tasks'] = [
            {'name': task.name, 'command': task.command, 'environment': dict(task.environment),
             'cwd': os.getcwd() if host.here else ''} for task in self.plan.on(index)]
        return ask(host, request, self.plan.ssh_config)

    def _request(self, index: int, kind: str, **more: object) -> dict[str, object]:
        """Return a request about the tasks of a host."""
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
        if not indices:
            return []
        with ThreadPoolExecutor(len(indices)) as pool:
            return list(zip(indices, pool.map(safe, indices), strict=True))


