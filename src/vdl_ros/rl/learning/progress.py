"""Progress of a run: episodes, trajectories, lag and time, of all learners and all its starts."""

import contextlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vdl_ros.common.command_line import say
from vdl_ros.common.metrics import PARTS, ReactionTime
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.flow_stats import FlowStats


@dataclass(frozen=True)
class Callbacks:
    """What a training calls in its process.

    Attributes:
        publish: publishes the policy with the credits.
        log, warn: take each line of progress, and each warning.
        progress: returns how far the slow unroll of an actor is, or ''.
        extra_scalars: returns more scalars for TensorBoard, by tag, since the last call.
    """

    publish: Callable[[], None] = lambda: None
    log: Callable[[str], None] = say
    warn: Callable[[str], None] = say
    progress: Callable[[], str] = str
    extra_scalars: Callable[[], Mapping[str, float]] = dict


# Shortest time between two lines about a file that cannot be written, s.
_AGAIN_S = 60.0


class WriteErrors:
    """The context of a write that must not end a run: of an OSError, as of a full disk, it warns.

    ``what`` cannot be written is said at once, then at most every minute, with how often.
    """

    def __init__(
        self, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn, self._clock = warn, clock
        # When the next line is due, s, and how often it failed since the last one.
        self._failed: dict[str, tuple[float, int]] = {}

    @contextlib.contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            now, (due, count) = self._clock(), self._failed.get(what, (-math.inf, 0))
            count += 1
            if now >= due:
                times = f' ({count} times)' if count > 1 else ''
                self._warn(f'{what} not written{times}: {error}; the run goes on')
                due, count = now + _AGAIN_S, 0
            self._failed[what] = due, count


# Actor processes whose episodes are counted at a time.
_MAX_ACTORS = 1024
# What is kept of the last episodes, and checkpoints of an earlier version do not have.
_LATER = 'lengths', 'successes', 'adversary', 'takeovers'
# Counts of FlowStats that continue when a run is resumed.
_TOTALS = ('received', 'lost', 'rejected', 'stale', 'actor_restarts', 'bytes_in', 'bytes_out',
           'rewards', 'late_actions')


class Progress:
    """Counts of one learner; those of learner 0 include the others'.

    The other learners send what is new (:meth:`drain_report`), and learner 0 adds it
    (:meth:`merge_reports`).
    """

    def __init__(self, flow_stats: FlowStats, *, reports: bool = False) -> None:
        self.flow_stats, self._keeps_reports = flow_stats, reports
        self.episodes = self.restarts = 0
        #: Steps of the longest episode so far, until the first has ended.
        self.longest = 0
        self.reaction_time = ReactionTime()
        # Of the last episodes; adversary, of attacked ones: mean size of perturbations, their
        # number, and their share; takeovers, where a person may act: their share, and success.
        self._kept: dict[str, Any] = {name: deque(maxlen=100) for name in (
            'returns', 'lengths', 'successes', 'adversary', 'takeovers')}
        self._kept |= {'ages_ms': deque(maxlen=100_000), 'reaction_times': self.reaction_time}
        self._counters: dict[int, tuple[EpisodeCounter, int]] = {}
        self._totals_before: dict[str, Any] = dict.fromkeys(_TOTALS, 0)
        self._wall_before = 0.0
        self._started: float | None = None
        # New since the last report, and the last report of each other learner by rank.
        self._unreported: dict[str, list[Any]] = {name: [] for name in self._kept}
        self._reports: dict[int, dict[str, Any]] = {}

    def start_clock(self) -> bool:
        """Start the wall clock at the first trajectory; return whether this call started it."""
        if self._started is not None:
            return False
        self._started = time.monotonic()
        return True

    def record(self, unroll: Unroll) -> list[FinishedEpisode]:
        """Count age, bytes and episodes of an unroll that arrived; return what ended in it."""
        self._extend('ages_ms', [unroll.age_s * 1e3])
        self.flow_stats.bytes_in += unroll.num_bytes
        # Moved to the end: actors that are gone stay in front and are deleted first.
        counter, expected = self._counters.pop(unroll.start_id, (None, 0))
        if counter is None or counter.num_envs != unroll.num_envs:
            counter, expected = EpisodeCounter(unroll.num_envs), 0
        if unroll.sequence != expected:
            counter.forget()
        arrays = unroll.arrays
        self.flow_stats.rewards += float(arrays['rewards'].sum(dtype=np.float64))
        if 'reaction_time' in arrays:
            parts = arrays['reaction_time'].reshape(-1, len(PARTS))
            self._extend('reaction_times', parts.tolist())
        if 'late_actions' in arrays:
            self.flow_stats.late_actions += int(arrays['late_actions'].sum(dtype=np.int64))
        finished = counter.add(arrays)
        if not self.episodes:
            self.longest = max(self.longest, counter.longest)
        self._counters[unroll.start_id] = (counter, unroll.sequence + 1)
        if len(self._counters) > _MAX_ACTORS:
            del self._counters[next(iter(self._counters))]
        self._extend('returns', [episode.episode_return for episode in finished])
        self._extend('lengths', [episode.length for episode in finished])
        self._extend('successes', counter.take_successes())
        self._extend('adversary', [
            [float(episode.adversary_l2), int(episode.adversary_injects),
             float(episode.adversary_injects / episode.length)]
            for episode in finished if episode.adversary_l2 is not None])
        self._extend('takeovers', [
            [episode.intervened / episode.length, episode.success]
            for episode in finished if episode.intervened is not None])
        return finished

    def _extend(self, name: str, values: Sequence[Any]) -> None:
        self._kept[name].extend(values)
        if self._keeps_reports:
            self._unreported[name] += values
        if name == 'returns':
            self.episodes += len(values)

    def drain_report(self) -> str:
        """Return a report for learner 0: JSON, of what is new since the last call."""
        unreported, self._unreported = (
            self._unreported, {name: [] for name in self._unreported})
        flow_stats = self.flow_stats
        return json.dumps({
            **unreported, 'totals': {name: getattr(flow_stats, name) for name in _TOTALS},
            'lag': [flow_stats.lag_sum, flow_stats.lag_max, flow_stats.lag_count],
            'credits': [[key, *credit] for key, credit in flow_stats.credits().items()]})

    def merge_reports(self, reports: Mapping[int, str]) -> None:
        """Add the other learners' reports, by rank, and their actors' credits."""
        credits: dict[int, tuple[str, int]] = {}
        for rank, text in reports.items():
            report = self._reports[rank] = json.loads(text)
            for name in self._unreported:
                self._extend(name, report[name])
            credits.update({key: (name, used) for key, name, used in report['credits']})
        # Not added to the earlier ones: actors that are gone are in no report any more.
        self.flow_stats.other_credits = credits

    @property
    def mean_return(self) -> float:
        return _mean(self._kept['returns'])

    @property
    def mean_length(self) -> float:
        return _mean(self._kept['lengths'])

    @property
    def success_rate(self) -> float:
        return _mean(self._kept['successes'])

    @property
    def adversary(self) -> dict[str, float]:
        """Mean of the last 100 attacked episodes, {} before the first.

        ``l2`` is the mean size of perturbations, ``injects`` their number in an episode, and
        ``inject_share`` the share of observations that were perturbed.
        """
        if not self._kept['adversary']:
            return {}
        names = ('l2', 'injects', 'inject_share')
        return dict(zip(names, np.mean(self._kept['adversary'], axis=0).tolist(), strict=True))

    @property
    def takeovers(self) -> dict[str, float]:
        """Of the last 20 episodes, {} if a person has acted in none of the last 100.

        ``share`` is the mean share of steps at which a person acted, ``success_alone`` the share
        of episodes that succeeded without such a step.
        """
        kept = self._kept['takeovers']
        if not any(share for share, _ in kept):
            return {}
        # Few, so that a person sees soon what help was good for.
        last = list(kept)[-20:]
        return {'share': _mean([share for share, _ in last]),
                'success_alone': _mean([not share and bool(success) for share, success in last])}

    def reaches(self, mean_return: float) -> bool:
        return len(self._kept['returns']) == 100 and self.mean_return >= mean_return

    @property
    def wall_s(self) -> float:
        """Seconds since the first trajectory, summed over all starts of this run."""
        running = time.monotonic() - self._started if self._started is not None else 0.0
        return self._wall_before + running

    @property
    def totals(self) -> dict[str, Any]:
        return {name: self._totals_before[name] + getattr(self.flow_stats, name)
                + sum(each['totals'][name] for each in self._reports.values()) for name in _TOTALS}

    @property
    def lag(self) -> tuple[int, int, int]:
        """Sum, maximum and count of the trajectories' lag, policy versions."""
        flow_stats = self.flow_stats
        lags = [(flow_stats.lag_sum, flow_stats.lag_max, flow_stats.lag_count),
                *(each['lag'] for each in self._reports.values())]
        sums, largest, counts = zip(*lags, strict=True)
        return sum(sums), max(largest), sum(counts)

    @property
    def lag_mean(self) -> float:
        total, _, count = self.lag
        return total / count if count else 0.0

    def summary(self) -> dict[str, Any]:
        """Return the keys of summary.json about trajectories and episodes; see docs/runs.md."""
        totals, kept = self.totals, self._kept
        ages = np.percentile(kept['ages_ms'], (50, 99)).round(3).tolist() if kept['ages_ms'] else (
            None, None)
        return {
            'mean_return_100': round(self.mean_return, 3) if kept['returns'] else None,
            'success_rate_100': round(self.success_rate, 3) if kept['successes'] else None,
            'episodes': self.episodes,
            **{f'trajectories_{name}': totals[name]
               for name in ('received', 'lost', 'rejected', 'stale')},
            'policy_lag': {'mean': round(self.lag_mean, 3), 'max': self.lag[1]},
            'message_age_ms': dict(zip(('p50', 'p99'), ages, strict=True)),
            'wire_bytes': {'in': totals['bytes_in'], 'out': totals['bytes_out']},
            'reaction_time_ms': self.reaction_time.summary() or None,
            'late_actions': totals['late_actions'],
            'adversary': {name: round(value, 6) for name, value in self.adversary.items()} or None,
            'takeovers': {name: round(value, 3) for name, value in self.takeovers.items()} or None,
            'actor_restarts': totals['actor_restarts'],
            'learner_restarts': self.restarts,
        }

    def state(self) -> dict[str, Any]:
        return {
            **{name: list(self._kept[name])
               for name in ('returns', *_LATER)},
            'episodes': self.episodes,
            'wall_s': self.wall_s, 'learner_restarts': self.restarts, 'received': self.totals,
            'lag': list(self.lag),
            'ages_ms': [round(age, 3) for age in list(self._kept['ages_ms'])[-1000:]]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state`; raise KeyError or TypeError if it is of another version."""
        self._kept['returns'].extend(state['returns'])
        for name in _LATER:
            self._kept[name].extend(state.get(name, ()))
        self.episodes = state['episodes']
        self._wall_before = state['wall_s']
        self.restarts += state['learner_restarts']
        self._totals_before |= state['received']
        self.flow_stats.lag_sum, self.flow_stats.lag_max, self.flow_stats.lag_count = state['lag']
        self._kept['ages_ms'].extend(state['ages_ms'])


def _mean(values: Collection[float]) -> float:
    return float(np.mean(list(values))) if values else float('nan')
