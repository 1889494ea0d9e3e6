"""
The phases of the grid: what is learned or attacked, and with whose policy each phase begins.

The 32 runs are those of rl-attack-vf (Kos and Song 2017, "Delving into adversarial attacks on deep
policies", arXiv:1705.06452), in its order: a policy without an attack; learning with random noise;
that policy frozen under noise, FGSM and timed FGSM; FGSM on what learned with noise; learning with
FGSM, and FGSM on that; at last two runs whose first episodes are recorded step by step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

__all__ = ['BASELINE', 'CLEAN', 'FGSM', 'RANDOM', 'THRESHOLDS', 'VALUES', 'Phase', 'chain',
           'choose', 'frozen', 'learned', 'make_phases']

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
    """
    One run of the grid.

    Attributes:
        name: of the run and of its folder.
        mode: of the attack, a value of ``adversarial_mode``.
        epsilon: of the attack, of observations from 0 to 1.
        freeze: whether the policy only acts.
        after: the phase whose policy it begins with; empty: a new one.
        value_threshold: of a value-guided attack: the value of the policy above which it injects.
        smoothing: of the observations, a value of ``observation_smoothing``.
        transfer: whether the attack uses the gradients of the first policy.
    """

    name: str
    mode: str = CLEAN
    epsilon: float = 0.0
    freeze: bool = True
    after: str = BASELINE
    value_threshold: float | None = None
    smoothing: float = 0.0
    transfer: bool = False


def learned(mode: str, epsilon: float, after: str = BASELINE) -> Phase:
    """Return a phase that goes on learning under an attack."""
    return Phase(f'learned-{mode}-{epsilon:g}', mode, epsilon, False, after)


def frozen(
    mode: str, epsilon: float, after: str = BASELINE, value_threshold: float | None = None,
) -> Phase:
    """Return a phase in which a frozen policy is attacked."""
    of = '' if after == BASELINE else f'-of-{after}'
    above = '' if value_threshold is None else f'-above-{value_threshold:g}'
    return Phase(f'frozen-{mode}-{epsilon:g}{above}{of}', mode, epsilon, True, after,
                 value_threshold)


def make_phases(
    scale: float = 1.0, thresholds: Sequence[float] = THRESHOLDS,
) -> dict[str, Phase]:
    """
    Return the phases by name, each after the one whose policy it needs.

    Args:
        scale: factor of all sizes of attacks, which are those of images from 0 to 1.
        thresholds: values of states above which the two value-guided attacks inject.
    """
    return {phase.name: phase for phase in _phases(scale, *thresholds)}


def _phases(scale: float, lower: float, upper: float) -> Iterator[Phase]:
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
    """
    Return the phases with these names and those that they build on, in the order of the grid.

    Args:
        phases: all phases by name.
        names: of those that are wanted; none: all.

    Raises:
        ValueError: there is no such phase.
    """
    unknown = sorted(set(names) - phases.keys())
    if unknown:
        raise ValueError(f'phases: {unknown[0]!r} is not allowed: some of {", ".join(phases)}')
    wanted: Collection[str] = {
        each.name for name in names or phases for each in chain(phases, name)}
    return [phase for phase in phases.values() if phase.name in wanted]
