"""
The grid's defences: policies that are made robust, each under the same attacks.

A policy goes on learning with noise, FGSM or PGD (adversarial training), or without anything, as a
control; or its images are smoothed. Each then meets every attack, and the attack that was computed
for the first policy, which shows what transfers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vdl_ros.attacks.grid.phases import (
    BASELINE,
    CLEAN,
    FGSM,
    RANDOM,
    Phase,
    frozen,
    learned,
)

__all__ = ['defence_phases', 'defence_table']

PGD = 'pgd'
#: Size of the attacks, and of the noise of training, which is larger because it is weaker.
_SIZE, _NOISE = 0.01, 0.1
#: Deviation of the smoothing, pixels.
_SMOOTHING = 1.0
_SMOOTHED, _CONTROL = 'smoothed', 'learned-none'
_COLUMNS = ('none', 'random', 'fgsm', 'pgd', 'fgsm of the first policy')


def defence_phases(scale: float = 1.0, *, images: bool) -> dict[str, Phase]:
    """
    Return the phases of all defences by name, each after the one whose policy it needs.

    Args:
        scale: factor of all sizes of attacks.
        images: whether observations are images, which can be smoothed.
    """
    return {phase.name: phase for phase in _phases(scale, images)}


def _phases(scale: float, images: bool) -> Iterator[Phase]:
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
    """Yield the attacks on a policy, in the order of the table's columns."""
    of = '' if after == BASELINE else f'-of-{after}'
    yield Phase(f'frozen-{CLEAN}{of}', after=after)
    yield from (frozen(mode, size, after) for mode in (RANDOM, FGSM, PGD))
    yield Phase(f'frozen-transfer-{size:g}{of}', FGSM, size, after=after, transfer=True)


def defence_table(found: Sequence[Mapping[str, Any]]) -> str:
    """
    Return a Markdown table, or '' if no defence was run: a row for each, a column for each attack.

    Args:
        found: figures of phases, see :func:`vdl_ros.attacks.grid.table.figures`.
    """
    rows: dict[str, dict[str, str]] = {}
    for each in found:
        column = _column(each)
        if column is not None:
            interval = '' if each['interval'] is None else f' ± {each["interval"]:.1f}'
            rows.setdefault(_row(each), {})[column] = f'{each["mean"]:.1f}{interval}'
    if len(rows) < 2:
        return ''
    cells = [('policy', *_COLUMNS), ('---',) * (1 + len(_COLUMNS)),
             *((name, *(row.get(column, '') for column in _COLUMNS))
               for name, row in rows.items())]
    return '\n'.join('| ' + ' | '.join(each) + ' |' for each in cells)


def _row(found: Mapping[str, Any]) -> str:
    """Return what says which defence a phase has measured."""
    of = str(found['after'] or BASELINE)
    if of == BASELINE:
        return f'{BASELINE}, {_SMOOTHED}' if found['smoothing'] else BASELINE
    return 'learned on, no attack' if of == _CONTROL else of.replace('learned-', 'learned on ')


def _column(found: Mapping[str, Any]) -> str | None:
    """Return the attack of a phase; None if the table has no column for it."""
    if not found['freeze'] or found['value_threshold'] is not None:
        return None
    if found['transfer']:
        return _COLUMNS[-1]
    return found['mode'] if found['mode'] in _COLUMNS else None
