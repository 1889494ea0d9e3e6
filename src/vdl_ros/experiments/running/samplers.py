"""
Samplers that choose the same values again when a search is killed and goes on.

Their random numbers depend on the trial's number, and they keep no state of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from vdl_ros.common.settings import Scalar
from vdl_ros.experiments.specs.spaces import Choices
from vdl_ros.experiments.specs.spec import Search

__all__ = ['make_sampler']

Array = NDArray[np.float64]
Space = dict[str, BaseDistribution]
# Deviation of the first generation in a cube of width 1, as Optuna's.
_SIGMA = 1 / 6


def make_sampler(
    search: Search, names: Mapping[str, str], seed: int, first: Mapping[str, Scalar],
) -> BaseSampler:
    """
    Return the sampler of a search.

    Args:
        search: what is searched.
        names: of the parameters of the study by setting.
        seed: of the search.
        first: values of the first trial by setting; a grid has no use for them.
    """
    known = {names[name]: value for name, value in first.items()}
    config = search.config
    if config.sampler == 'grid':
        grid = {names[name]: space.values for name, space in search.spaces.items()
                if isinstance(space, Choices)}
        return SeededSampler(lambda _: GridSampler(grid, seed=seed), seed)
    if config.sampler == 'random':
        return SeededSampler(lambda number: RandomSampler(seed=number), seed, known)
    if config.sampler == 'cmaes':
        return SeededSampler(lambda number: CmaEs(
            {names[name]: space.distribution() for name, space in search.spaces.items()
             if not isinstance(space, Choices)}, number), seed, known)
    # constant_liar: trials that run at the same time do not try the same.
    return SeededSampler(lambda number: TPESampler(
        seed=number, n_startup_trials=config.startup_trials, constant_liar=True), seed, known)


class SeededSampler(BaseSampler):
    """Makes a sampler for each number that it draws, with a seed of its own."""

    def __init__(
        self, make: Callable[[int], BaseSampler], seed: int,
        first: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> None:
        """
        Draw with what ``make`` makes of a seed; all seeds follow from ``seed``.

        Args:
            make: makes a sampler.
            seed: of the search.
            first: parameters of the first trial, which are not drawn.
        """
        self._make, self._seed, self._first = make, seed, first

    def _sampler(self, trial: FrozenTrial, name: str = '') -> BaseSampler:
        return self._make(zlib.crc32(f'{self._seed} {trial.number} {name}'.encode()))

    def _is_known(self, trial: FrozenTrial) -> bool:
        return bool(self._first) and trial.number == 0

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Prepare a trial, as Optuna's grid does."""
        self._sampler(trial).before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Return the parameters that are drawn together."""
        return {} if self._is_known(trial) else self._sampler(trial).infer_relative_search_space(
            study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Space,
    ) -> dict[str, Any]:
        """Draw the parameters that are drawn together."""
        return {} if self._is_known(trial) else self._sampler(trial).sample_relative(
            study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw one parameter; the same, whatever was drawn before it."""
        if self._is_known(trial) and param_name in self._first:
            return self._first[param_name]
        return self._sampler(trial, param_name).sample_independent(
            study, trial, param_name, param_distribution)


class CmaEs(BaseSampler):
    """
    CMA-ES (Hansen and Ostermeier 2001) of the package cmaes, made anew for each trial.

    Optuna's own keeps the optimizer as a pickle in the storage, which may be somebody else's. Here
    the complete trials are told again, a generation after the other, in the order in which they
    ended: with several at a time some are of an older generation.
    """

    def __init__(self, space: Space, seed: int) -> None:
        """Search ``space``, of at least two numbers."""
        self._space, self._seed = space, seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Return the space."""
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Space,
    ) -> dict[str, Any]:
        """Draw all parameters."""
        count = len(self._space)
        bounds = np.tile([0.0, 1.0], (count, 1))
        optimizer = CMA(np.full(count, 0.5), _SIGMA, bounds=bounds, seed=self._seed)
        told = [(self._encode(each), -float(each.value or 0.0))
                for each in sorted(study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]),
                                   key=lambda each: (each.datetime_complete, each.number))
                if self._space.keys() <= each.params.keys()]
        size = optimizer.population_size
        for begin in range(0, len(told) - size + 1, size):
            optimizer.tell(told[begin:begin + size])
        return {name: _decode(distribution, float(x)) for (name, distribution), x in zip(
            self._space.items(), optimizer.ask(), strict=True)}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a parameter that is no number, at random."""
        return RandomSampler(seed=self._seed).sample_independent(
            study, trial, param_name, param_distribution)

    def _encode(self, trial: FrozenTrial) -> Array:
        """Return the parameters of a trial in the unit cube."""
        found = []
        for name, distribution in self._space.items():
            low, high = _limits(distribution)
            value = np.log(trial.params[name]) if _is_log(distribution) else trial.params[name]
            found.append((value - low) / (high - low))
        return np.array(found)


def _is_log(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log


def _limits(distribution: BaseDistribution) -> tuple[float, float]:
    """Return the limits; of whole numbers half a number further, so that all are as likely."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    half = 0.5 if isinstance(distribution, IntDistribution) else 0.0
    low, high = distribution.low - half, distribution.high + half
    return (float(np.log(low)), float(np.log(high))) if distribution.log else (low, high)


def _decode(distribution: BaseDistribution, x: float) -> float | int:
    """Return the value of a number from 0 to 1."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = _limits(distribution)
    value = low + min(max(x, 0.0), 1.0) * (high - low)
    value = float(np.exp(value)) if distribution.log else value
    value = min(max(value, distribution.low), distribution.high)
    return round(value) if isinstance(distribution, IntDistribution) else value
