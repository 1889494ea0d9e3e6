"""Choice of the learner's number of threads by a trial at the start of a training."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

__all__ = ['ThreadChoice', 'candidates']

# Each number is tried this often, in turn, because other work of the machine comes and goes.
_ROUNDS = 5
# A trial takes so long, and so many updates, at least; the update before it is not measured.
_TRIAL_S = 2.0
_TRIAL_UPDATES = 4
# More threads must be so much faster: they take time from actors of other trainings.
_GAIN = 1.03


def candidates(cores: int) -> list[int]:
    """Return the numbers of threads to try: powers of two below ``cores``, and ``cores``."""
    return [2**power for power in range((cores - 1).bit_length())] + [cores]


class ThreadChoice:
    """
    Tries numbers of threads while a training runs, and keeps the fastest.

    What counts is agent steps/s of the whole training: more threads make an update faster, but
    take cores from the actors. The trials are ordinary updates; nothing is computed twice.
    Used from the training's thread alone, whose number of threads PyTorch keeps apart.

    Attributes:
        threads: the number in use.
    """

    def __init__(
        self, cores: int, *, set_threads: Callable[[int], None] = torch.set_num_threads,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Prepare the trials.

        Args:
            cores: cores that this process may use, at least 1.
            set_threads: sets the number for the thread that calls it.
            clock: time, s.
        """
        self._set_threads, self._clock = set_threads, clock
        self._speeds: dict[int, list[float]] = {each: [] for each in candidates(cores)}
        # One trial before them all is not counted: memory and processor caches are cold.
        self._order = [1, *(each for _ in range(_ROUNDS) for each in self._speeds)]
        self._trial, self._version = 0, 0
        self._updates, self._since, self._steps = 0, 0.0, 0
        self._is_over = False
        self.threads = 1

    def announcement(self) -> str:
        """Return a line that says what is tried."""
        return f'learner_threads: trying {", ".join(map(str, self._speeds))}'

    def update(self, version: int, agent_steps: int) -> str:
        """
        Continue after each iteration of the training.

        Args:
            version: updates so far.
            agent_steps: agent steps learned from so far.

        Returns:
            A line that says what was chosen, once; else ''.
        """
        if self._is_over or version == self._version:
            return ''
        self._version = version
        self._updates += 1
        now = self._clock()
        if self._updates == 1:
            self._since, self._steps = now, agent_steps
        elif now - self._since >= _TRIAL_S and self._updates > _TRIAL_UPDATES:
            if self._trial:
                self._speeds[self.threads].append(
                    (agent_steps - self._steps) / (now - self._since))
            self._trial, self._updates = self._trial + 1, 0
            if self._trial == len(self._order):
                return self._choose()
            self._use(self._order[self._trial])
        return ''

    def _use(self, threads: int) -> None:
        self.threads = threads
        self._set_threads(threads)

    def _choose(self) -> str:
        """Use the smallest number that is as fast as the best; return the line about it."""
        speeds = {threads: statistics.median(each) for threads, each in self._speeds.items()}
        self._use(min(each for each, speed in speeds.items()
                      if speed * _GAIN >= max(speeds.values())))
        self._is_over = True
        tried = ', '.join(f'{threads}: {speed:,.0f}' for threads, speed in speeds.items())
        return f'learner_threads: chosen {self.threads} (agent steps/s with {tried})'
