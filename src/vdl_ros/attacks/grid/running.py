"""Runs the phases of the grid, each as a training of its own process, and goes on with them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vdl_ros.attacks.grid.phases import BASELINE, Phase
from vdl_ros.rl.runs.training_process import TrainingError, TrainingProcess

__all__ = ['Grid', 'PhaseError']


class PhaseError(RuntimeError):
    """A phase that failed, or whose policy is missing; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """
    The phases of one grid and where they are.

    Attributes:
        output: folder of all runs.
        policies: checkpoints that the phases begin with, of one training seed each.
        phases: the phases, each after the one whose policy it needs.
        learned_steps: agent steps of a phase that learns.
        frozen_steps: of one that does not.
        settings: more settings of every phase, by name.
        log: takes a line.
    """

    output: Path
    policies: Sequence[Path]
    phases: Sequence[Phase]
    learned_steps: int
    frozen_steps: int
    settings: dict[str, str]
    log: Callable[[str], None]

    def folder(self, seed: int, name: str) -> Path:
        """Return the folder of a phase; ``seed`` counts the policies from 1."""
        return self.output / f'seed-{seed}' / name

    def config(self, seed: int) -> Path:
        """Return the file with the settings of a policy."""
        return self.output / f'seed-{seed}' / 'config.yaml'

    def summary(self, seed: int, phase: Phase) -> dict[str, Any] | None:
        """Return what summary.json has of a phase that is complete, else None."""
        return self._training(seed, phase).summary()

    def command(self, seed: int, phase: Phase) -> list[str]:
        """Return the command that runs a phase, or goes on with it."""
        return self._training(seed, phase).command()

    def _training(self, seed: int, phase: Phase) -> TrainingProcess:
        """Return the training of a phase."""
        settings = {
            'config': str(self.config(seed)), 'init': str(self._policy(seed, phase)),
            'total_steps': str(self._steps(phase)), 'seed': str(seed), 'stop_at_return': '1e9',
            'freeze': str(phase.freeze).lower(), 'adversarial_mode': phase.mode,
            'adversarial_epsilon': str(phase.epsilon), 'record_episodes': 'true', **self.settings}
        if phase.value_threshold is not None:
            settings['adversarial_value'] = str(phase.value_threshold)
        if phase.smoothing:
            settings['observation_smoothing'] = str(phase.smoothing)
        # A run does not keep this: each host names the file for its own processes.
        each_start = {'adversarial_checkpoint': str(self.policies[seed - 1])} \
            if phase.transfer else {}
        return TrainingProcess(self.folder(seed, phase.name), settings, each_start)

    def run(self, jobs: int, stop: threading.Event) -> Iterator[str]:
        """
        Run what is not complete, ``jobs`` phases at a time; yield a line for each that failed.

        An interrupted phase keeps its checkpoint, and the next call goes on from there.
        """
        futures: dict[tuple[int, str], Future[None]] = {}
        with ThreadPoolExecutor(jobs) as pool:
            # Phase after phase, so that all policies have the first ones early.
            for phase in self.phases:
                for seed in range(1, len(self.policies) + 1):
                    futures[seed, phase.name] = pool.submit(
                        self._run_phase, seed, phase, futures.get((seed, phase.after)), stop)
        for future in futures.values():
            error = future.exception()
            if isinstance(error, PhaseError):
                yield str(error)
            elif error is not None:
                raise error

    def _run_phase(
        self, seed: int, phase: Phase, before: Future[None] | None, stop: threading.Event,
    ) -> None:
        """
        Run a phase when the one before it is complete.

        Raises:
            PhaseError: it failed, or the one before it did.
        """
        name = f'seed {seed}, {phase.name}'
        if before is not None and before.exception() is not None:
            raise PhaseError(f'{name}: not run: {phase.after} failed')
        if stop.is_set() or self.summary(seed, phase) is not None:
            return
        self.log(f'{name}: {self._steps(phase):,} steps')
        try:
            found = self._training(seed, phase).run(stop.is_set)
        except TrainingError as error:
            raise PhaseError(f'{name}: {error}') from None
        if found is None:
            return
        self.log(f'{name}: return {found["mean_return_100"]} of {found["episodes"]} episodes')

    def _steps(self, phase: Phase) -> int:
        return self.frozen_steps if phase.freeze else self.learned_steps

    def _policy(self, seed: int, phase: Phase) -> Path:
        """Return the checkpoint that a phase begins with."""
        if phase.after in ('', BASELINE):
            return self.policies[seed - 1]
        return self.folder(seed, phase.after) / 'checkpoint.pt'
