"""Settings of an experiment that are not of a training: sessions, trials, search, references."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['MetaConfig', 'ReferenceConfig', 'SearchConfig']


@dataclass(frozen=True)
class MetaConfig:
    """Settings of the part ``meta`` of a spec."""

    sessions: int = setting(
        4, 'Trainings of a trial, with different seeds.', minimum=1, maximum=1000)
    trials: int = setting(
        0, 'Trials of a search; 0: all of a grid, only with sampler grid.', minimum=0,
        maximum=1_000_000)
    seed: int = setting(
        1, 'Seed of the search and of the first session; each further session adds 1.', minimum=0,
        maximum=2**31 - 1001)


@dataclass(frozen=True)
class SearchConfig:
    """Settings of the part ``search`` of a spec, beside its spaces."""

    sampler: str = setting(
        'tpe', 'All of a grid, random, tree-structured Parzen estimator, or CMA-ES.',
        choices=('grid', 'random', 'tpe', 'cmaes'))
    pruner: str = setting(
        'none', 'median: end a trial below the median return of earlier ones at the same place '
        'of the same session.', choices=('none', 'median'))
    startup_trials: int = setting(
        5, 'Trials before tpe and median have an effect.', minimum=1, maximum=1_000_000)


@dataclass(frozen=True)
class ReferenceConfig:
    """Settings of the part ``reference`` of a spec: what fitness is measured by."""

    random_return: float = setting(
        0.0, 'Mean return of random actions.')
    standard_return: float = setting(
        1.0, 'Return at which the environment counts as solved; above random_return.')
    standard_steps: int = setting(
        100_000, 'Steps in which a standard agent reaches standard_return.', minimum=1,
        maximum=1_000_000_000_000, unit='steps')
