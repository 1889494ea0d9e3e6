"""
What a robot's task would have observed while somebody else moved the robot.

The readings of an episode are replayed at the rate of the contract, as ``robots/session.py`` takes
them in real time. The action of a tick is the mean of what was commanded until the next one, and
the nearest level where actions have levels. The target is the place that was reached, as in
"final" of hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495); see
:meth:`vdl_ros.robots.task.Task.begin_demonstrated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.demonstrations.errors import DemonstrationError
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.measured import HISTORY, Measured
from vdl_ros.robots.task import Task

__all__ = ['Replayed', 'RobotEpisode', 'StateReading', 'replay']

# The last rest of an episode is learned for so long, and rests within it, s: what is observed does
# not say why a person waits.
_LAST_REST_S, _REST_S = 1.0, 0.5
# Gaps in the clocks of a bag must not make ticks without end.
_LONGEST_S = 3600.0


class StateReading(NamedTuple):
    """
    A message of the robot's state.

    ``at`` is when it arrived, ``stamp`` its own time, s; ``values`` are features by name.
    """

    at: float
    stamp: float
    values: dict[str, float]


@dataclass
class RobotEpisode:
    """
    An episode as it was recorded.

    Attributes:
        source: where it is from, for messages.
        readings: by key of the contract's topics, in the order of their arrival.
        commands: time, s, and numbers of each command, in their order.
    """

    source: str
    readings: dict[str, list[StateReading]] = field(default_factory=dict)
    commands: list[tuple[float, tuple[float, ...]]] = field(default_factory=list)


class Replayed(NamedTuple):
    """Observations, float32 [N, D], and actions of the contract's action space, [N, A]."""

    observations: NDArray[np.float32]
    actions: NDArray[np.float64]


def replay(episode: RobotEpisode, contract: Contract, task: Task) -> Replayed:
    """
    Return what was observed and done, from the first motion to a second after the last one.

    Raises:
        DemonstrationError: there is no motion, or a topic without messages.
    """
    missing = [topic.topic for key, topic in contract.topics.items()
               if not episode.readings.get(key)]
    if missing:
        raise DemonstrationError(f'{episode.source}: no message on {", ".join(missing)}')
    begin = max(each[0].at for each in episode.readings.values())
    end = min(each[-1].at for each in episode.readings.values())
    count = int((end - begin) * contract.rate)
    if not 1 < count <= _LONGEST_S * contract.rate:
        raise DemonstrationError(f'{episode.source}: its messages span {end - begin:.3g} s; '
                                 f'from two steps of {1.0 / contract.rate:g} s to an hour')
    ticks = begin + np.arange(count + 1) / contract.rate
    actions, values = _actions(episode.commands, ticks, contract)
    neutral = np.array(contract.actions.neutral)
    moves = np.any(np.abs(values - neutral) > 1e-9, axis=1)
    if not moves.any():
        raise DemonstrationError(f'{episode.source}: no command moves the robot')
    first, last = int(np.argmax(moves)), count - 1 - int(np.argmax(moves[::-1]))
    stop = min(count, last + 1 + round(_LAST_REST_S * contract.rate))
    history = np.concatenate([np.tile(neutral, (HISTORY, 1)), values[first:]])
    measured = _measure(episode, ticks[first:stop], history)
    task.begin_demonstrated(measured)
    observations = np.stack([task.observe(each) for each in measured])
    kept = _kept(moves[first:stop], last - first, round(_REST_S * contract.rate))
    kept &= [all(each.ages[key] <= topic.timeout for key, topic in contract.topics.items())
             for each in measured]
    return Replayed(observations[kept], actions[first:stop][kept])


def _actions(
    commands: Sequence[tuple[float, tuple[float, ...]]], ticks: NDArray[np.float64],
    contract: Contract,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each tick but the last the action, and its values in the contract's units."""
    parts = contract.actions.parts
    times = np.array([-np.inf, *(time for time, _ in commands)])
    given = np.array([contract.actions.neutral, *(each[:len(parts)] for _, each in commands)])
    order = np.argsort(times, kind='stable')
    times, given = times[order], given[order]
    # The integral of what is commanded, from the first tick.
    edges = np.union1d(ticks, times[(times > ticks[0]) & (times < ticks[-1])])
    in_force = given[np.searchsorted(times, edges[:-1], side='right') - 1]
    integral = np.concatenate([
        np.zeros((1, len(parts))), np.cumsum(in_force * np.diff(edges)[:, None], axis=0)])
    at_ticks = integral[np.searchsorted(edges, ticks)]
    means = np.diff(at_ticks, axis=0) / np.diff(ticks)[:, None]
    if not contract.actions.is_discrete:
        low, high = (np.array([getattr(part, end) for part in parts]) for end in ('low', 'high'))
        values = means.clip(low, high)
        return 2.0 * (values - low) / (high - low) - 1.0, values
    indices = np.stack([
        np.abs(means[:, [index]] - np.array(part.levels)).argmin(axis=1)
        for index, part in enumerate(parts)], axis=1)
    return indices.astype(float), np.stack([
        np.array(part.levels)[indices[:, index]] for index, part in enumerate(parts)], axis=1)


def _measure(
    episode: RobotEpisode, ticks: NDArray[np.float64], history: NDArray[np.float64],
) -> list[Measured]:
    """Return what was known at each tick; ``history`` begins ``HISTORY`` before the first."""
    places = {key: np.searchsorted([each.at for each in readings], ticks, side='right') - 1
              for key, readings in episode.readings.items()}
    found = []
    for index, tick in enumerate(ticks.tolist()):
        newest = {key: episode.readings[key][place[index]] for key, place in places.items()}
        found.append(Measured(
            {name: value for each in newest.values() for name, value in each.values.items()},
            {key: each.stamp for key, each in newest.items()},
            {key: max(0.0, tick - each.stamp) for key, each in newest.items()},
            tick - float(ticks[0]), history[index:index + HISTORY][::-1]))
    return found


def _kept(moves: NDArray[np.bool_], last: int, rest: int) -> NDArray[np.bool_]:
    """Return the steps that are learned: not what is beyond ``rest`` of a rest before the last."""
    kept = np.ones(len(moves), np.bool_)
    still = 0
    for index in range(last):
        still = 0 if moves[index] else still + 1
        kept[index] = still <= rest
    return kept
