"""Environments on their own clock, which do not wait for the agent."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.reaction_time import PARTS
from vdl_ros.envs.checked_vector_env import VectorEnvironment, Wrapper
from vdl_ros.envs.lag.delays import no_action
from vdl_ros.envs.lag.tick_window import Outcome, TickWindow

__all__ = ['RealTimeVectorEnv']

T = TypeVar('T')


class RealTimeVectorEnv(Wrapper):
    """
    B environments that a thread steps at a fixed rate, as a game loop does: ticks.

    A tick takes the newest action of the agent; without a new one, the last action is held and
    counted as late. A tick that comes late by more than its period shifts the clock, so that ticks
    do not pile up (the elastic clock of rtgym). :meth:`step` returns after the first tick with its
    action; what happened since the step before is joined by :class:`TickWindow`. Before the first
    action :func:`no_action` is applied.

    ``info`` has ``reaction_time``, float32 [B, 4], s, of this action, with the columns of
    ``common/reaction_time.py``: the times that were measured, and the delays that the environment
    simulates, if its info has them as ``observation_delay`` and ``action_delay``; and
    ``late_actions``, int32 [B]: how many ticks held the last action while this one was not there.
    """

    def __init__(
        self, env: VectorEnvironment, fps: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Step ``env``, whose observations are arrays, ``fps`` times per second after its reset.

        All calls of the environment are made in the thread: a renderer belongs to one.
        """
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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in every environment, and the clock."""
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

    def step(
        self, actions: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_],
               dict[str, Any]]:
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
        """Return an image uint8 [H, W, 3] of each environment, None without rendering."""
        return self._call(self.env.render)

    def close(self, **kwargs: Any) -> None:
        """Stop the clock and close the environments."""
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
        """Make calls and ticks in turn."""
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
