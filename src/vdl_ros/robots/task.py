"""What is known of a robot at one tick of its clock."""

import importlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from msgspec.structs import replace
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import MirroredBox
from vdl_ros.common.quoting import cause, quoted
from vdl_ros.common.settings import SettingError, suggestion
from vdl_ros.robots.contract import Contract, ContractError, FunctionCall

#: Number of latest actions that are known.
HISTORY = 16


@dataclass(frozen=True)
class Measured:
    """The latest measurements, and the actions before them.

    Attributes:
        values: features by name, in their units; NaN for one that is optional and missing.
        stamps: times of the measurements by topic or image, of the clock of the stamps, s.
        ages: times since the measurements by topic or image, s.
        time: time since the episode began, s.
        actions: those in force in the latest ticks, the newest first, float64 [HISTORY, parts];
            the neutral one before the episode.
        images: newest frames by name, after crop and size, uint8 [H, W, 1 or 3].
    """

    values: dict[str, float]
    stamps: dict[str, float]
    ages: dict[str, float]
    time: float
    actions: NDArray[np.float64]
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)

    def __getitem__(self, feature: str) -> float:
        return self.values[feature]


#: Number of latest actions in the observation of :class:`Task`.
LAST_ACTIONS = 2


class Task:
    """Base class of tasks: the observation is the features, then the goal, ages and last actions.

    Features are scaled so that ``low`` and ``high`` of the contract are -1 and 1, and clipped; a
    missing one is 0. An age is divided by the time-out of its topic. Actions are scaled like
    features. Images stand beside these numbers, by :class:`~vdl_ros.robots.observer.Observer`.
    Subclasses override :meth:`reward`, and what else they need; for each step
    :meth:`reward`, :meth:`success`, :meth:`failure` and :meth:`observe` are called once, in this
    order.
    """

    #: Names of the numbers that :meth:`goal` returns.
    goals: Sequence[str] = ()
    #: Place of this episode's goal in ``frame``, x, y, z in m, for people to see; None: no place.
    target: Sequence[float] | NDArray[np.float64] | None = None
    frame = 'base_link'
    #: How far from it is what should be there, m, at the latest step; NaN: unknown.
    distance = math.nan

    def __init__(self, contract: Contract, **arguments: Any) -> None:
        if arguments:
            raise TypeError(f'{type(self).__name__} takes no arguments, not {sorted(arguments)}')
        self.contract = contract
        features, parts = contract.features, contract.actions.parts
        self._names = [feature.name for feature in features]
        self._low, self._span = _scale([(each.low, each.high) for each in features])
        self._action_low, self._action_span = _scale([(each.low, each.high) for each in parts])
        size = (len(features) + len(self.goals) + len(contract.observed_inputs)
                + LAST_ACTIONS * len(parts))
        self._space = self._mirrored(size) if contract.mirror else spaces.Box(
            -1.0, 1.0, (size,), np.float32)

    def _mirrored(self, size: int) -> MirroredBox:
        """Return the space, in which what the contract names changes its sign in a mirror."""
        contract, parts = self.contract, self.contract.actions.parts
        if contract.observed_images:
            raise ContractError(f'{contract.name}.yaml: mirror: {", ".join(contract.mirror)} is '
                                'not allowed with images that are observed')
        for name in contract.mirror:
            ends: list[tuple[float, ...]] = [
                (each.low, each.high) for each in contract.features if each.name == name]
            # Of levels each has its image at the other end.
            ends += [each.levels or (each.low, each.high) for each in parts if each.name == name]
            if not ends and name not in self.goals:
                known = dict.fromkeys([*self._names, *self.goals, *(each.name for each in parts)])
                raise ContractError(f'{contract.name}.yaml: mirror: {quoted(name)} is not '
                                    f'allowed: {", ".join(known)}{suggestion(name, known)}')
            for each in ends:
                if any(low != -high for low, high in zip(each, each[::-1], strict=True)):
                    raise ContractError(f'{contract.name}.yaml: mirror: {name} is not allowed, '
                                        f'with {[*each]}: what is from -a to a')

        def signs(names: Iterable[str]) -> list[int]:
            return [-1 if name in contract.mirror else 1 for name in names]

        actions = signs(part.name for part in parts)
        numbers = [*signs([*self._names, *self.goals]), *[1] * len(contract.observed_inputs),
                   *actions * LAST_ACTIONS]
        return MirroredBox(np.full(size, -1.0), np.ones(size), numbers, actions)

    @staticmethod
    def description(contract: Contract) -> dict[str, Any]:
        """Return what a checkpoint says of the task, so that it may act in others like it."""
        return {}

    @staticmethod
    def check_policy(contract: Contract, described: Mapping[str, Any]) -> None:
        """Check by what a checkpoint says of its task that its policy may act in a contract's.

        For tasks with a description; ValueError: it may not.
        """

    @property
    def observation_space(self) -> spaces.Box:
        return self._space

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        """Begin an episode: draw its goal."""

    def begin_demonstrated(self, measured: Sequence[Measured]) -> None:
        """Begin an episode that was played by another; its goal is what was reached at its end."""
        draws = type(self).begin is not Task.begin
        if (self.goals or draws) and type(self).begin_demonstrated is Task.begin_demonstrated:
            raise ContractError(
                f'{self.contract.name}: demonstrations need {type(self).__name__}.'
                'begin_demonstrated, which sets the goal that was reached')

    def aim(self, place: NDArray[np.float64], values: Mapping[str, float]) -> None:
        """Take a person's place of the goal, float64 [3], m in ``frame``, for all that follows.

        ``values`` are the latest features. ValueError: it is none; one line.
        """
        raise ValueError(f'{self.contract.name} takes no targets')

    def goal(self, measured: Measured) -> Sequence[float]:
        """Return the numbers of ``goals``, -1 to 1; others are clipped."""
        return ()

    def command(self, action: NDArray[np.float64], measured: Measured) -> NDArray[np.float64]:
        """Return what is sent for an action of the agent, float64 [parts]: the action itself."""
        return action

    def observe(self, measured: Measured) -> NDArray[np.float32]:
        values = np.array([measured.values[name] for name in self._names])
        timeouts = [topic.timeout for topic in self.contract.observed_inputs.values()]
        ages = [measured.ages[key] for key in self.contract.observed_inputs]
        actions = measured.actions[:LAST_ACTIONS] - self._action_low
        found = np.concatenate([
            np.nan_to_num((values - self._low) / self._span * 2.0 - 1.0), self.goal(measured),
            np.divide(ages, timeouts), (actions / self._action_span * 2.0 - 1.0).ravel()])
        return np.asarray(np.clip(found, -1.0, 1.0), np.float32)

    def reward(self, before: Measured, after: Measured) -> float:
        """Return the reward of a step, from what was known before it and after it."""
        raise NotImplementedError

    def success(self, after: Measured) -> bool:
        """Return whether the aim is reached, which ends the episode."""
        return False

    def failure(self, after: Measured) -> bool:
        """Return whether the episode has failed, which ends it."""
        return False


