"""Writes what a policy thought in one episode, step by step, to ``episode.csv``."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from vdl_ros.common.files import EPISODE, EPISODES, ProgressTable, write_table
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.episode_returns import FinishedEpisode, adversary_of
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import WriteErrors
from vdl_ros.rl.policy.distributions import Categorical


class EpisodeRecord:
    """The first whole episode, or game, of a run, of the first environment of the first actor.

    A row is a step: its number from 0, return up to and with it, value and parameters of the
    action distribution (logits of discrete actions) for the observation as the policy saw it,
    and size and presence of its perturbation. Value and parameters are computed here, with the
    weights of the learner, which are those of the actor if the policy is frozen.
    """

    def __init__(self, path: Path, learner: Learner, warn: Callable[[str], None]) -> None:
        self._path, self._learner, self._warn = path, learner, warn
        self._over = path.exists()
        self._expected: tuple[int, int] | None = None
        # None: it waits for the start of an episode.
        self._rows: list[list[float]] | None = None
        # Whether the next episode is a life of the game of the last one.
        self._goes_on = False

    @torch.no_grad()
    def add(self, unroll: Unroll) -> None:
        if self._over or (self._expected is not None and unroll.start_id != self._expected[0]):
            return
        if (unroll.start_id, unroll.sequence) != self._expected:
            # The first one, or one after a lost one.
            self._rows, self._goes_on = None, unroll.sequence > 0
        self._expected = unroll.start_id, unroll.sequence + 1
        learner = self._learner
        batch = make_batch([unroll], learner.schema).columns(torch.tensor([0]))
        device = learner.device
        observations, is_reset, state, actions, rewards = (
            each.to(device) for each in (batch.observations, batch.is_reset, batch.state,
                                         batch.actions, batch.rewards))
        parameters, values, _ = learner.policy(observations, is_reset, state, actions, rewards)
        steps = len(rewards)
        sizes, injects = adversary_of(unroll.arrays) or (np.zeros((steps, 1)),) * 2
        life_lost = unroll.arrays.get('life_lost', np.zeros((steps, 1), np.bool_))
        self._goes_on &= 'life_lost' in unroll.arrays
        for t in range(steps):
            is_end = bool(batch.terminated[t, 0] or batch.truncated[t, 0])
            if is_reset[t + 1, 0]:
                # The environment ignored this action.
                if is_end:
                    # A game ended in the reset step of a life.
                    self._rows, self._goes_on = None, False
                continue
            if is_reset[t, 0]:
                self._rows = self._rows if self._goes_on else []
                self._goes_on = False
            if is_end:
                self._goes_on = bool(life_lost[t, 0])
            if self._rows is None:
                continue
            total = (self._rows[-1][1] if self._rows else 0.0) + float(rewards[t, 0])
            self._rows.append([
                len(self._rows), total, float(values[t, 0]), float(sizes[t, 0]),
                int(injects[t, 0]), *parameters[t, 0].tolist()])
            if is_end and not self._goes_on:
                self._write(self._rows)
                return

    def _write(self, rows: list[list[float]]) -> None:
        self._over = True
        name = 'logit' if isinstance(self._learner.policy.distribution, Categorical) \
            else 'parameter'
        header = ['step', 'return', 'value', 'adversary_l2', 'adversary_injects',
                  *(f'{name}_{index}' for index in range(len(rows[0]) - 5))]
        try:
            write_table(self._path, header, *rows)
        except OSError as error:
            self._warn(f'{self._path.name} not written: {error}; the run goes on')


_COLUMNS = ('agent_steps', 'return', 'length', 'adversary_l2', 'adversary_injects')


class EpisodeTable:
    """``episodes.csv`` with a row for each episode; ``episode.csv`` (:class:`EpisodeRecord`).

    A row has the agent steps of the run when the episode arrived, the episode's return and
    length, and mean size and number of the perturbations of its observations, 0 without an attack.
    ``first``: whether to record the first episode step by step.
    """

    def __init__(
        self, folder: Path, learner: Learner, warn: Callable[[str], None], *, first: bool = True,
    ) -> None:
        self._learner, self._told_of_errors = learner, WriteErrors(warn)
        self._record = EpisodeRecord(folder / EPISODE, learner, warn) if first else None
        self._table = ProgressTable(folder / EPISODES, _COLUMNS)
        self._table.truncate(learner.agent_steps)

    def add(self, unroll: Unroll, finished: Iterable[FinishedEpisode]) -> None:
        """Add an unroll and the episodes that ended in it; a full disk must not end the run."""
        if self._record is not None:
            self._record.add(unroll)
        with self._told_of_errors(EPISODES):
            for episode in finished:
                self._table.append({
                    'agent_steps': self._learner.agent_steps,
                    'return': round(episode.episode_return, 6), 'length': episode.length,
                    'adversary_l2': round(episode.adversary_l2 or 0.0, 9),
                    'adversary_injects': episode.adversary_injects})
