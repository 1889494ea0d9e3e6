"""Writes the episodes of a run: all in a table, the first step by step if it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from vdl_ros.common.run_files import EPISODE, EPISODES, ProgressTable
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.episode_record import EpisodeRecord
from vdl_ros.rl.learning.learner import Learner

__all__ = ['EpisodeTable']

_COLUMNS = ('agent_steps', 'return', 'length', 'adversary_l2', 'adversary_injects')


class EpisodeTable:
    """
    ``episodes.csv`` with a row for each episode; ``episode.csv`` (:class:`EpisodeRecord`).

    A row has the agent steps of the run when the episode arrived, the episode's return and
    length, and mean size and number of the perturbations of its observations, 0 without an attack.
    """

    def __init__(
        self, folder: Path, learner: Learner, warn: Callable[[str], None], *, first: bool = True,
    ) -> None:
        """
        Write into ``folder``, after the rows up to ``learner.agent_steps``.

        Args:
            folder: of the run.
            learner: whose steps are counted, and whose values are recorded.
            warn: takes a line about what cannot be written.
            first: whether to record the first episode step by step.
        """
        self._learner, self._warn = learner, warn
        self._record = EpisodeRecord(folder / EPISODE, learner, warn) if first else None
        self._table = ProgressTable(folder / EPISODES, _COLUMNS)
        self._table.truncate(learner.agent_steps)

    def add(self, unroll: Unroll, finished: Iterable[FinishedEpisode]) -> None:
        """Add an unroll and the episodes that ended in it; a full disk must not end the run."""
        if self._record is not None:
            self._record.add(unroll)
        try:
            for episode in finished:
                self._table.append({
                    'agent_steps': self._learner.agent_steps,
                    'return': round(episode.episode_return, 6), 'length': episode.length,
                    'adversary_l2': round(episode.adversary_l2 or 0.0, 9),
                    'adversary_injects': episode.adversary_injects})
        except OSError as error:
            self._warn(f'{EPISODES} not written: {error}; the run goes on')
