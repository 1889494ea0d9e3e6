"""Observations and actions that come late: in the time of the environment, or on its own clock.

And the last actions as a part of the observation.
"""

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.metrics import PARTS
from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.common.quoting import quoted
from vdl_ros.envs import dummy
from vdl_ros.envs.atari import FRAMES_PER_SECOND
from vdl_ros.envs.canonical_spaces import Column, Observations
from vdl_ros.envs.checked_vector_env import (
    CheckedVectorEnv,
    EnvError,
    ResetResult,
    StepResult,
    VectorEnvironment,
    Wrapper,
    check_memory,
    frame_rate,
)
from vdl_ros.envs.env_config import EnvConfig

# Distinguishes this random stream from those of the environments.
_STREAM = 0x1A6


@dataclass(frozen=True)
class Delay:
    """A delay that is drawn for each episode, uniformly from ``low`` to ``high``, s."""

    low: float = 0.0
    high: float = 0.0

    def __bool__(self) -> bool:
        return self.high > 0.0

    @classmethod
    def of(cls, name: str, value: object, most: float) -> 'Delay':
        """Return the delay of an argument: a number, or the lowest and the highest, s."""
        found = list(value) if isinstance(value, list | tuple) else [value, value]
        numbers = [each for each in found
                   if isinstance(each, int | float) and not isinstance(each, bool)]
        if not len(numbers) == len(found) == 2 or not 0.0 <= numbers[0] <= numbers[1] <= most:
            raise EnvError(f'{name}: {quoted(value)} is not allowed: 0 to {most:g} s, or the '
                           'lowest and the highest')
        return cls(*map(float, numbers))

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        if self.low == self.high:
            return np.full(count, self.low)
        return random.uniform(self.low, self.high, count)


def no_action(space: gymnasium.Space[Any], num_envs: int) -> NDArray[Any]:
    """Return what is applied before the first action: 0, of a Box the action nearest to it."""
    shape = (num_envs, *(space.shape or ()))
    if isinstance(space, gymnasium.spaces.Box):
        return np.broadcast_to(np.clip(0, space.low, space.high), shape).astype(space.dtype)
    return np.zeros(shape, np.int64)


