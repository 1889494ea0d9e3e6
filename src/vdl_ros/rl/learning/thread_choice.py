"""How many CPU threads a learner has: tried while it trains, and remembered."""

import contextlib
import hashlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from vdl_ros.common.files import read_json, write_text

# Each number is measured this often, in turn, because other work of the machine comes and goes.
_ROUNDS = 5
# A measurement takes so long, s, at least.
_MEASURED_S = 1.0
# What slower numbers may cost: so many seconds, or this share of the training, if that is more.
_COST_S, _COST_SHARE = 6.0, 0.02
# More threads than spare cores may take so many times as long: they wait for each other.
_SLOWER = 4.0
# A number is dropped if so many measurements, or the one that it may cost, were all slower than
# this share of the best.
_FEW, _LOSER = 2, 0.9
# More threads must be so much faster: they take time from actors of other trainings.
_GAIN = 1.03
# An update that takes longer, s, and has more optimizer steps is measured in pieces.
_LONG_S, _LONG_STEPS = 2.0, 8
# Fewest steps of a piece that the end of an update cuts.
_PIECE = 4


def candidates(cores: int) -> list[int]:
    """Return the numbers of threads to try: powers of two below ``cores``, and ``cores``."""
    return [2**power for power in range((cores - 1).bit_length())] + [cores]


