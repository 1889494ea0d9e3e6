"""What limits the speed of a training, in a sentence, and what to try: a table of rules.

docs/runs.md has the table.
"""

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import psutil

from vdl_ros.common.metrics import ACTING, INFERENCE, TRAINING
from vdl_ros.rl.settings import PpoConfig, ReplayConfig, TrainConfig

# Shortest time between two measurements, s: each looks at every process.
_PERIOD_S = 5.0


def _busy_seconds() -> float:
    """Return the processor seconds of everything so far, on the cores that this process has."""
    allowed = os.sched_getaffinity(0)
    # What another virtual machine has taken (steal) is not this machine's to give.
    return sum(sum(core) - core.idle - getattr(core, 'iowait', 0.0)
               - getattr(core, 'guest', 0.0) - getattr(core, 'guest_nice', 0.0)
               for number, core in enumerate(psutil.cpu_times(percpu=True)) if number in allowed)


def _family_seconds() -> dict[int, float]:
    """Return the processor seconds of each process that the parent of this one has started.

    It is the launch of this process and of its actors, or a shell.
    """
    found: dict[int, float] = {}
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(os.getppid())
        for process in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
    return found


class CoresOfOthers:
    """Cores that processes of others hold, as the mean of the last seconds; 0 at first."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = _busy_seconds,
        own: Callable[[], dict[int, float]] = _family_seconds,
    ) -> None:
        self._clock, self._busy, self._own = clock, busy, own
        self._before = clock(), busy(), own()
        self._cores = 0.0

    def __call__(self) -> float:
        since, busy_before, own_before = self._before
        seconds = self._clock() - since
        if seconds >= _PERIOD_S:
            busy, own = self._busy(), self._own()
            # Of a process that has ended the last seconds are not known.
            used = sum(spent - own_before.get(pid, 0.0) for pid, spent in own.items())
            self._cores = max(0.0, busy - busy_before - used) / seconds
            self._before = since + seconds, busy, own
        return self._cores


# Shares by thread and phase, see common/metrics.py.
Shares = Mapping[str, Mapping[str, float]]

# A thread that waits less is busy.
_WAITS = 0.2
# If both sides wait more, neither is short of processor time.
_BOTH_WAIT = 0.4
_ONLY_WAIT = 0.8
#: Other programs that hold so many cores count; so much of one must be free for another actor.
HALF_A_CORE = 0.5
# Of actors at most so many times as many are advised at once.
_MOST_TIMES = 4
# Larger updates than of so many steps are not advised: what they gain was not measured.
_LARGE_UPDATE = 640
# :meth:`Bottleneck.recent` is of the rows of this time, s.
_RECENT_S = 10.0
_PREFIX = 'time/'
_OTHERS = 'machine', 'others'
_WORK = {'step': 'the environments', 'infer': "the network's actions",
         'learn': 'updates of the network', 'decode': 'decoding trajectories',
         'publish': 'publishing'}
_HOSTS = '(docs/tutorials/several_hosts.md)'


@dataclass(frozen=True)
class Circumstances:
    """What the advice depends on: settings, ``cores`` of the learner's host, and its device.

    ``threads_are_tried``: no other number of threads is faster; ``realtime``: environments run on
    their own clock; ``robot``: it is a robot, of which there is one for each actor.
    """

    cores: int
    on_gpu: bool = False
    learner_threads: int = 1
    threads_are_tried: bool = False
    num_actors: int = 1
    num_learners: int = 1
    algorithm: str = TrainConfig.algorithm
    num_envs: int = 1
    unroll_length: int = TrainConfig.unroll_length
    batch_size: int = TrainConfig.batch_size
    publish_every: int = TrainConfig.publish_every
    max_in_flight: int = TrainConfig.max_in_flight
    synchronous: bool = False
    ppo_epochs: int = PpoConfig.ppo_epochs
    replay_ratio: float = ReplayConfig.replay_ratio
    replay_batch: int = ReplayConfig.replay_batch
    realtime: bool = False
    robot: bool = False

    @property
    def steps_of_update(self) -> int:
        return self.num_envs * self.unroll_length * self.batch_size


@dataclass(frozen=True)
class _Found:
    """What the rules look at: shares of time, and the cores that ``others`` hold."""

    now: Circumstances
    training: Mapping[str, float]
    acting: Mapping[str, float]
    others: float

    @property
    def learner(self) -> float:
        """Return the share of its time that the learner waits."""
        return self.training.get('wait', 0.0)

    @property
    def actors(self) -> float:
        """Return the share of their time that actors wait."""
        return self.acting.get('wait', 0.0)

    @property
    def free(self) -> float:
        """Return the cores that nothing uses."""
        now = self.now
        return (now.cores - self.others - now.num_actors * (1 - self.actors)
                - now.learner_threads * (1 - self.learner))

    @property
    def learns_most(self) -> bool:
        return _phase(self.training) == 'learn'


# A rule: whether it applies, and what to try. Of each list the first that applies is taken.
_Rule = tuple[Callable[[_Found], bool], Callable[[_Found], str]]


def _larger_batch(found: _Found) -> str:
    now = found.now
    # Twice as much often changes little, and each attempt costs a run.
    size = now.batch_size * min(4, math.ceil(_LARGE_UPDATE / now.steps_of_update))
    return f'try batch_size:={size}{_in_flight(found, size * now.publish_every)}'


def _fewer_policies(found: _Found) -> str:
    every = 8 * found.now.publish_every
    return f'try publish_every:={every}{_in_flight(found, every * found.now.batch_size)}'


def _in_flight(found: _Found, least: int) -> str:
    """Return what an actor needs beside: otherwise it would wait for ever, see rl/settings.py."""
    return (f' max_in_flight:={least}'
            if found.now.max_in_flight < least and not found.now.synchronous else '')


def _more_actors(found: _Found) -> str:
    """As many as keep the learner busy and find a core, at least one more."""
    now = found.now
    wanted = math.ceil(now.num_actors / max(1 - found.learner, 1 / _MOST_TIMES))
    if not now.realtime:
        wanted = min(wanted, now.num_actors + int(found.free / max(1 - found.actors, _WAITS)))
    return f'try num_actors:={max(wanted, now.num_actors + 1)}'


def _less(work: float, found: _Found) -> float:
    """Return less of the learner's work: a quarter where actors only wait for it."""
    return work / (4 if found.actors >= _ONLY_WAIT else 2)


