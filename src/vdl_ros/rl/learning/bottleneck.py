"""One sentence that names what limits the speed of a training, from its threads' time shares."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vdl_ros.common.thread_timer import ACTING, INFERENCE, TRAINING

__all__ = ['Bottleneck', 'Circumstances', 'sentence']

# Shares by thread and phase, see common/thread_timer.py.
Shares = Mapping[str, Mapping[str, float]]

# A thread that waits less is busy.
_WAITS = 0.2
# If both sides wait more, neither is short of processor time.
_BOTH_WAIT = 0.4
# :meth:`Bottleneck.recent` is of the rows of this time, s.
_RECENT_S = 10.0
_PREFIX = 'time/'
_WORK = {'step': 'the environments', 'infer': "the network's actions",
         'learn': 'updates of the network', 'decode': 'decoding trajectories'}


@dataclass(frozen=True)
class Circumstances:
    """
    What the advice depends on.

    Attributes:
        cores: processor cores of the learner's host.
        on_gpu: whether the learner computes on a GPU.
        learner_threads: CPU threads of the learner's network.
        threads_are_tried: whether their number is known to be the best.
        num_actors: number of actors.
        num_learners: number of learners.
        max_policy_lag: trajectories that an actor may have under way.
        synchronous: whether actors wait for each update.
        realtime: whether environments run on their own clock.
    """

    cores: int
    on_gpu: bool = False
    learner_threads: int = 1
    threads_are_tried: bool = False
    num_actors: int = 1
    num_learners: int = 1
    max_policy_lag: int = 4
    synchronous: bool = False
    realtime: bool = False


def sentence(shares: Shares, now: Circumstances) -> str:
    """
    Return what limits the training and what to try; '' while too little is known.

    Args:
        shares: time shares of ``training``, of ``acting`` as the mean of all actors, and of
            ``inference`` if the learner chooses the actions.
        now: settings and machine.
    """
    training, acting = shares.get(TRAINING, {}), shares.get(ACTING, {})
    if training.get('step', 0.0) > 0.0:
        return _of_local_training(training)
    if not training or not acting:
        return ''
    actors, learner = acting.get('wait', 0.0), training.get('wait', 0.0)
    inference = shares.get(INFERENCE)
    if (inference is not None and actors >= _WAITS and learner >= _WAITS
            and inference.get('wait', 0.0) < learner):
        return (f'actors wait {actors:.0%} of their time for actions: the inference of the '
                'learner is the bottleneck; try inference:=actor')
    if min(actors, learner) >= _BOTH_WAIT:
        advice = ('synchronous:=false lets them work at the same time' if now.synchronous
                  else f'try max_policy_lag:={2 * now.max_policy_lag}')
        return (f'actors wait {actors:.0%} of their time and the learner {learner:.0%}: they wait '
                f'for each other; {advice}; between hosts, the link may be slow '
                '(docs/tutorials/several_hosts.md)')
    free = now.cores - now.num_actors * (1 - actors) - now.learner_threads * (1 - learner)
    if actors >= _WAITS and actors >= learner:
        return (f'actors wait {actors:.0%} of their time: the learner is the bottleneck '
                f'({_largest(training)}); {_relief_of_learner(actors, free, now)}')
    if learner >= _WAITS:
        cause = f'the learner waits {learner:.0%} of its time: '
        if now.realtime:
            return cause + ("the environments' own clock sets the pace; try "
                            f'num_actors:={now.num_actors + 1}')
        advice = (f'try num_actors:={now.num_actors + 1}' if free >= 0.5
                  else 'no core is free: actors on another host help '
                  '(docs/tutorials/several_hosts.md)')
        return f'{cause}the actors are the bottleneck ({_largest(acting)}); {advice}'
    return ('actors and learner are both busy: the processor is the bottleneck; more cores, or '
            'actors.launch.py on another host, make it faster')


def _relief_of_learner(actors: float, free: float, now: Circumstances) -> str:
    """Return what to try when actors wait a share of ``actors``, with ``free`` cores."""
    if now.on_gpu:
        return f'try num_learners:={now.num_learners + 1} with another GPU'
    if free >= 1.0 and not now.threads_are_tried:
        return f'try learner_threads:={now.learner_threads + 1}'
    fewer, reason = now.num_actors - 1, 'no core is free: ' if free < 1.0 else ''
    if fewer >= now.num_learners and now.num_actors * (1 - actors) <= fewer:
        return f'{reason}try num_actors:={fewer}'
    return f'{reason}try a GPU, or num_learners:={now.num_learners + 1} with another host'


def _of_local_training(training: Mapping[str, float]) -> str:
    """Return the sentence of a training in one thread."""
    return (f'one thread does everything ({_largest(training)}); train.launch.py runs actors '
            'beside the learner')


def _largest(phases: Mapping[str, float]) -> str:
    """Return what a thread does most when it does not wait, with its share."""
    work = {phase: share for phase, share in phases.items() if phase != 'wait'}
    phase = max(work, key=lambda each: work[each], default='other')
    return f'{work.get(phase, 0.0):.0%} {_WORK.get(phase, phase)}'


class Bottleneck:
    """
    The sentence of a run, from the scalars of its rows.

    One thread adds; others may read :attr:`recent`.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, on_gpu: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without rows; ``settings`` are those of the run, ``clock`` returns s."""
        names = Circumstances.__dataclass_fields__.keys() & settings.keys()
        self._now = Circumstances(**{
            'cores': len(os.sched_getaffinity(0)), 'on_gpu': on_gpu,
            'realtime': bool(settings.get('realtime_fps')),
            **{name: settings[name] for name in names}})
        self.set_learner_threads(self._now.learner_threads or 1, tried=False)
        self._clock = clock
        self._sums: dict[str, list[float]] = {}
        self._rows: deque[tuple[float, dict[str, float]]] = deque(maxlen=1000)
        #: The sentence of the last seconds.
        self.recent = ''

    @property
    def learner_threads(self) -> int:
        """CPU threads of the learner's network."""
        return self._now.learner_threads

    def set_learner_threads(self, count: int, *, tried: bool) -> None:
        """Change the number of the learner's threads; ``tried``: no other one is faster."""
        self._now = replace(self._now, learner_threads=count, threads_are_tried=tried)

    def add(self, scalars: Mapping[str, float], seconds: float) -> None:
        """Add the scalars of a row that covers ``seconds``; of these, ``time/THREAD/PHASE``."""
        shares = {tag: share for tag, share in scalars.items() if tag.startswith(_PREFIX)}
        for tag, share in shares.items():
            sums = self._sums.setdefault(tag, [0.0, 0.0])
            sums[0] += share * seconds
            sums[1] += seconds
        now = self._clock()
        self._rows.append((now, shares))
        while now - self._rows[0][0] > _RECENT_S:
            self._rows.popleft()
        found: dict[str, list[float]] = {}
        for _, row in self._rows:
            for tag, share in row.items():
                found.setdefault(tag, []).append(share)
        self.recent = sentence(_by_thread({
            tag: sum(values) / len(values) for tag, values in found.items()}), self._now)

    def overall(self) -> str:
        """Return the sentence of all rows."""
        return sentence(_by_thread({
            tag: total / max(seconds, 1e-9) for tag, (total, seconds) in self._sums.items()}),
            self._now)


def _by_thread(tags: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return shares by thread and phase."""
    found: dict[str, dict[str, float]] = {}
    for tag, share in tags.items():
        thread, _, phase = tag.removeprefix(_PREFIX).partition('/')
        found.setdefault(thread, {})[phase] = share
    return found
