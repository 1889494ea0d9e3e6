"""Reads what the phases of the grid have recorded of their episodes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.run_files import EPISODE, EPISODES

__all__ = ['Episodes', 'Trace', 'read_episodes', 'read_trace']

Array = NDArray[np.float64]


class Episodes(NamedTuple):
    """
    The episodes of a phase.

    ``steps`` are agent steps of the phase at their ends, float64 [N], not descending; ``returns``
    are float64 [N].
    """

    name: str
    steps: Array
    returns: Array


class Trace(NamedTuple):
    """
    An episode step by step.

    ``values`` are the policy's values of what it observed, ``returns`` the rewards so far, both
    float64 [T]; ``injected`` says where the observation was perturbed, bool [T].
    """

    name: str
    values: Array
    returns: Array
    injected: NDArray[np.bool_]


def read_episodes(folder: Path, name: str) -> Episodes:
    """
    Return the episodes of a run.

    Raises:
        ValueError: its table is missing or damaged.
    """
    steps, returns = _columns(folder / EPISODES, ('agent_steps', 'return'))
    return Episodes(name, steps, returns)


def read_trace(folder: Path, name: str) -> Trace | None:
    """
    Return the recorded episode of a run; None if no whole episode was recorded.

    Raises:
        ValueError: the record is damaged.
    """
    if not (folder / EPISODE).is_file():
        return None
    values, returns, injected = _columns(
        folder / EPISODE, ('value', 'return', 'adversary_injects'))
    return Trace(name, values, returns, injected > 0)


def _columns(path: Path, names: Sequence[str]) -> list[Array]:
    """Return columns of a table, float64 [N] each."""
    try:
        with path.open(newline='') as file:
            rows = [[float(row[name]) for name in names] for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path}: not a table of {", ".join(names)}: {error}') from None
    return list(np.array(rows, np.float64).reshape(-1, len(names)).T)
