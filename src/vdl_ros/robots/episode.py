"""An episode of a robot: its state, how it begins, what stops it, and what the agent gets."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.robots.contract import StopTopic
from vdl_ros.robots.task import Measured


class ResetError(Exception):
    """A robot that was not reset; the message is one line."""


class Resetter:
    """Base class of what brings a robot to the start of an episode."""

    #: Whether a person does it, who may command the robot meanwhile.
    by_hand = False
    #: Whether it commands the robot itself, by :meth:`act`, and no controller does it.
    acts = False
    #: Whether somebody who was told to end has yet to answer.
    is_ending = False

    def begin(self, random: np.random.Generator) -> None: ...

    def act(self, measured: Measured) -> NDArray[np.float64]:
        """Return what the robot is commanded to until the next tick, float64 [parts]."""
        raise NotImplementedError

    def is_done(self, values: dict[str, float]) -> bool:
        """Return whether it is reset, by the latest features by name; ResetError: it cannot be."""
        raise NotImplementedError

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    def confirm(self) -> bool:
        """Take a person's word that the robot was reset; return whether it waited for that."""
        return False


class StopState:
    """Whether one of a robot's stops lets it move; ``clock`` is monotonic, s."""

    def __init__(self, stop: StopTopic, clock: Callable[[], float]) -> None:
        self._stop, self._clock = stop, clock
        self._publishers = 0
        self._heard_at = math.nan
        self.is_pressed = False

    def on_message(self, pressed: bool, age: float = 0.0) -> None:
        self.is_pressed, self._heard_at = pressed, self._clock() - age
        # It may be counted later.
        self._publishers = max(1, self._publishers)

    def on_publishers(self, count: int) -> None:
        self._publishers = count

    @property
    def problem(self) -> str:
        """Why the robot must not move, or ''."""
        stop = self._stop
        if self.is_pressed:
            return f'{stop.topic}: {stop.field}'
        if stop.field and self._publishers > 1:
            return (f'{stop.topic}: {self._publishers} publishers, whose stops cannot be told '
                    'apart; give each a topic of its own')
        if math.isnan(self._heard_at):
            return f'no message on {stop.topic} yet' if stop.required else ''
        if not self._publishers:
            return f'nobody publishes {stop.topic}'
        if stop.timeout and self._clock() - self._heard_at > stop.timeout:
            return f'{stop.topic}: silent for {stop.timeout:g} s'
        return ''


class State(Enum):
    """What a robot does."""

    WAITING = 'waiting'
    RESETTING = 'resetting'
    SETTLING = 'settling'
    RUNNING = 'running'
    OVER = 'over'


@dataclass(frozen=True)
class Result:
    """What the agent gets after a tick.

    Attributes:
        observation: of the space of :class:`Observer`.
        is_first: it is the first of an episode; then the others have no meaning.
        observation_age: of the oldest measurement in it, s.
        action_age: time from the observation before to the action that followed, s.
        late: number of ticks at which this action was not there.
        arrived_wall: when its latest measurement arrived, of the monotonic clock, s.
        observation_lag: time from that measurement to its arrival, s.
        executed: the action that a person commanded instead, float64 [parts], each -1 to 1 or the
            number of its level; None: nobody did.
    """

    observation: NDArray[Any]
    is_first: bool
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    observation_age: float = 0.0
    action_age: float = 0.0
    late: int = 0
    arrived_wall: float = 0.0
    observation_lag: float = 0.0
    executed: NDArray[np.float64] | None = None


@dataclass
class Aim:
    """What has become of a person's target; ``place`` is float64 [3], m in the task's frame.

    ``at`` is when it was asked for, s; ``reaction`` and ``reached`` are the times from then to the
    first motion and to success, s, NaN before.
    """

    place: NDArray[np.float64]
    at: float
    reaction: float = math.nan
    reached: float = math.nan


@dataclass
class Episode:
    """An episode that runs.

    Attributes:
        began, observed: when it began, and when its latest observation was made, s.
        history: actions in force at the latest ticks, the newest first.
        before: what was known at the latest observation.
        action_age: time from this observation to its action, s; None: there is none yet.
        late: ticks since this observation at which there was none.
        was_late: there was one before at which there was none.
        broken: feature whose limit is broken, '' for none.
        judged: what a person says of it, 'success' or 'failure'; '' for nothing.
    """

    began: float
    history: deque[NDArray[np.float64]]
    observed: float = -np.inf
    before: Measured | None = None
    action_age: float | None = None
    steps: int = 0
    late: int = 0
    was_late: bool = False
    broken: str = ''
    judged: str = ''

    @property
    def is_over(self) -> bool:
        """Whether the agent sends only neutral actions until its end."""
        return bool(self.broken or self.judged)
