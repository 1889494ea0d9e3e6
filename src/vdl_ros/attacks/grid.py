"""The grid of attacks and defences: its trainings, its records, its table."""

import csv
import dataclasses
import math
import statistics
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.files import EPISODE, EPISODES
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.rl.runs.training_process import TrainingError, TrainingProcess

#: The policy that all others begin with.
BASELINE = 'baseline'
#: Begin of the names of phases whose first episodes are drawn step by step.
VALUES = 'values-'
#: Values of ``adversarial_mode``.
CLEAN, RANDOM, FGSM = 'none', 'random', 'fgsm'
#: Values of Pong's states above which the two value-guided attacks inject.
THRESHOLDS = (0.5, 1.4)


@dataclasses.dataclass(frozen=True)
class Phase:
    """One run of the grid: its attack, and whether the policy only acts (``freeze``).

    It begins with the policy of the phase ``after``; empty: a new one. ``transfer``: the attack
    uses the gradients of the first policy.
    """

    name: str
    mode: str = CLEAN
    epsilon: float = 0.0
    freeze: bool = True
    after: str = BASELINE
    value_threshold: float | None = None
    smoothing: float = 0.0
    transfer: bool = False


def learned(mode: str, epsilon: float) -> Phase:
    return Phase(f'learned-{mode}-{epsilon:g}', mode, epsilon, freeze=False)


def frozen(
    mode: str, epsilon: float, after: str = BASELINE, value_threshold: float | None = None,
) -> Phase:
    of = '' if after == BASELINE else f'-of-{after}'
    above = '' if value_threshold is None else f'-above-{value_threshold:g}'
    return Phase(f'frozen-{mode}-{epsilon:g}{above}{of}', mode, epsilon, True, after,
                 value_threshold)


def make_phases(scale: float = 1.0, thresholds: Sequence[float] = THRESHOLDS) -> dict[str, Phase]:
    """Return the phases by name, each after the one whose policy it needs.

    ``scale`` is a factor of all sizes of attacks, which are those of images from 0 to 1;
    ``thresholds`` are values of states above which the two value-guided attacks inject.
    """
    return {phase.name: phase for phase in _attack_phases(scale, *thresholds)}


def _attack_phases(scale: float, lower: float, upper: float) -> Iterator[Phase]:
    def size(epsilon: float) -> float:
        # The name of the phase has this many digits.
        return float(f'{epsilon * scale:g}')

    yield Phase(BASELINE, after='')
    noise = {epsilon: learned(RANDOM, size(epsilon)) for epsilon in (
        0.01, 0.02, 0.05, 0.1, 0.2, 0.5)}
    yield from noise.values()
    yield from (frozen(RANDOM, size(epsilon)) for epsilon in (0.01, 0.02, 0.05))
    yield from (frozen(FGSM, size(epsilon)) for epsilon in (0.001, 0.005, 0.01))
    yield from (frozen(mode, size(0.001)) for mode in ('fgsm_skip5', 'fgsm_reuse5'))
    yield frozen('fgsm_vf', size(0.001), value_threshold=lower)
    yield from (frozen(mode, size(0.005)) for mode in ('fgsm_skip10', 'fgsm_reuse10'))
    yield frozen('fgsm_vf', size(0.005), value_threshold=upper)
    for epsilon, of in ((0.001, (0.05, 0.1)), (0.005, (0.05, 0.1, 0.2)), (0.01, (0.1,))):
        yield from (frozen(FGSM, size(epsilon), noise[each].name) for each in of)
    against = {epsilon: learned(FGSM, size(epsilon)) for epsilon in (0.001, 0.005)}
    yield from against.values()
    yield from (frozen(FGSM, size(epsilon), against[of].name)
                for epsilon, of in ((0.005, 0.001), (0.01, 0.005), (0.001, 0.005)))
    # What they add is the record of the first episode, step by step.
    yield Phase(f'{VALUES}clean')
    yield Phase(f'{VALUES}fgsm-{size(0.001):g}', FGSM, size(0.001))


def chain(phases: Mapping[str, Phase], name: str) -> list[Phase]:
    """Return a phase and those that it builds on, the first one first."""
    phase = phases[name]
    return [*(chain(phases, phase.after) if phase.after else []), phase]


def choose(phases: Mapping[str, Phase], names: Sequence[str]) -> list[Phase]:
    """Return the phases with these names, or all, and those that they build on, in their order."""
    unknown = sorted(set(names) - phases.keys())
    if unknown:
        raise ValueError(f'phases: {unknown[0]!r} is not allowed: some of {", ".join(phases)}')
    wanted: Collection[str] = {
        each.name for name in names or phases for each in chain(phases, name)}
    return [phase for phase in phases.values() if phase.name in wanted]


PGD = 'pgd'
#: Size of the attacks, and of the noise of training, which is larger because it is weaker.
_SIZE, _NOISE = 0.01, 0.1
_MODULES = {field.name for field in dataclasses.fields(EnvModulesConfig)}
#: Deviation of the smoothing, pixels.
_SMOOTHING = 1.0
_SMOOTHED, _CONTROL = 'smoothed', 'learned-none'
_COLUMNS = (CLEAN, RANDOM, FGSM, PGD, 'fgsm of the first policy')


