"""Policies of other programs: what such a one is told of a robot, and what it answers; no ROS.

docs/external_policies.md has the protocol.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from gymnasium import spaces
from msgspec.structs import replace
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import MAX_NUMBER
from vdl_ros.common.schema import converted
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.task import Measured, Task, make_task, task_of

# Actions of an answer, and numbers of one of them.
_MAX_ACTIONS, _MAX_NUMBERS = 1000, 1000
# In an observation, which has no NaN: not measured.
_UNKNOWN = -MAX_NUMBER
# Observations whose answers may still come.
_MAX_ASKED = 1000


class _MeasuredTask(Task):
    """What was measured is the observation: features, ages, target and time, float64."""

    @property
    def observation_space(self) -> spaces.Box:
        size = len(self.contract.features) + len(self.contract.inputs) + 4
        return spaces.Box(-np.inf, np.inf, (size,), np.float64)

    def observe(self, measured: Measured) -> NDArray[Any]:
        super().observe(measured)
        target = [math.nan] * 3 if self.target is None else self.target
        found = np.array([
            *(measured.values[each.name] for each in self.contract.features),
            *(measured.ages[key] for key in self.contract.inputs), *target, measured.time])
        return np.where(np.isnan(found), _UNKNOWN, found)


def make_measured_task(contract: Contract) -> Task:
    """Return the contract's task, with another observation, for :meth:`Told.of`."""
    return make_task(contract, type('MeasuredTask', (_MeasuredTask, task_of(contract)), {}))


def without_observed_images(contract: Contract) -> Contract:
    """Return a contract whose images are no part of observations: the policy takes the topics'."""
    return replace(contract, images=tuple(
        replace(each, observed=False) for each in contract.images))


class Told(msgspec.Struct):
    """An observation for a policy; null in JSON: not measured.

    Attributes:
        id: of this observation, for its answer.
        is_first: it begins an episode.
        time: since the episode began, s.
        rate: of the robot's steps, Hz.
        state: features of the contract by name, in their units.
        ages: by topic or image of the contract, s.
        target: place of the task's goal, m; null: it has none.
        images: topics by name.
    """

    id: str
    is_first: bool
    time: float
    rate: float
    state: dict[str, float]
    ages: dict[str, float]
    target: list[float] | None
    images: dict[str, str]

    @classmethod
    def of(
        cls, observation: NDArray[np.float64], contract: Contract, name: str, is_first: bool,
        images: Mapping[str, str],
    ) -> 'Told':
        values = np.where(observation == _UNKNOWN, math.nan, observation).tolist()
        features, inputs = len(contract.features), len(contract.inputs)
        target = values[-4:-1]
        return cls(
            name, is_first, values[-1], contract.rate,
            {each.name: value for each, value in zip(
                contract.features, values[:features], strict=True)},
            dict(zip(contract.inputs, values[features:features + inputs], strict=True)),
            None if math.isnan(sum(target)) else target, dict(images))

    @classmethod
    def at_rest(
        cls, contract: Contract, name: str, images: Mapping[str, str], values: Mapping[str, float],
        ages: Mapping[str, float],
    ) -> 'Told':
        """Return an observation for which no action is wanted: the robot waits, or is reset."""
        return cls(name, True, 0.0, contract.rate,
                   {each.name: values.get(each.name, math.nan) for each in contract.features},
                   {key: ages.get(key, math.nan) for key in contract.inputs}, None, dict(images))


_Row = Annotated[list[float], msgspec.Meta(max_length=_MAX_NUMBERS)]


class Answer(msgspec.Struct):
    """Actions from an observation on, one for each step, in the units of the contract."""

    id: str
    actions: Annotated[list[_Row], msgspec.Meta(min_length=1, max_length=_MAX_ACTIONS)]
    names: list[str] = []

    @classmethod
    def read(cls, text: str, contract: Contract) -> 'tuple[str, NDArray[np.float64]]':
        """Return the id, and actions float64 [N, parts]; ValueError: it is none, one line.

        ``names`` may have what the contract only records; without them they are its parts.
        """
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f'no JSON: {error}') from None
        answer = converted(found, cls, 'action', ValueError)
        parts = [part.name for part in contract.actions.parts]
        known = parts + [part.name for part in contract.actions.recorded]
        names = answer.names or parts
        if sorted({*names} & {*parts}) != sorted(parts) or {*names} - {*known} or (
                len({*names}) < len(names)):
            raise ValueError(f'names: {names} is not allowed: {", ".join(known)}')
        if any(len(row) != len(names) for row in answer.actions):
            raise ValueError(f'actions: rows of other lengths are not allowed: {len(names)} '
                             'numbers each')
        rows = np.array(answer.actions, np.float64)[:, [names.index(part) for part in parts]]
        low, high = np.array([(part.low, part.high) for part in contract.actions.parts]).T
        # What is far outside would be infinite in a sum.
        return answer.id, np.clip(rows, low, high)


class _Chunk(NamedTuple):
    """Actions from a step on, float64 [N, parts]."""

    begin: int
    rows: NDArray[np.float64]


class Chunks:
    """The actions that a policy has given for steps ahead.

    Args:
        rate: of the steps, Hz.
        horizon: an action is used up to so long after its observation, s.
        ensemble: coefficient m of temporal ensembling (ACT, Zhao et al. 2023, arXiv:2304.13705):
            an action is the mean of all that were given for its step, the i-th oldest weighted
            with exp(-m i). Below 0 it is that of the newest observation.
    """

    def __init__(self, rate: float, horizon: float, ensemble: float) -> None:
        self._rate, self._ensemble = rate, ensemble
        self._longest = max(1, round(horizon * rate))
        self._asked: dict[str, int] = {}
        self._chunks: list[_Chunk] = []

    def clear(self) -> None:
        """Begin an episode, for which no earlier answer is."""
        self._asked.clear()
        self._chunks.clear()

    def ask(self, name: str, time: float) -> int:
        """Take the id and the time in its episode, s, of an observation; return its step."""
        step = round(time * self._rate)
        self._asked[name] = step
        if len(self._asked) > _MAX_ASKED:
            del self._asked[next(iter(self._asked))]
        return step

    def answer(self, name: str, rows: NDArray[np.float64]) -> int | None:
        """Take actions from an observation on, float64 [N, parts]; return its step.

        None: it is of an earlier episode, or has been answered.
        """
        begin = self._asked.pop(name, None)
        if begin is not None:
            self._chunks.append(_Chunk(begin, rows[:self._longest]))
            self._chunks.sort(key=lambda each: each.begin)
        return begin

    def at(self, step: int) -> NDArray[np.float64] | None:
        """Return the action of a step, float64 [parts]; None: there is none."""
        self._chunks = [each for each in self._chunks if step < each.begin + len(each.rows)]
        rows = [each.rows[step - each.begin] for each in self._chunks if each.begin <= step]
        if not rows:
            return None
        if self._ensemble < 0.0:
            newest: NDArray[np.float64] = rows[-1]
            return newest
        weights = np.exp(-self._ensemble * np.arange(len(rows)))
        mean: NDArray[np.float64] = np.average(rows, axis=0, weights=weights)
        return mean