_LARGER_BATCH: _Rule = (
    lambda found: (found.now.algorithm in ('impala', 'a3c') and not found.now.on_gpu
                   and found.now.steps_of_update < _LARGE_UPDATE),
    _larger_batch)
_OF_LEARNER: tuple[_Rule, ...] = (
    (lambda found: found.now.on_gpu,
     lambda found: f'try num_learners:={found.now.num_learners + 1} with another GPU'),
    (lambda found: _phase(found.training) == 'publish' and not found.now.synchronous,
     _fewer_policies),
    (lambda found: found.free >= 1.0 and not found.now.threads_are_tried,
     lambda found: f'try learner_threads:={found.now.learner_threads + 1}'),
    (lambda found: found.learns_most and found.now.algorithm in ('dqn', 'sac'),
     lambda found: f'try replay_batch:={2 * found.now.replay_batch}, or replay_ratio:='
                   f'{_less(found.now.replay_ratio, found):g} instead of '
                   f'{found.now.replay_ratio:g}, which samples each step less often'),
    (lambda found: (found.learns_most and found.now.algorithm == 'ppo'
                    and found.now.ppo_epochs > 1),
     lambda found: f'try ppo_epochs:={found.now.ppo_epochs // 2}, which learns less from each '
                   'step'),
    _LARGER_BATCH,
    (lambda found: True,
     lambda found: f'try a GPU, or num_learners:={found.now.num_learners + 1} with another host'),
)
_OF_ACTORS: tuple[_Rule, ...] = (
    (lambda found: found.now.robot, lambda found: ''),
    (lambda found: found.now.realtime or found.free >= HALF_A_CORE,
     _more_actors),
    (lambda found: True, lambda found: f'no core is free: actors on another host help {_HOSTS}'),
)
_OF_PROCESSOR: tuple[_Rule, ...] = (
    _LARGER_BATCH,
    (lambda found: True,
     lambda found: 'more cores, or actors.launch.py on another host, make it faster'),
)


