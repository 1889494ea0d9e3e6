"""What a robot did in a step, also while a person commanded it, as an action of its contract."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.consent import YIELD_S
from vdl_ros.robots.contract import ActionPart, Contract


def executed_actions(
    commands: Sequence[tuple[float, Sequence[float] | NDArray[np.float64]]],
    ticks: NDArray[np.float64], contract: Contract,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each tick but the last the action, and its values in the contract's units.

    An action is what is commanded until the next tick, as of :func:`executed_values`; ``commands``
    are times, s, and values, [parts] or more.
    """
    parts = contract.actions.parts
    values = executed_values(
        np.array([time for time, _ in commands], np.float64),
        np.array([each[:len(parts)] for _, each in commands]).reshape(-1, len(parts)),
        ticks, parts)
    return contract.actions.chosen(values).astype(float), values


def executed_values(
    times: NDArray[np.float64], given: NDArray[np.float64], ticks: NDArray[np.float64],
    parts: Sequence[ActionPart],
) -> NDArray[np.float64]:
    """Return what was commanded between ticks, float64 [ticks - 1, parts].

    It is the mean until the next tick, of ``levels`` the nearest one; before the first command it
    is neutral, of positions this command. ``given`` are the commands, float64 [commands, parts].
    """
    neutral = np.array([part.neutral for part in parts])
    first = given[times.argmin()] if len(given) else neutral
    given = np.concatenate([[np.where(np.isnan(neutral), first, neutral)], given])
    times = np.concatenate([[-np.inf], times])
    order = np.argsort(times, kind='stable')
    times, given = times[order], given[order]
    # The integral of what is commanded, from the first tick.
    edges = np.union1d(ticks, times[(times > ticks[0]) & (times < ticks[-1])])
    in_force = given[np.searchsorted(times, edges[:-1], side='right') - 1]
    integral = np.concatenate([
        np.zeros((1, len(parts))), np.cumsum(in_force * np.diff(edges)[:, None], axis=0)])
    at_ticks = integral[np.searchsorted(edges, ticks)]
    means = np.diff(at_ticks, axis=0) / np.diff(ticks)[:, None]
    return np.stack([
        np.array(part.levels)[part.nearest(mean)] if part.levels
        else mean.clip(part.low, part.high) for part, mean in zip(parts, means.T, strict=True)],
        axis=1)


def allowed(values: NDArray[np.float64], contract: Contract) -> NDArray[np.float64]:
    """Return the values of an action, float64 [parts], that are nearest to these."""
    return np.array([part.levels[int(part.nearest(value))] if part.levels
                     else min(max(value, part.low), part.high)
                     for part, value in zip(contract.actions.parts, values, strict=True)])


class Takeover:
    """A person who commands the robot within an episode, and gives it back by a pause.

    The pause is ``YIELD_S`` of the robot's clock, whose times all methods take, s.

    Attributes:
        is_in_force: the latest command is the person's.
    """

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._commands: list[tuple[float, NDArray[np.float64]]] = []
        self._ticked_at = self._person_at = -math.inf
        # Whether a person has acted in this step.
        self._is_persons = self.is_in_force = False

    def begin(self, now: float) -> None:
        """Begin an episode, in which nothing was commanded yet."""
        self._commands.clear()
        self._ticked_at, self._person_at = now, -math.inf
        self._is_persons = self.is_in_force = False

    def is_active(self, now: float) -> bool:
        """Return whether a person has the robot."""
        return now - self._person_at < YIELD_S

    def is_left(self, now: float, timeout: float) -> bool:
        """Return whether a person's command is in force who has sent none for ``timeout``.

        It must not be held for an agent that is late, either.
        """
        return self.is_in_force and now - self._person_at >= min(timeout, YIELD_S)

    def on_action(self, values: NDArray[np.float64], now: float) -> bool:
        """Take the agent's action; return whether it is sent: not while a person has the robot."""
        if self.is_active(now):
            self._is_persons = True
            return False
        self._commands.append((now, values))
        self.is_in_force = False
        return True

    def on_person(self, values: NDArray[np.float64], now: float) -> None:
        self._commands.append((now, values))
        self._person_at, self._is_persons, self.is_in_force = now, True, True

    def on_stop(self, values: NDArray[np.float64], now: float) -> None:
        """Take the neutral action that is sent for a person who is silent."""
        self._commands.append((now, values))
        self.is_in_force = False

    def end_tick(self, now: float) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the action since the last tick and its values, [parts]; None: the agent's own."""
        since, self._ticked_at, commands = self._ticked_at, now, self._commands
        self._commands = commands[-1:]
        if not self._is_persons:
            return None
        actions, values = executed_actions(commands, np.array([since, now]), self._contract)
        return actions[0], values[0]

    def end_step(self) -> None:
        """Begin a step of which the agent has seen the observation."""
        self._is_persons = False
