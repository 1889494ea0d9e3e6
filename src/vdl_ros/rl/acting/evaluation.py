"""Play a fixed number of episodes with a fixed policy."""

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.metrics import ReactionTime
from vdl_ros.common.stopped import EnvStopped
from vdl_ros.rl.acting.actor import EnvStepper, Step
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode

# Time between two lines of progress, s.
_TELL_S = 8.0
# Of 95 % of a normal distribution, standard deviations.
_Z = 1.96


@dataclass(frozen=True)
class Evaluation:
    """Episodes in the order in which they ended, and how late actions were.

    ``lost`` counts the episodes of robots that ended without a result; they are no others.
    ``action_change`` is the mean of how much of its range each part of an action changes from step
    to step within an episode, of discrete ones the share that changes; NaN: there is no range.
    """

    episodes: tuple[FinishedEpisode, ...]
    reaction_time_ms: Mapping[str, float] = field(default_factory=dict)
    late_actions: int = 0
    lost: int = 0
    action_change: float = math.nan

    @property
    def returns(self) -> list[float]:
        """Undiscounted return of each episode."""
        return [each.episode_return for each in self.episodes]

    @property
    def lengths(self) -> list[int]:
        return [each.length for each in self.episodes]

    @property
    def injects(self) -> int:
        """Number of observations that an attack perturbed."""
        return sum(each.adversary_injects for each in self.episodes)

    @property
    def adversary_l2(self) -> float:
        """Mean size of perturbations, of all steps; 0 without an attack."""
        return sum((each.adversary_l2 or 0.0) * each.length
                   for each in self.episodes) / sum(self.lengths)

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))

    @property
    def interval(self) -> float:
        """Half the width of the mean's 95 % interval, by the normal distribution; NaN of one."""
        return _half_width(self.returns)

    @property
    def success(self) -> 'Success | None':
        """Of the episodes whose success is known; None without any."""
        known = [each.success for each in self.episodes if each.success is not None]
        return Success(sum(known), len(known)) if known else None

    def figures(self) -> dict[str, Any]:
        return {
            'episodes': len(self.episodes), 'mean': self.mean, 'std': self.std,
            'interval': None if math.isnan(self.interval) else self.interval,
            'min': min(self.returns), 'max': max(self.returns),
            'length': float(np.mean(self.lengths)), 'lost': self.lost,
            'late_actions': self.late_actions,
            'action_change': None if math.isnan(self.action_change) else self.action_change,
            'success': None if self.success is None else self.success.figures()}


@dataclass(frozen=True)
class Success:
    """How many of some episodes succeeded."""

    count: int
    episodes: int

    @property
    def rate(self) -> float:
        return self.count / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate (Wilson 1927, doi:10.1080/01621459.1927.10502953)."""
        square = _Z * _Z / self.episodes
        center = (self.rate + square / 2.0) / (1.0 + square)
        half = _Z / (1.0 + square) * math.sqrt(
            self.rate * (1.0 - self.rate) / self.episodes + square / self.episodes / 4.0)
        return max(0.0, center - half), min(1.0, center + half)

    def figures(self) -> dict[str, Any]:
        return {'count': self.count, 'episodes': self.episodes, 'rate': self.rate,
                'interval': list(self.interval)}


@dataclass(frozen=True)
class Difference:
    """How much larger the returns, and the rate of success, of a second evaluation are.

    Pairs are episodes of the same number in the same environment. Half widths of the 95 %
    intervals of the means are by the normal distribution, NaN of one pair; ``success`` is None
    where it is unknown.
    """

    pairs: int
    mean: float
    interval: float
    success: tuple[float, float] | None

    def figures(self) -> dict[str, Any]:
        """Return it as plain values; JSON has no NaN."""
        mean, success = ({'mean': mean, 'interval': None if math.isnan(half) else half}
                         for mean, half in ((self.mean, self.interval),
                                            self.success or (0.0, math.nan)))
        return {'pairs': self.pairs, 'return': mean, 'success': self.success and success}


def difference(first: Evaluation, second: Evaluation) -> Difference | None:
    """Compare two evaluations with the same seeds and environments; None: there is no pair."""
    before, after = (
        {(each.environment, number): each
         for _, own in itertools.groupby(
             sorted(found.episodes, key=lambda each: each.environment),
             key=lambda each: each.environment)
         for number, each in enumerate(own)} for found in (first, second))
    pairs = [(before[place], after[place]) for place in before if place in after]
    if not pairs:
        return None
    returns = [late.episode_return - early.episode_return for early, late in pairs]
    successes = [float(late.success) - early.success for early, late in pairs
                 if early.success is not None and late.success is not None]
    return Difference(
        len(pairs), float(np.mean(returns)), _half_width(returns),
        (float(np.mean(successes)), _half_width(successes)) if successes else None)


def _half_width(values: Sequence[float]) -> float:
    """Return half the width of the mean's 95 % interval, by the normal distribution."""
    count = len(values)
    return _Z * float(np.std(values)) / math.sqrt(count - 1) if count > 1 else math.nan