def sentence(shares: Shares, now: Circumstances) -> str:
    """Return what limits the training and what to try; '' while too little is known.

    ``shares`` are of ``training``, of ``acting`` as the mean of all actors, of ``inference`` if
    the learner chooses the actions, and the cores that others hold.
    """
    training, acting = shares.get(TRAINING, {}), shares.get(ACTING, {})
    if training.get('step', 0.0) > 0.0:
        return (f'one thread does everything ({_largest(training)}); train.launch.py runs actors '
                'beside the learner')
    if not training or not acting:
        return ''
    machine, phase = _OTHERS
    found = _Found(now, training, acting, shares.get(machine, {}).get(phase, 0.0))
    actors, learner = found.actors, found.learner
    inference = shares.get(INFERENCE)
    if (inference is not None and actors >= _WAITS and learner >= _WAITS
            and inference.get('wait', 0.0) < learner):
        return (f'actors wait {actors:.0%} of their time for actions: the inference of the '
                'learner is the bottleneck; try inference:=actor')
    if min(actors, learner) >= _BOTH_WAIT:
        advice = ('synchronous:=false lets them work at the same time' if now.synchronous
                  else f'try max_in_flight:={2 * now.max_in_flight}')
        return (f'actors wait {actors:.0%} of their time and the learner {learner:.0%}: they wait '
                f'for each other; {advice}; between hosts, the link may be slow {_HOSTS}')
    if actors >= _WAITS and actors >= learner:
        return _with_advice(f'actors wait {actors:.0%} of their time: the learner is the '
                            f'bottleneck ({_largest(training)})', _OF_LEARNER, found)
    if learner >= _WAITS:
        cause = f'the learner waits {learner:.0%} of its time: '
        if now.robot or now.realtime:
            what = "the robot's" if now.robot else "the environments'"
            cause += f'{what} own clock sets the pace'
        else:
            cause += f'the actors are the bottleneck ({_largest(acting)})'
        return _with_advice(cause, _OF_ACTORS, found)
    return _with_advice('actors and learner are both busy: the processor is the bottleneck',
                        _OF_PROCESSOR, found)


def _with_advice(cause: str, rules: tuple[_Rule, ...], found: _Found) -> str:
    rule = next(each for each in rules if each[0](found))
    advice = rule[1](found)
    if (advice and found.others >= HALF_A_CORE and found.free < HALF_A_CORE
            and not found.now.on_gpu):
        others = f'other programs hold {found.others:.1f} of {found.now.cores} cores'
        advice = f'{others}; end them' if rule is rules[-1] else f'{others}; {advice}'
    return f'{cause}; {advice}' if advice else cause


def _phase(phases: Mapping[str, float]) -> str:
    """Return the phase of most time in which a thread does not wait."""
    work = {phase: share for phase, share in phases.items() if phase != 'wait'}
    return max(work, key=lambda each: work[each], default='other')


def _largest(phases: Mapping[str, float]) -> str:
    """Return what a thread does most when it does not wait, with its share."""
    phase = _phase(phases)
    return f'{phases.get(phase, 0.0):.0%} {_WORK.get(phase, phase)}'


class Bottleneck:
    """The sentence of a run, from the scalars of its rows; others may read ``recent``."""

    def __init__(
        self, settings: Mapping[str, Any], *, on_gpu: bool,
        clock: Callable[[], float] = time.monotonic,
        others: Callable[[], float] | None = None,
    ) -> None:
        names = Circumstances.__dataclass_fields__.keys() & settings.keys()
        self._now = Circumstances(**{
            'cores': len(os.sched_getaffinity(0)), 'on_gpu': on_gpu,
            'realtime': bool(settings.get('realtime_fps')),
            'robot': str(settings.get('env_id')).startswith('robot/'),
            **{name: settings[name] for name in names}})
        self.set_learner_threads(self._now.learner_threads or 1, tried=False)
        self._clock, self._others = clock, others or CoresOfOthers()
        self._sums: dict[str, list[float]] = {}
        self._rows: deque[tuple[float, dict[str, float]]] = deque(maxlen=1000)
        #: The sentence of the last seconds.
        self.recent = ''

    @property
    def learner_threads(self) -> int:
        return self._now.learner_threads

    @property
    def others(self) -> float:
        """Return the cores that other programs have held lately."""
        return self._others()

    def set_learner_threads(self, count: int, *, tried: bool) -> None:
        self._now = replace(self._now, learner_threads=count, threads_are_tried=tried)

    def add(self, scalars: Mapping[str, float], seconds: float) -> None:
        shares = {tag: share for tag, share in scalars.items() if tag.startswith(_PREFIX)}
        shares[_PREFIX + '/'.join(_OTHERS)] = self._others()
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
        return sentence(_by_thread({
            tag: total / max(seconds, 1e-9) for tag, (total, seconds) in self._sums.items()}),
            self._now)


def _by_thread(tags: Mapping[str, float]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for tag, share in tags.items():
        thread, _, phase = tag.removeprefix(_PREFIX).partition('/')
        found.setdefault(thread, {})[phase] = share
    return found