class ThreadChoice:
    """Tries numbers of threads while a training runs, and keeps the fastest.

    What counts is agent steps/s of the whole training: more threads make an update faster, but
    take cores from the actors, which are ``num_actors``. Of long updates it is the optimizer
    steps/s within them. The trials are ordinary work; nothing is computed twice. Used from the
    training's thread alone, whose number of threads PyTorch keeps apart.
    """

    def __init__(
        self, cores: int, num_actors: int, *,
        set_threads: Callable[[int], None] = torch.set_num_threads,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._set_threads, self._clock = set_threads, clock
        self._spare, self._began = cores - num_actors, clock()
        self._left = candidates(cores)
        # Seconds and speed of each measurement.
        self._found: dict[int, list[tuple[float, float]]] = {each: [] for each in self._left}
        self._turn: list[int] = []
        self._round, self._line = 0, ''
        # Whether updates are long; None: not known yet.
        self._in_pieces: bool | None = None
        # Seconds of the smallest work that can be measured.
        self._unit = 0.0
        self._version, self._updates, self._steps = 0, 0, 0
        # When a measurement began: time, with steps of this update or agent steps.
        self._piece = self._whole = (0.0, 0)
        self._waits, self._is_over = False, False
        self.threads = 1

    def announcement(self) -> str:
        return f'learner_threads: trying {", ".join(map(str, self._left))}'

    def after_step(self) -> None:
        if self._is_over:
            return
        self._steps += 1
        now, (since, before) = self._clock(), self._piece
        if self._steps == 1:  # the learner may have waited before it
            self._piece = now, 1
        elif self._in_pieces is None and self._steps > _LONG_STEPS and now - since >= _LONG_S:
            self._in_pieces, self._unit = True, (now - since) / (self._steps - before)
            self._continue(now)
            self._piece = now, self._steps
        elif self._in_pieces and now - since >= _MEASURED_S:
            self._add(self._steps - before, now - since, now)
            self._piece = now, self._steps

    def after_update(self, version: int, agent_steps: int) -> str:
        """Continue after an iteration of the training; return once what was chosen, else ''."""
        if not self._is_over and version != self._version and self._steps:
            self._end_update(agent_steps)
        self._version, self._steps = version, 0
        line, self._line = self._line, ''
        return line

    def _end_update(self, agent_steps: int) -> None:
        now = self._clock()
        if self._in_pieces:
            since, before = self._piece
            if self._steps - before >= _PIECE:
                self._add(self._steps - before, now - since, now)
            return
        since, before = self._whole
        self._updates += 1
        # The first update is not measured: memory and processor caches are cold.
        if self._updates == 1:
            self._whole = now, agent_steps
        elif now - since >= _MEASURED_S:
            if self._in_pieces is None:
                self._in_pieces, self._unit = False, (now - since) / (self._updates - 1)
                self._continue(now)
            else:
                self._add(agent_steps - before, now - since, now)
            self._whole = now, agent_steps

    def _add(self, work: int, seconds: float, now: float) -> None:
        if not self._waits:
            self._found[self.threads].append((seconds, work / seconds))
        self._continue(now)

    def _continue(self, now: float) -> None:
        """Choose, or begin a measurement; use the best number while others cost too much."""
        speeds = {threads: statistics.median(speed for _, speed in found)
                  for threads, found in self._found.items() if found}
        best = max(speeds, key=lambda each: speeds[each], default=self._left[0])
        self._left = [each for each in self._left if each == best or any(
            speed >= _LOSER * speeds[best] for _, speed in self._found[each]) or (
                len(self._found[each]) < _FEW and not (
                    self._found[each] and self._is_too_expensive(each, speeds, best, now)))]
        self._turn = [each for each in self._turn if each in self._left]
        if not self._turn:
            self._round += 1
            self._turn = list(self._left)
        is_measured = all(len(self._found[each]) >= _FEW for each in self._left)
        self._waits = self._is_too_expensive(self._turn[0], speeds, best, now)
        if len(self._left) == 1 or self._round > _ROUNDS or (self._waits and is_measured):
            self._choose(speeds)
        else:
            self._use(best if self._waits else self._turn.pop(0))

    def _is_too_expensive(
        self, threads: int, speeds: Mapping[int, float], best: int, now: float,
    ) -> bool:
        """Return whether measuring ``threads`` may make the trial cost more than is allowed."""
        if not speeds or threads == best:
            return False
        costs = {each: [seconds * max(0.0, 1.0 - speed / speeds[best]) for seconds, speed in found]
                 for each, found in self._found.items()}
        slower = 1.0 if threads <= self._spare else _SLOWER
        next_cost = max(costs[threads], default=max(
            _MEASURED_S, slower * self._unit) * (1.0 - 1.0 / slower))
        return sum(map(sum, costs.values())) + next_cost > max(
            _COST_S, _COST_SHARE * (now - self._began))

    def _use(self, threads: int) -> None:
        if threads != self.threads:
            self.threads = threads
            self._set_threads(threads)

    def _choose(self, speeds: Mapping[int, float]) -> None:
        self._use(min(each for each, speed in speeds.items()
                      if speed * _GAIN >= max(speeds.values())))
        self._is_over = True
        tried = ', '.join(f'{threads}: {speed:,.3g}' for threads, speed in speeds.items())
        unit = 'optimizer' if self._in_pieces else 'agent'
        self._line = f'learner_threads: chosen {self.threads} ({unit} steps/s with {tried})'


#: Settings of training that change how long an update takes, beside those of the environment and
#: the algorithm.
OF_SPEED = ('algorithm', 'inference', 'synchronous', 'network', 'hidden_size', 'lstm_size',
            'last_action_reward', 'observation_smoothing', 'precision', 'unroll_length',
            'batch_size', 'max_in_flight')
# Results that are remembered.
_REMEMBERED = 200


class RememberedThreads:
    """The number of threads that was chosen on this processor for a training with ``settings``.

    It is kept in the file ``path``, with those of other trainings; a file that cannot be read or
    written is as none.
    """

    def __init__(self, path: Path, cores: int, settings: Mapping[str, object]) -> None:
        self.path, self._cores = path, cores
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        self._key = f'{_processor()}, {cores} cores, torch {torch.__version__}, {digest}'

    def get(self) -> int:
        """Return the number, or 0."""
        threads = read_json(self.path).get(self._key)
        return threads if isinstance(threads, int) and 0 < threads <= self._cores else 0

    def put(self, threads: int) -> None:
        found = read_json(self.path)
        found.pop(self._key, None)
        kept = list(found.items())[1 - _REMEMBERED:]
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps({**dict(kept), self._key: threads}, indent=0))


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path('/proc/cpuinfo').read_text().splitlines():
            key, _, value = line.partition(':')
            if key.strip() == 'model name':
                return value.strip()
    return platform.machine()
