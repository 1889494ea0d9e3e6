"""Follows a cluster: shows the logs of its tasks, and says what ended and which host is gone."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from vdl_ros.cluster.control import Control, state_text
from vdl_ros.cluster.plan import FIRST_LEARNER, Host, Plan
from vdl_ros.cluster.ssh import HostError, Request
from vdl_ros.common.quoting import shown

__all__ = ['Watch', 'without']

# Between two attempts to reach a host that is gone, s.
_RETRY_S = 5.0
_LONGEST_LINE = 500


class Watch:
    """
    Follows all hosts, each in a thread.

    A host that does not answer is missed: its tasks may go on there, and nothing is started
    elsewhere in their place.
    """

    def __init__(self, control: Control, stop: threading.Event) -> None:
        """
        Start to follow.

        Args:
            control: of the cluster, which runs.
            stop: ends it; set when a learner has ended, with which the training ends.
        """
        self._control, self._stop = control, stop
        self._lock = threading.Lock()
        self._lost: set[int] = set()
        self._requests: dict[int, Request] = {}
        self.failed = False  #: whether a learner ended, or none of the hosts is usable
        self._threads = [threading.Thread(target=self._follow, args=(index,), daemon=True)
                         for index in range(len(control.plan.hosts))]

    def run(self) -> None:
        """Follow until ``stop`` is set."""
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
        """Follow one host, also after its connection was lost."""
        control = self._control
        tasks, offsets = control.plan.on(index), dict.fromkeys(
            (task.name for task in control.plan.on(index)), 0)
        ended: set[str] = set()
        while not self._stop.is_set():
            try:
                with Request(control.plan.hosts[index], {
                        'request': 'follow', 'cluster': control.plan.name, 'offsets': offsets,
                        'tasks': [{'name': task.name} for task in tasks]},
                        control.plan.ssh_config) as request:
                    with self._lock:
                        self._requests[index] = request
                    while not self._stop.is_set():
                        report = request.answer().get('tasks')
                        self._found(index)
                        self._show(report if isinstance(report, dict) else {}, offsets, ended)
            except HostError as error:
                if not self._stop.is_set():
                    self._lose(index, error)
            self._stop.wait(_RETRY_S)

    def _show(
        self, report: Mapping[str, Any], offsets: dict[str, int], ended: set[str],
    ) -> None:
        """Show what a host reported; what it sends is not trusted."""
        for name in offsets:
            state = report.get(name)
            if not isinstance(state, dict):
                continue
            text, offset = state.get('text'), state.get('offset')
            for line in text.splitlines() if isinstance(text, str) else ():
                if line.strip():
                    self._control.log(f'[{name}] {shown(line.strip(), _LONGEST_LINE)}')
            if isinstance(offset, int):
                offsets[name] = offset
            if state.get('state') != 'running' and name not in ended:
                ended.add(name)
                self._end(name, state)

    def _end(self, name: str, state: Mapping[str, Any]) -> None:
        """Say that a task has ended; a learner ends the training."""
        if self._stop.is_set():
            return
        succeeded = state.get('state') == 'ended' and state.get('status') == 0
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
        """Say that a host is back, if it was gone."""
        with self._lock:
            if index not in self._lost:
                return
            self._lost.discard(index)
        host: Host = self._control.plan.hosts[index]
        self._control.log(f'{host} answers again')


def without(plan: Plan, index: int, lost: set[int]) -> str:
    """
    Return what the loss of a host means for the training.

    Args:
        plan: what runs where.
        index: the host that was lost.
        lost: all hosts that are lost, with this one.
    """
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