def defence_phases(scale: float = 1.0, *, images: bool) -> dict[str, Phase]:
    """Return the phases of all defences, as :func:`make_phases`; ``images`` can be smoothed."""
    return {phase.name: phase for phase in _defence_phases(scale, images)}


def _defence_phases(scale: float, images: bool) -> Iterator[Phase]:
    size, noise = (float(f'{epsilon * scale:g}') for epsilon in (_SIZE, _NOISE))
    yield Phase(BASELINE, after='')
    trained = [Phase(_CONTROL, freeze=False), learned(RANDOM, noise), learned(FGSM, size),
               learned(PGD, size)]
    if images:
        trained.append(Phase(f'learned-{_SMOOTHED}', freeze=False, smoothing=_SMOOTHING))
    yield from trained
    policies = [Phase(BASELINE), *trained]
    if images:
        policies.insert(1, Phase(BASELINE, smoothing=_SMOOTHING))
    for policy in policies:
        for attack in _attacks(size, policy.name):
            if policy.name == BASELINE and policy.smoothing:
                yield dataclasses.replace(
                    attack, name=f'{attack.name}-{_SMOOTHED}', smoothing=_SMOOTHING)
            elif attack.mode != CLEAN or policy.name != BASELINE:
                yield dataclasses.replace(attack, smoothing=policy.smoothing)


def _attacks(size: float, after: str) -> Iterator[Phase]:
    of = '' if after == BASELINE else f'-of-{after}'
    yield Phase(f'frozen-{CLEAN}{of}', after=after)
    yield from (frozen(mode, size, after) for mode in (RANDOM, FGSM, PGD))
    yield Phase(f'frozen-transfer-{size:g}{of}', FGSM, size, after=after, transfer=True)


def defence_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return figures of :func:`defence_phases` as a Markdown table; '' without any defence."""
    rows: dict[str, dict[str, str]] = {}
    for each in found:
        if each['freeze']:
            interval = '' if each['interval'] is None else f' ± {each["interval"]:.1f}'
            column = _COLUMNS[-1] if each['transfer'] else each['mode']
            rows.setdefault(_row(each), {})[column] = f'{each["mean"]:.1f}{interval}'
    if len(rows) < 2:
        return ''
    return _table(('policy', *_COLUMNS), [
        (name, *(row.get(column, '') for column in _COLUMNS)) for name, row in rows.items()])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return '\n'.join(
        '| ' + ' | '.join(cells) + ' |' for cells in (head, ('---',) * len(head), *rows))


def _row(found: Mapping[str, Any]) -> str:
    of = str(found['after'] or BASELINE)
    if of == BASELINE:
        return f'{BASELINE}, {_SMOOTHED}' if found['smoothing'] else BASELINE
    return 'learned on, no attack' if of == _CONTROL else of.replace('learned-', 'learned on ')


Array = NDArray[np.float64]


class Episodes(NamedTuple):
    """The episodes of a phase: its agent steps at their ends, and returns, float64 [N]."""

    name: str
    steps: Array
    returns: Array


class Trace(NamedTuple):
    """An episode step by step.

    ``values`` are the policy's values of what it observed, ``returns`` the rewards so far, both
    float64 [T]; ``injected`` says where the observation was perturbed, bool [T].
    """

    name: str
    values: Array
    returns: Array
    injected: NDArray[np.bool_]


def read_episodes(folder: Path, name: str) -> Episodes:
    """Return the episodes of a run; a missing or damaged table is a ValueError."""
    steps, returns = _columns(folder / EPISODES, ('agent_steps', 'return'))
    return Episodes(name, steps, returns)


def read_trace(folder: Path, name: str) -> Trace | None:
    """Return the recorded episode of a run; None if no whole episode was recorded."""
    if not (folder / EPISODE).is_file():
        return None
    values, returns, injected = _columns(
        folder / EPISODE, ('value', 'return', 'adversary_injects'))
    return Trace(name, values, returns, injected > 0)


def _columns(path: Path, names: Sequence[str]) -> list[Array]:
    try:
        with path.open(newline='') as file:
            rows = [[float(row[name]) for name in names] for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path}: not a table of {", ".join(names)}: {error}') from None
    return list(np.array(rows, np.float64).reshape(-1, len(names)).T)


class PhaseError(RuntimeError):
    """A phase that failed, or whose policy is missing; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The phases of one grid, each after the one whose policy it needs, and where they are.

    ``policies`` are checkpoints that they begin with, of one training seed each; phases that learn
    have ``learned_steps``, others ``frozen_steps``; all have ``settings``.
    """

    output: Path
    policies: Sequence[Path]
    phases: Sequence[Phase]
    learned_steps: int
    frozen_steps: int
    settings: dict[str, str]
    log: Callable[[str], None]

    def folder(self, seed: int, name: str) -> Path:
        return self.output / f'seed-{seed}' / name

    def config(self, seed: int) -> Path:
        return self.output / f'seed-{seed}' / 'config.yaml'

    def summary(self, seed: int, phase: Phase) -> dict[str, Any] | None:
        """Return what summary.json has of a phase that is complete, else None."""
        return self._training(seed, phase).summary()

    def command(self, seed: int, phase: Phase) -> list[str]:
        """Return the command that runs a phase, or goes on with it."""
        return self._training(seed, phase).command()

    def _training(self, seed: int, phase: Phase) -> TrainingProcess:
        settings = {
            'config': str(self.config(seed)), 'init': str(self._policy(seed, phase)),
            'total_steps': str(self._steps(phase)), 'seed': str(seed), 'stop_at_return': 'never',
            'eval_every': '0', 'eval_patience': '0',
            'freeze': str(phase.freeze).lower(), 'adversarial_mode': phase.mode,
            'adversarial_epsilon': str(phase.epsilon), 'record_episodes': 'true', **self.settings}
        if phase.value_threshold is not None:
            settings['adversarial_value'] = str(phase.value_threshold)
        if phase.smoothing:
            settings['observation_smoothing'] = str(phase.smoothing)
        if phase.transfer:
            settings['adversarial_checkpoint'] = str(self.policies[seed - 1])
        return TrainingProcess(self.folder(seed, phase.name), settings, {
            name: value for name, value in self.settings.items() if name in _MODULES})

    def run(self, jobs: int, stop: threading.Event) -> Iterator[str]:
        """Run what is not complete, ``jobs`` phases at a time; yield a line for each that failed.

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
        name = f'seed {seed}, {phase.name}'
        if before is not None and before.exception() is not None:
            raise PhaseError(f'{name}: not run: {phase.after} failed')
        if stop.is_set() or self.summary(seed, phase) is not None:
            return
        self.log(f'{name}: {self._steps(phase):,} steps')
        try:
            found = self._training(seed, phase).run(stop.is_set)
        except (TrainingError, OSError) as error:
            raise PhaseError(f'{name}: {error}') from None
        if found is None:
            return
        self.log(f'{name}: return {found["mean_return_100"]} of {found["episodes"]} episodes')

    def _steps(self, phase: Phase) -> int:
        return self.frozen_steps if phase.freeze else self.learned_steps

    def _policy(self, seed: int, phase: Phase) -> Path:
        if phase.after in ('', BASELINE):
            return self.policies[seed - 1]
        return self.folder(seed, phase.after) / 'checkpoint.pt'