class _Latest:
    """The last values of B rows; each row is read as many steps ago as it is late."""

    def __init__(self, steps: int, like: NDArray[Any]) -> None:
        self._values = np.repeat(like[None], steps + 1, axis=0)
        self._rows = np.arange(len(like))
        self._newest = 0

    def append(self, values: NDArray[Any]) -> None:
        self._newest = (self._newest + 1) % len(self._values)
        self._values[self._newest] = values

    def fill(self, rows: NDArray[np.bool_], values: NDArray[Any]) -> None:
        """Let ``rows``, bool [B], always have had ``values`` [B, ...]."""
        self._values[:, rows] = values[rows]

    def before(self, late: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values ``late`` steps ago, int [B], a copy."""
        found: NDArray[Any] = self._values[(self._newest - late) % len(self._values), self._rows]
        return found


class DelayedVectorEnv(Wrapper):
    """B environments whose observations and actions are late by whole steps.

    A delay of d steps that is no whole number is rounded down or up, at random for each episode,
    so that d is the mean: actions come at any phase of the environment's clock. Until the first
    action of an episode arrives, :func:`no_action` is applied; until the second observation
    arrives, the first is shown. Rewards and ends of episodes, which are for learning, are not
    late.

    ``info`` has ``observation_delay`` and ``action_delay``, float64 [B], s.

    Args:
        rate: their steps per second.
        seed: of the delays, until ``reset`` is given one.
    """

    def __init__(
        self, env: VectorEnvironment, rate: float, *, observations: Delay, actions: Delay,
        seed: int,
    ) -> None:
        super().__init__(env)
        self._rate = rate
        self._delays = observations, actions
        # Rounded up, and drawn with a phase.
        self._max_steps = [math.ceil(delay.high * rate) + 1 for delay in self._delays]
        try:
            for steps, space in zip(self._max_steps, (
                    env.single_observation_space, env.single_action_space), strict=True):
                size = math.prod(space.shape or ()) * (space.dtype or np.dtype(int)).itemsize
                check_memory(env.num_envs * (steps + 1), size)
        except ValueError:
            env.close()
            raise
        self._random = np.random.default_rng([_STREAM, seed])
        self._none = no_action(env.single_action_space, env.num_envs)
        self._late = np.zeros((2, env.num_envs), np.int64)
        self._over: NDArray[np.bool_] = np.zeros(env.num_envs, np.bool_)
        self._actions = _Latest(self._max_steps[1], self._none)
        self._observations: _Latest

    def _draw(self, rows: NDArray[np.bool_]) -> None:
        """Draw the delays of new episodes of ``rows``, bool [B]."""
        count = int(rows.sum())
        for late, delay in zip(self._late, self._delays, strict=True):
            steps = np.round(delay.draw(self._random, count) * self._rate, 9)
            late[rows] = np.floor(steps + self._random.random(count))

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        if seed is not None:
            self._random = np.random.default_rng([_STREAM, seed])
        observations, info = self.env.reset(seed=seed, options=options)
        everywhere = np.ones(self.num_envs, np.bool_)
        self._over = ~everywhere
        self._draw(everywhere)
        self._actions.fill(everywhere, self._none)
        self._observations = _Latest(self._max_steps[0], observations)
        return observations, info | self._info()

    def step(self, actions: NDArray[Any]) -> StepResult:
        self._actions.append(actions)
        observations, rewards, terminated, truncated, info = self.env.step(
            self._actions.before(self._late[1]))
        # A body that leaves a world early is lost until the world is reset.
        begin, self._over = self._over | info.get('is_lost', False), terminated | truncated
        self._observations.append(observations)
        if begin.any():
            self._draw(begin)
            self._actions.fill(begin, self._none)
            self._observations.fill(begin, observations)
        return (self._observations.before(self._late[0]), rewards, terminated, truncated,
                info | self._info())

    def _info(self) -> dict[str, NDArray[np.float64]]:
        seconds = self._late / self._rate
        return {'observation_delay': seconds[0], 'action_delay': seconds[1]}


Bools = NDArray[np.bool_]


class Outcome(NamedTuple):
    """What one action led to: as of a step of a vector environment, arrays [B, ...] and info."""

    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminated: Bools
    truncated: Bools
    info: dict[str, Any]


class TickWindow:
    """Joins the steps of B environments, which reset themselves, to steps of an agent.

    The agent gets the latest observation and the sum of the rewards. If an episode ends, it gets
    the last observation of the episode, and in its next step, which is the reset, the latest one
    of the episode that has begun meanwhile; rewards of that episode until then are added to those
    of the step after. An episode that has begun and ended meanwhile is left out.
    """

    def __init__(self, observations: NDArray[Any]) -> None:
        count = len(observations)
        # The second: of episodes that the agent acts in and that have ended since its last step.
        self._latest, self._last = (
            Outcome(observations.copy(), np.zeros(count, np.float32), np.zeros(count, np.bool_),
                    np.zeros(count, np.bool_), {}) for _ in range(2))
        self._has_ended = np.zeros(count, np.bool_)
        # Where the agent's next step is the reset; where the environment's is.
        self._resets, self._over = np.zeros(count, np.bool_), np.zeros(count, np.bool_)

    def add(self, outcome: Outcome) -> None:
        latest = self._latest
        self._over = outcome.terminated | outcome.truncated
        latest.observations[:] = outcome.observations
        latest.rewards[:] += outcome.rewards
        ended = self._over & ~self._has_ended & ~self._resets
        for last, new in zip(self._last[:4], (
                outcome.observations, latest.rewards, outcome.terminated, outcome.truncated),
                strict=True):
            last[ended] = new[ended]
        latest.info.clear()
        latest.info.update(outcome.info)
        for name, values in outcome.info.items():
            if _is_batch(values, len(ended)):
                kept = self._last.info.setdefault(name, values.copy())
                kept[ended] = values[ended]
        self._has_ended |= ended
        latest.rewards[self._over] = 0.0

    @property
    def is_whole(self) -> bool:
        """Return whether there is an observation of the next episode for all that need one."""
        return not (self._resets & self._over).any()

    def take(self) -> Outcome:
        """Return what the environments did since the last call, in arrays of the caller's own."""
        latest, last, ended = self._latest, self._last, self._has_ended
        observations = latest.observations.copy()
        observations[ended] = last.observations[ended]
        rewards = np.where(ended, last.rewards, np.where(self._resets, 0.0, latest.rewards))
        info = {
            name: np.where(ended.reshape(-1, *(1,) * (values.ndim - 1)),
                           last.info.get(name, values), values)
            if _is_batch(values, len(ended)) else values for name, values in latest.info.items()}
        outcome = Outcome(observations, rewards.astype(np.float32), ended & last.terminated,
                          ended & last.truncated, info)
        # Those of an episode whose first observation is taken now belong to its first step.
        latest.rewards[~ended & ~self._resets] = 0.0
        self._resets, self._has_ended = ended, np.zeros_like(ended)
        return outcome


def _is_batch(values: Any, count: int) -> bool:
    return isinstance(values, np.ndarray) and values.shape[:1] == (count,)


T = TypeVar('T')


class RealTimeVectorEnv(Wrapper):
    """B environments that a thread steps at a fixed rate, as a game loop does: ticks.

    A tick takes the newest action of the agent; without a new one, the last action is held and
    counted as late. A tick that comes late by more than its period shifts the clock, so that ticks
    do not pile up (the elastic clock of rtgym). :meth:`step` returns after the first tick with its
    action; what happened since the step before is joined by :class:`TickWindow`. Before the first
    action :func:`no_action` is applied.

    ``info`` has ``reaction_time``, float32 [B, 4], s, of this action, with the columns of
    ``common/metrics.py``: the times that were measured, and the delays that the environment
    simulates, if its info has them as ``observation_delay`` and ``action_delay``; and
    ``late_actions``, int32 [B]: how many ticks held the last action while this one was not there.

    All calls of the environment are made in the thread: a renderer belongs to one.
    """

    def __init__(
        self, env: VectorEnvironment, fps: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(env)
        self._period, self._clock = 1.0 / fps, clock
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = (
            queue.SimpleQueue())
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._closing = False
        self._due: float | None = None
        self._action = no_action(env.single_action_space, env.num_envs)
        # When the action was given and applied; None if it is not there yet.
        self._sent: float | None = None
        self._applied: float | None = None
        # Ticks without a new action since the last one, and before it.
        self._held = self._late = 0
        # When the newest observation was made.
        self._made = 0.0
        self._window: TickWindow
        # Of the observation that the agent has: when it was returned, processing and lag.
        self._returned = 0.0
        self._before = np.zeros((2, env.num_envs))
        self._thread = threading.Thread(target=self._run, name='environment', daemon=True)
        self._thread.start()

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        def restart() -> tuple[NDArray[Any], dict[str, Any]]:
            observations, info = self.env.reset(seed=seed, options=options)
            self._action = no_action(self.env.single_action_space, self.num_envs)
            self._sent, self._held = None, 0
            self._window = TickWindow(observations)
            self._made = self._clock()
            self._due = self._made + self._period
            return observations, info

        observations, info = self._call(restart)
        self._returning(self._made, info)
        return observations, info

    def step(self, actions: NDArray[Any]) -> StepResult:
        """Give new actions; return what has become when they were applied."""
        sent = self._clock()
        with self._changed:
            self._action, self._sent, self._applied = np.array(actions), sent, None
            self._changed.wait_for(lambda: self._failure is not None or (
                self._applied is not None and self._window.is_whole))
            if self._failure is not None:
                raise self._failure
            assert self._applied is not None
            outcome, made, late = self._window.take(), self._made, self._late
            action_lag = self._applied - sent
        info = outcome.info
        parts = np.empty((self.num_envs, len(PARTS)), np.float32)
        parts[:, 0] = sent - self._returned
        parts[:, 1], parts[:, 3] = self._before
        parts[:, 2] = action_lag + np.asarray(info.get('action_delay', 0.0))
        info['reaction_time'] = parts
        info['late_actions'] = np.full(self.num_envs, late, np.int32)
        self._returning(made, info)
        return (*outcome[:4], info)

    def _returning(self, made: float, info: dict[str, Any]) -> None:
        """Note when an observation was made, received and returned: now."""
        received = self._clock()
        self._before[1] = received - made + np.asarray(info.get('observation_delay', 0.0))
        self._returned = self._clock()
        self._before[0] = self._returned - received

    def render(self) -> Any:
        return self._call(self.env.render)

    def close(self, **kwargs: Any) -> None:
        def end() -> None:
            self._closing = True
            self.env.close(**kwargs)

        if not self._closing:
            self._call(end)
            self._thread.join()

    def _call(self, function: Callable[[], T]) -> T:
        """Return the result of a function in the environment's thread."""
        future: Future[T] = Future()
        self._calls.put((function, future))
        return future.result()

    def _run(self) -> None:
        while not self._closing:
            timeout = None if self._due is None else max(self._due - self._clock(), 0.0)
            try:
                function, future = self._calls.get(timeout=timeout)
            except queue.Empty:
                self._tick()
                continue
            try:
                with self._changed:
                    result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def _tick(self) -> None:
        """Step the environments with the newest action; raise an error in the agent's thread."""
        assert self._due is not None
        now = self._clock()
        # Behind by less than a period: the next tick makes up for it.
        self._due = max(self._due + self._period, now)
        with self._changed:
            action, is_new = self._action, self._sent is not None
            self._sent = None
        try:
            outcome = Outcome(*self.env.step(action))
        except BaseException as error:
            with self._changed:
                self._failure, self._due = error, None
                self._changed.notify_all()
            return
        with self._changed:
            self._window.add(outcome)
            self._made = self._clock()
            if is_new:
                self._applied, self._late, self._held = now, self._held, 0
            else:
                self._held += 1
            self._changed.notify_all()


class LastActionsVectorEnv(Wrapper):
    """B environments whose observations have the last N actions of the agent.

    With observations and actions that are late, the state of such an environment is the last
    observation and the actions since then (Katsikopoulos and Engelbrecht 2003,
    https://doi.org/10.1109/TAC.2003.809799). Actions of whole numbers are one-hot, those of a
    Box are clipped to its bounds; 0 stands for none in this episode.
    """

    def __init__(self, env: VectorEnvironment, number: int) -> None:
        super().__init__(env)
        space: Any = env.single_action_space
        self._box = space if isinstance(space, spaces.Box) else None
        # First column of each part of an action.
        sizes = np.atleast_1d(getattr(space, 'nvec', getattr(space, 'n', 1))).ravel()
        self._columns = np.cumsum(sizes) - sizes
        size = space.shape[0] if self._box is not None else int(sizes.sum())
        self._over: NDArray[np.bool_] = np.zeros(env.num_envs, np.bool_)
        before: Any = env.single_observation_space
        self._mixed = before if isinstance(before, ImageAndVector) else None
        parts: dict[str, spaces.Space[Any]] = {'observation': before}
        if self._mixed is not None:
            parts = {'image': self._mixed.image, 'numbers': spaces.Box(
                -np.inf, np.inf, (self._mixed.vector_size,), np.float32)}
        try:
            self._observations = Observations(spaces.Dict(parts | {
                'last_actions': spaces.Box(-np.inf, np.inf, (number * size,), np.float32)}))
            after: Any = self._observations.space
            check_memory(env.num_envs, after.shape[0] * after.dtype.itemsize)
        except ValueError as error:
            env.close()
            raise EnvError(f'observe_last_actions: {error}') from None
        self._last = np.zeros((env.num_envs, number, size), np.float32)
        self.single_observation_space = after
        self.observation_space = batch_space(after, env.num_envs)

    @property
    def observation_columns(self) -> list[Column]:
        return self._observations.columns

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        observations, info = self.env.reset(seed=seed, options=options)
        self._last[:] = 0.0
        self._over[:] = False
        return self._joined(observations), info

    def step(self, actions: NDArray[Any]) -> StepResult:
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        self._last[:, 1:] = self._last[:, :-1].copy()
        self._last[:, 0] = self._encoded(actions)
        # The reset step ignored its action, and so do those of a body that has left its world.
        self._last[self._over | info.get('is_lost', False)] = 0.0
        self._over = terminated | truncated
        return self._joined(observations), rewards, terminated, truncated, info

    def _encoded(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Return actions [B] or [B, A] as numbers [B, K]."""
        if self._box is not None:
            return np.asarray(np.clip(actions, self._box.low, self._box.high), np.float32)
        encoded = np.zeros((len(actions), self._last.shape[2]), np.float32)
        chosen = actions.reshape(len(actions), -1) + self._columns
        np.put_along_axis(encoded, chosen, 1.0, axis=1)
        return encoded

    def _joined(self, observations: NDArray[Any]) -> NDArray[Any]:
        parts: dict[str, Any] = {'observation': observations}
        if self._mixed is not None:
            image, numbers = self._mixed.split(observations)
            parts = {'image': image, 'numbers': numbers}
        return self._observations.convert(
            parts | {'last_actions': self._last.reshape(len(self._last), -1)})


def delay_arguments(
    config: EnvConfig, creator: Any, given: Mapping[str, Any],
) -> dict[str, list[float]]:
    """Return arguments for an environment that simulates delays itself; {} for others.

    The class of such an environment has ``delay_arguments``: the names of its arguments for the
    delay of observations and of actions, each [low, high], s, from which episodes draw.
    """
    names = getattr(creator, 'delay_arguments', None)
    if names is None:
        return {}
    if config.observe_last_actions:
        raise EnvError(f'observe_last_actions: {config.observe_last_actions} is not allowed with '
                       f'env_id {quoted(config.env_id)}: it shows its last actions itself')
    found = {}
    for name, delay, setting in zip(
            names, _delays(config), ('observation_delay', 'action_delay'), strict=True):
        if delay and name in given:
            raise EnvError(f'{setting}: not allowed with {name} in env_kwargs')
        if delay:
            found[name] = [delay.low, delay.high]
    return found


def add_lag(env: CheckedVectorEnv, config: EnvConfig, seed: int) -> VectorEnvironment:
    """Return ``env``, made with :func:`delay_arguments`, with delays, clock and last actions."""
    lagged: VectorEnvironment = env
    observations, actions = _delays(config)
    if (observations or actions) and not _delays_itself(env):
        lagged = DelayedVectorEnv(lagged, _rate(env, config), observations=observations,
                                  actions=actions, seed=seed)
    if config.realtime_fps:
        lagged = RealTimeVectorEnv(lagged, config.realtime_fps)
    if config.observe_last_actions:
        lagged = LastActionsVectorEnv(lagged, config.observe_last_actions)
    return lagged


def _delays(config: EnvConfig) -> tuple[Delay, Delay]:
    return tuple(Delay(low, low + more) for low, more in (  # type: ignore[return-value]
        (config.observation_delay, config.random_observation_delay),
        (config.action_delay, config.random_action_delay)))


def _delays_itself(env: CheckedVectorEnv) -> bool:
    one: Any = env.unwrapped
    return hasattr(getattr(one, 'envs', [one])[0].unwrapped, 'delay_arguments')


def _rate(env: CheckedVectorEnv, config: EnvConfig) -> float:
    if config.realtime_fps:
        return config.realtime_fps
    if config.env_id.startswith('ALE/'):
        return FRAMES_PER_SECOND / config.frame_skip
    if config.env_id.startswith(dummy.NAMESPACE):
        seconds = dummy.parse(config.env_id).step_s
        rate = 1.0 / seconds if seconds else 0.0
    else:
        rate = frame_rate(env, 0.0)
    if not rate > 0.0:
        env.close()
        raise EnvError('observation_delay, action_delay: not allowed without realtime_fps: '
                       f'env_id {quoted(config.env_id)} has no known steps per second')
    return rate
