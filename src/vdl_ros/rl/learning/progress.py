"""What a run has come to: trajectories and episodes of all learners, over all its starts."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.episode_returns import EpisodeCounter
from vdl_ros.rl.data.unroll import Unroll

__all__ = ['Progress', 'status_line']

# Processes whose episodes are followed at a time.
_MOST_ACTORS = 1024
# Counts of the flow_stats that go on over all starts of a run.
_TOTALS = ('received', 'lost', 'rejected', 'stale', 'actor_restarts', 'bytes_in', 'bytes_out')


class Progress:
    """
    Accounts of one learner; those of the first have the others' in them.

    The others tell what is new (:meth:`tell`), and the first hears it (:meth:`hear`).

    Attributes:
        flow_stats: of the trajectories of this learner's actors.
        episodes: that have ended.
        restarts: of the learner.
    """

    def __init__(self, flow_stats: FlowStats, *, tells: bool = False) -> None:
        """Begin with nothing; one that ``tells`` keeps what is new until it has told it."""
        self.flow_stats, self._tells = flow_stats, tells
        self.episodes = self.restarts = 0
        self._returns: deque[float] = deque(maxlen=100)
        self._lengths: deque[int] = deque(maxlen=100)
        self._counters: dict[int, tuple[EpisodeCounter, int]] = {}
        self._ages_ms: deque[float] = deque(maxlen=100_000)
        self._totals_before = dict.fromkeys(_TOTALS, 0)
        self._wall_before = 0.0
        self._started: float | None = None
        # What was not told yet, and what was heard last, by rank.
        self._untold: dict[str, list[float]] = {'returns': [], 'lengths': [], 'ages_ms': []}
        self._heard: dict[int, dict[str, Any]] = {}

    def begin(self) -> bool:
        """Note that a trajectory has come; return whether it is the first one of this start."""
        if self._started is not None:
            return False
        self._started = time.monotonic()
        return True

    def account(self, unroll: Unroll) -> None:
        """Count age, bytes and episodes of an unroll that arrived."""
        self._see('ages_ms', [unroll.age_s * 1e3])
        self.flow_stats.bytes_in += unroll.num_bytes
        # Taken out and put back: the newest is last, and the dead ones are the first to go.
        counter, expected = self._counters.pop(unroll.start_id, (None, 0))
        if counter is None or counter.num_envs != unroll.num_envs:
            counter = EpisodeCounter(unroll.num_envs)
        elif unroll.sequence != expected:
            counter.forget()
        arrays = unroll.arrays
        finished = counter.add(
            arrays['rewards'], arrays['terminated'],
            arrays['truncated'], arrays['is_reset'])
        self._counters[unroll.start_id] = (counter, unroll.sequence + 1)
        if len(self._counters) > _MOST_ACTORS:
            del self._counters[next(iter(self._counters))]
        self._see('returns', [episode.episode_return for episode in finished])
        self._see('lengths', [episode.length for episode in finished])

    def _see(self, name: str, values: Sequence[float]) -> None:
        getattr(self, f'_{name}').extend(values)
        if self._tells:
            self._untold[name] += values
        if name == 'returns':
            self.episodes += len(values)

    def tell(self) -> str:
        """Return what another learner must know: JSON, of what is new since the last call."""
        untold, self._untold = self._untold, {name: [] for name in self._untold}
        flow_stats = self.flow_stats
        return json.dumps({
            **untold, 'totals': {name: getattr(flow_stats, name) for name in _TOTALS},
            'lag': [flow_stats.lag_sum, flow_stats.lag_max, flow_stats.lag_count],
            'credits': [[key, *credit] for key, credit in flow_stats.credits().items()]})

    def hear(self, told: Mapping[int, str]) -> None:
        """Take over what other learners told, by rank; the actors' credits into the flow_stats."""
        for rank, text in told.items():
            found = self._heard[rank] = json.loads(text)
            for name in self._untold:
                self._see(name, found[name])
            self.flow_stats.other_credits.update(
                {key: (name, used) for key, name, used in found['credits']})

    @property
    def mean_return(self) -> float:
        """Mean return of the last 100 episodes; NaN before the first."""
        return float(np.mean(self._returns)) if self._returns else float('nan')

    @property
    def mean_length(self) -> float:
        """Mean length of the last 100 episodes, agent steps; NaN before the first."""
        return float(np.mean(self._lengths)) if self._lengths else float('nan')

    def reaches(self, mean_return: float) -> bool:
        """Return whether there were 100 episodes, and the last of them were so good."""
        return len(self._returns) == 100 and self.mean_return >= mean_return

    @property
    def wall_s(self) -> float:
        """Seconds since the first trajectory came, over all the starts of this run."""
        running = time.monotonic() - self._started if self._started is not None else 0.0
        return self._wall_before + running

    @property
    def totals(self) -> dict[str, int]:
        """The ledgers' counts over all starts."""
        return {name: self._totals_before[name] + getattr(self.flow_stats, name)
                + sum(each['totals'][name] for each in self._heard.values()) for name in _TOTALS}

    @property
    def lag(self) -> tuple[int, int, int]:
        """Sum, maximum and count of the trajectories' lag, policy versions."""
        flow_stats = self.flow_stats
        lags = [(flow_stats.lag_sum, flow_stats.lag_max, flow_stats.lag_count),
                *(each['lag'] for each in self._heard.values())]
        sums, largest, counts = zip(*lags, strict=True)
        return sum(sums), max(largest), sum(counts)

    @property
    def lag_mean(self) -> float:
        """Mean lag in policy versions; 0 before the first."""
        total, _, count = self.lag
        return total / count if count else 0.0

    def _age_percentile(self, percent: float) -> float | None:
        """Return an age that so many of the trajectories do not exceed, ms."""
        return round(float(np.percentile(self._ages_ms, percent)), 3) if self._ages_ms else None

    def summary(self) -> dict[str, Any]:
        """Return what summary.json says of trajectories and episodes; see docs/runs.md."""
        totals = self.totals
        return {
            'mean_return_100': round(self.mean_return, 3) if self._returns else None,
            'episodes': self.episodes,
            'trajectories_received': totals['received'],
            'trajectories_lost': totals['lost'],
            'trajectories_rejected': totals['rejected'],
            'trajectories_stale': totals['stale'],
            'policy_lag': {'mean': round(self.lag_mean, 3), 'max': self.lag[1]},
            'message_age_ms': {'p50': self._age_percentile(50), 'p99': self._age_percentile(99)},
            'wire_bytes': {'in': totals['bytes_in'], 'out': totals['bytes_out']},
            'actor_restarts': totals['actor_restarts'],
            'learner_restarts': self.restarts,
        }

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold to go on from here."""
        return {
            'returns': list(self._returns), 'lengths': list(self._lengths),
            'episodes': self.episodes, 'wall_s': self.wall_s,
            'learner_restarts': self.restarts, 'received': self.totals, 'lag': list(self.lag),
            'ages_ms': [round(age, 3) for age in list(self._ages_ms)[-1000:]]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """
        Go on from a checkpoint's state.

        Raises:
            KeyError, TypeError: it is of another version.
        """
        self._returns.extend(state['returns'])
        # Checkpoints of an earlier version have none.
        self._lengths.extend(state.get('lengths', ()))
        self.episodes = state['episodes']
        self._wall_before = state['wall_s']
        self.restarts += state['learner_restarts']
        self._totals_before |= state['received']
        self.flow_stats.lag_sum, self.flow_stats.lag_max, self.flow_stats.lag_count = state['lag']
        self._ages_ms.extend(state['ages_ms'])


def status_line(
    *, agent_steps: int, total_steps: int, steps_per_s: float, mean_return: float,
    lag_mean: float, lag_max: int, lost: int,
) -> str:
    """Return one line of progress for a person."""
    shown = '-' if math.isnan(mean_return) else f'{mean_return:.1f}'
    return (f'steps {agent_steps:>9,} / {total_steps:,}   {steps_per_s:>7,.0f}/s   '
            f'return {shown:>7}   lag {lag_mean:.1f} (max {lag_max})   lost {lost}')