#: Two-sided 95 % quantiles of Student's t distribution by degrees of freedom; beyond them 1.96.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
_HEAD = ('policy', 'attack', 'epsilon', 'attacked', 'seeds', 'return', '95 %', 'episodes', 'lost')


def figures(
    phases: Iterable[Phase], summaries: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the figures of each phase that at least one seed has completed.

    ``summaries`` are by phase what summary.json of each seed has.

    Returns:
        The phase's attributes, its name as ``phase``; ``returns`` of the last 100 episodes at
        most, one for each seed; their ``mean``, and ``interval``, half the width of its 95 %
        confidence interval over seeds, None with one seed; ``episodes`` of all seeds;
        ``inject_share``, the share of observations that were perturbed.
    """
    found = []
    for phase in phases:
        of_seeds = [each for each in summaries.get(phase.name, ())
                    if each['mean_return_100'] is not None]
        if not of_seeds:
            continue
        returns = [float(each['mean_return_100']) for each in of_seeds]
        found.append({
            'phase': phase.name,
            **{name: value for name, value in dataclasses.asdict(phase).items()
               if name != 'name'},
            'returns': returns, 'mean': statistics.fmean(returns),
            'interval': _interval(returns),
            'episodes': sum(each['episodes'] for each in of_seeds),
            'inject_share': statistics.fmean(
                (each.get('adversary') or {}).get('inject_share', 0.0) for each in of_seeds)})
    return found


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as a Markdown table; what is lost is less than the baseline's return."""
    baseline = next((each['mean'] for each in found if each['phase'] == BASELINE), None)
    rows = []
    for each in found:
        interval = each['interval']
        rows.append((
            _policy(each), each['mode'], '' if each['mode'] == CLEAN else f'{each["epsilon"]:g}',
            '' if each['mode'] == CLEAN else f'{each["inject_share"]:.0%}',
            str(len(each['returns'])), f'{each["mean"]:.1f}',
            '' if interval is None else f'± {interval:.1f}', str(each['episodes']),
            '' if baseline is None else f'{baseline - each["mean"]:.1f}'))
    return _table(_HEAD, rows)


def _policy(found: Mapping[str, Any]) -> str:
    if not found['freeze']:
        return 'learns under it'
    after = found['after']
    return 'baseline' if after in ('', BASELINE) else str(after).replace('learned-', 'learned on ')


def _interval(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % confidence interval of the mean; None for one value."""
    if len(values) < 2:
        return None
    degrees = len(values) - 1
    quantile = _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else 1.96
    return quantile * statistics.stdev(values) / math.sqrt(len(values))