class _ActionChange:
    """Acts, and takes the mean of how much actions change."""

    def __init__(self, act: 'Acts', space: gymnasium.Space[Any]) -> None:
        self._act, self._pair, self._goes_on = act, (np.zeros(0), np.zeros(0)), np.zeros(0, bool)
        self._range = space.high - space.low if isinstance(space, gymnasium.spaces.Box) else None
        self._sum, self._count = 0.0, 0

    def __call__(
        self, observations: NDArray[Any], is_reset: NDArray[Any], rewards: NDArray[Any],
    ) -> NDArray[Any]:
        actions = self._act(observations, is_reset, rewards)
        self._pair = self._pair[1], actions
        # Players of a match act in spaces of their own.
        self._goes_on = ~is_reset & isinstance(actions, np.ndarray)
        return actions

    def add(self, ignored: NDArray[np.bool_]) -> None:
        """Count the latest actions, but for those that were ``ignored``, bool [B]."""
        chosen = self._goes_on & ~ignored
        if chosen.any():
            before, after = (each[chosen] for each in self._pair)
            changes = before != after if self._range is None else np.abs(
                after - before) / self._range
            self._sum, self._count = self._sum + float(changes.sum()), self._count + changes.size

    @property
    def mean(self) -> float:
        is_finite = self._range is None or np.isfinite(self._range).all()
        return self._sum / self._count if is_finite and self._count else math.nan


#: As :class:`~vdl_ros.rl.acting.act.Act`: observations, where episodes begin, and rewards of the
#: last actions.
Acts = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]


class Played(NamedTuple):
    """A step of all environments, the episodes that ended in it, and how many were lost.

    ``longest`` is the number of steps of the longest episode that has not ended.
    """

    step: Step
    ended: list[FinishedEpisode]
    lost: int
    longest: int


class Progress:
    """Tells every 8 s what has ended, and how long the longest of the other episodes is."""

    def __init__(
        self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell, self._clock = tell, clock
        self._start, self._due = clock(), _TELL_S

    def update(self, count: int, ended: str, longest: int) -> None:
        """Take note that ``count`` episodes have ended; ``ended`` says so."""
        if (seconds := self._clock() - self._start) >= self._due:
            self._due = seconds + _TELL_S
            self._tell(f'{ended} in {seconds:.0f} s; the longest of the others has '
                       f'{longest:,} steps' + ('' if count else ', and time_limit would end it'))


def play(
    envs: VectorEnv, act: Acts, seed: int, stop: threading.Event | None = None,
) -> Iterator[Played]:
    """Act until ``stop`` is set, or an environment that waits says that it is."""
    batch = envs.num_envs
    is_running: NDArray[Any] = np.zeros(batch, np.bool_)
    counter, rewards = EpisodeCounter(batch), np.zeros(batch)
    stepper: EnvStepper | None = None
    while not (stop and stop.is_set()):
        try:
            stepper = stepper or EnvStepper(envs, seed)
            is_reset = stepper.is_reset
            step = stepper.step(act(stepper.observation, is_reset, rewards))
        except EnvStopped:
            return
        rewards = step.reward
        # A robot that is silent, or being reset, for many steps has lost one episode, or none.
        lost = int((step.ignored & is_running).sum())
        is_running = ~(step.ignored | step.terminated | step.truncated)
        yield Played(step, counter.add(step.arrays(is_reset)), lost, counter.longest)


def shares_of(episodes: int, batch: int) -> NDArray[np.int64]:
    """Return the episodes of each environment, int64 [batch]; the rest is spread over all.

    Environments of a world stand body by body: the first ones would be of the first body.
    """
    shares, rest = np.full(batch, episodes // batch), episodes % batch
    shares[np.arange(rest) * batch // max(rest, 1)] += 1
    return shares


def evaluate(
    envs: VectorEnv, act: Acts, episodes: int, seed: int, stop: threading.Event | None = None, *,
    tell: Callable[[str], None] = lambda line: None, clock: Callable[[], float] = time.monotonic,
) -> Evaluation:
    """Play ``episodes`` episodes, divided evenly among the environments.

    Each environment counts only its share: counting the episodes that end first would favour
    short ones. ``tell`` takes a line of progress every 8 s.
    """
    batch = envs.num_envs
    shares = shares_of(episodes, batch)
    counted: list[FinishedEpisode] = []
    reaction_time, late, lost = ReactionTime(), 0, 0
    progress = Progress(tell, clock)
    change = _ActionChange(act, envs.single_action_space)
    for played in play(envs, change, seed, stop):
        change.add(played.step.ignored)
        extras = played.step.extras
        reaction_time.extend(extras.get('reaction_time', ()))
        late += int(np.sum(extras.get('late_actions', 0)))
        lost += played.lost
        for episode in played.ended:
            if shares[episode.environment]:
                shares[episode.environment] -= 1
                counted.append(episode)
        if not shares.any():
            break
        progress.update(len(counted), f'{len(counted)} of {episodes} episodes have ended',
                        played.longest)
    # It may have begun to tell of success with the first one.
    if any(each.success is not None for each in counted):
        counted = [replace(each, success=bool(each.success)) for each in counted]
    return Evaluation(
        tuple(counted), reaction_time.summary(), late, lost, change.mean)