class _FunctionTask(Task):
    def __init__(self, contract: Contract) -> None:
        super().__init__(contract)
        self._reward, self._success, self._failure = (
            partial(_find(contract, key, call), **call.arguments)
            if call and call.function else lambda *_: False
            for key, call in (('reward', contract.reward), ('success', contract.success),
                              ('failure', contract.failure)))

    def reward(self, before: Measured, after: Measured) -> float:
        return float(self._reward(before, after))

    def success(self, after: Measured) -> bool:
        return bool(self._success(after))

    def failure(self, after: Measured) -> bool:
        return bool(self._failure(after))


def make_task(contract: Contract, kind: type[Task] | None = None) -> Task:
    """Return the task of a contract; ContractError: its class or function cannot be used.

    ``kind`` is another class for it, a subclass of :func:`task_of`.
    """
    kind, arguments = kind or task_of(contract), contract.task.arguments if contract.task else {}
    try:
        return kind(contract, **arguments)
    except (TypeError, ValueError) as error:
        if contract.task is None:
            raise
        raise ContractError(
            f'{contract.name}.yaml: task: {contract.task.function}: {cause(error)}') from error


def reward_of(task: Task, before: Measured, after: Measured, *, is_broken: bool) -> float:
    """Return the reward of a step, NaN if it cannot be computed.

    Once a limit ``is_broken`` it is less the penalty, and what cannot be computed is 0.
    """
    try:
        reward = float(task.reward(before, after))
    except ArithmeticError:
        reward = math.nan
    if not is_broken:
        return reward
    return (reward if math.isfinite(reward) else 0.0) - task.contract.limit_penalty


def with_arguments(contract: Contract, text: str) -> Contract:
    """Return a contract whose task has these arguments, too: a JSON object, or ''."""
    if not text:
        return contract
    try:
        more = json.loads(text)
    except (ValueError, RecursionError):
        more = None
    if contract.task is None or not isinstance(more, dict):
        raise SettingError(f'task_arguments: {quoted(text)} is not allowed: a JSON object, for a '
                           'contract with a task')
    return replace(contract, task=replace(
        contract.task, arguments=contract.task.arguments | more))


def tells_success(contract: Contract) -> bool:
    """Return whether a contract says when an episode succeeds, and not only a person does."""
    if contract.task is None:
        return contract.success is not None
    return contract.success is not None or task_of(contract).success is not Task.success


def task_of(contract: Contract) -> type[Task]:
    """Return the class of a contract's task; ContractError: it cannot be used."""
    if contract.task is None:
        return _FunctionTask
    kind = _find(contract, 'task', contract.task)
    if not isinstance(kind, type) or not issubclass(kind, Task):
        raise ContractError(f'{contract.name}.yaml: task: {contract.task.function} is not '
                            'allowed: a subclass of vdl_ros.robots.task.Task')
    return kind


def _find(contract: Contract, key: str, call: FunctionCall) -> Callable[..., Any]:
    """Import what a contract of this host names: of a file beside it, or of a package."""
    module, name = call.function.split(':')
    where = f'{contract.name}.yaml: {key}: {call.function}'
    path = Path(contract.path).parent / f'{module}.py'
    try:
        found = getattr(_load(path) if path.is_file() else importlib.import_module(module), name)
    # A module that ends the process, too.
    except (Exception, SystemExit) as error:
        raise ContractError(f'{where} cannot be imported: {cause(error)}') from error
    if not callable(found):
        raise ContractError(f'{where} is not allowed: a function or a class')
    function: Callable[..., Any] = found
    return function


def _load(path: Path) -> Any:
    """Import a file, once."""
    name = f'vdl_ros_robot_{path.stem}_{abs(hash(str(path.resolve())))}'
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _scale(
    ranges: Sequence[tuple[float, float]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = np.array(ranges, np.float64).reshape(-1, 2).T
    return low, high - low
