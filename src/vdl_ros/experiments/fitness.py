"""Fitness of sessions and trials, as SLM-Lab defined it in its first version.

Of that version (January 2018) is the norm, L2, and that strength 1 must be reached; later versions
have L1 and reach 0.95. An episode's strength is max(0, R - R_random) / (R_standard - R_random).

* strength: the largest mean strength of 100 consecutive episodes.
* speed: the standard's steps / the steps at which that mean first reaches 1; 0 if it never does.
* stability: the share of episodes after that whose strength is at most 0.05 below that of the
  episode before.
* consistency, of a trial: the share of its sessions that are no outliers by the median absolute
  deviation; of two sessions 1 if their vectors differ by at most 0.05, else 0.
* fitness: the norm of the vector / the norm of (1, 1, 1, 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.experiments.spec import ReferenceConfig

__all__ = ['PARTS', 'SessionFitness', 'TrialFitness', 'WINDOW', 'mean_strength', 'session_fitness',
           'strengths', 'trial_fitness']


Array = NDArray[np.float64]

#: Names of the parts of a trial's fitness.
PARTS = ('strength', 'speed', 'stability', 'consistency')
#: Episodes of the moving mean.
WINDOW = 100
# Differences that are noise.
_NOISE = 0.05
# Outliers have a modified z-score above this (Iglewicz and Hoaglin 1993); 0.6745 is the third
# quartile of the normal distribution.
_Z, _QUARTILE = 3.5, 0.6745


class SessionFitness(NamedTuple):
    """Parts of the fitness of one session, all 0 with fewer than 100 episodes."""

    strength: float = 0.0
    speed: float = 0.0
    stability: float = 0.0


class TrialFitness(NamedTuple):
    """Fitness of a trial and its parts: means over sessions, and their consistency."""

    fitness: float
    strength: float
    speed: float
    stability: float
    consistency: float


def strengths(returns: Array, reference: ReferenceConfig) -> Array:
    """Return the strength of each episode, [N]."""
    span = reference.standard_return - reference.random_return
    return np.maximum(0.0, returns - reference.random_return) / span


def mean_strength(strength: Array) -> Array:
    """Return the mean over the last 100 episodes, NaN for the first 99, [N]."""
    found = np.full(len(strength), math.nan)
    if len(strength) >= WINDOW:
        total = np.concatenate([[0.0], np.cumsum(strength)])
        found[WINDOW - 1:] = (total[WINDOW:] - total[:-WINDOW]) / WINDOW
    return found


def session_fitness(
    steps: Array, returns: Array, reference: ReferenceConfig,
) -> SessionFitness:
    """Return the fitness of a session.

    Args:
        steps: agent steps at the end of each episode, [N].
        returns: of each episode, [N].
        reference: returns of random actions and of the standard, and its steps.
    """
    if len(returns) < WINDOW:
        return SessionFitness()
    strength = strengths(returns, reference)
    mean = mean_strength(strength)
    # Sums of 100 equal numbers are not exact.
    reached = np.flatnonzero(mean >= 1.0 - 1e-9)
    if not len(reached):
        return SessionFitness(float(np.nanmax(mean)))
    first = int(reached[0])
    after = np.diff(strength[first:])
    stability = float((after >= -_NOISE).mean()) if len(after) else 1.0
    speed = reference.standard_steps / max(float(steps[first]), 1.0)
    return SessionFitness(float(np.nanmax(mean)), speed, stability)


def trial_fitness(sessions: Sequence[SessionFitness]) -> TrialFitness:
    """Return the fitness of a trial; ``sessions`` has at least one."""
    vectors = np.array(sessions, np.float64)
    strength, speed, stability = vectors.mean(0).tolist()
    consistency = _consistency(vectors)
    vector = np.array([strength, speed, stability, consistency])
    fitness = float(np.linalg.norm(vector) / np.linalg.norm(np.ones(4)))
    return TrialFitness(fitness, strength, speed, stability, consistency)


def _consistency(vectors: Array) -> float:
    """Return the consistency of sessions, of vectors [R, 3]; 0 if none has any strength."""
    if not vectors[:, 0].any():
        return 0.0
    if len(vectors) == 2:
        return float(np.linalg.norm(vectors[0] - vectors[1]) <= _NOISE)
    distances = np.linalg.norm(vectors - np.median(vectors, axis=0), axis=1)
    # If most are equal the deviation is 0, and noise would be an outlier.
    is_outlier = (_QUARTILE * distances > _Z * np.median(distances)) & (distances > _NOISE)
    return float(1.0 - is_outlier.mean())
