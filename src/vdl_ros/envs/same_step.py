"""Vector environments that reset a copy in the step that ends its episode (SAME_STEP)."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from vdl_ros.envs.canonical_spaces import ObservationError
from vdl_ros.envs.checked_vector_env import (
    INFO,
    CheckedVectorEnv,
    ResetResult,
    Seeds,
    StepResult,
    VectorEnvironment,
    failure,
)

#: Of final observations in ``info``: Gymnasium's, and that of its versions before 1.0.
_FINAL = ('final_obs', 'final_observation')


class SameStepVectorEnv(CheckedVectorEnv):
    """A :class:`CheckedVectorEnv` whose autoreset is SAME_STEP.

    A step that ends episodes returns the first observations of the next ones. Only then, info has
    ``final_obs`` [B, ...], the last observations of the episodes that ended, else those that are
    returned; what info says of a copy whose episode ended is of its last step (``final_info``).
    """

    MODE = AutoresetMode.SAME_STEP

    def from_environment(self, outcome: tuple[Any, ...]) -> StepResult:
        found, rewards, terminated, truncated, info = super().from_environment(outcome)
        if not (ended := terminated | truncated).any():
            # Some libraries have them in each step, of rows that are anything.
            return found, rewards, terminated, truncated, {
                name: value for name, value in info.items() if name not in _FINAL}
        final = next((info[name] for name in _FINAL if name in info), None)
        last = found.copy()
        # A value is bootstrapped only from where an episode was cut.
        if final is not None or (truncated & ~terminated).any():
            last[ended] = self._final(final, ended)
        return found, rewards, terminated, truncated, self._of_last_steps(info, ended) | {
            'final_obs': last}

    def _final(self, given: Any, ended: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the last observations of the copies that ended, as one array."""
        space: spaces.Space[Any] = self.env.single_observation_space
        try:
            rows = None if given is None else _rows(given, ended)
            if isinstance(rows, np.ndarray) and rows.dtype == object:
                batch: Any = create_empty_array(space, len(rows))
                rows = None if any(each is None for each in rows) else concatenate(
                    space, rows, batch)
            if rows is None:
                raise failure(
                    self.env, "step(): an episode was truncated, and info has no 'final_obs', "
                    'its last observation, which SAME_STEP needs')
            last = self._observations.convert(rows)
            if last.shape[1:] != self._shape[1:]:
                raise ObservationError(
                    f' has the shape {last.shape[1:]}, its space has {self._shape[1:]}')
        except ObservationError as error:
            raise failure(self.env, f"info['final_obs'] of step(){error}") from error
        return last

    def _of_last_steps(self, info: dict[str, Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
        """Return info with what ``final_info`` says of the copies that ended."""
        found = dict(info)
        given = info.get('final_info')
        last: dict[str, Any] = given if isinstance(given, dict) else {}
        for name in INFO:
            if name in last and (values := self._numbers(name, last[name])) is not None:
                found[name] = np.where(ended, values, found.get(name, np.zeros_like(values)))
        return found


def _rows(batch: Any, where: NDArray[np.bool_]) -> Any:
    """Return some rows of a batch of observations, whose parts may be tensors."""
    if isinstance(batch, dict):
        return {key: _rows(each, where) for key, each in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_rows(each, where) for each in batch)
    rows = np.asarray(batch)
    if rows.shape[:1] != where.shape:
        raise ObservationError(f' has the shape {rows.shape}, not {len(where)} rows')
    return rows[where]


class OneCopy(SameStepVectorEnv):
    """One copy, as a :class:`CheckedVectorEnv` of NEXT_STEP: the first observation waits."""

    def __init__(self, env: VectorEnvironment, seed: int, seeds: Seeds = list, *,
                 copies: bool = False, is_foreign: bool = False) -> None:
        super().__init__(env, seed, seeds, copies=copies, is_foreign=is_foreign)
        self.metadata = {**env.metadata, 'autoreset_mode': AutoresetMode.NEXT_STEP}
        self._next: NDArray[Any] | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        self._next = None
        return super().reset(seed=seed, options=options)

    def step(self, actions: NDArray[Any]) -> StepResult:
        if self._next is not None:
            self._checked(actions)
            first, self._next = self._next, None
            no = np.zeros(1, np.bool_)
            return first, np.zeros(1, np.float32), no, no.copy(), {}
        found, rewards, terminated, truncated, info = super().step(actions)
        if 'final_obs' in info:
            self._next, found = found, info['final_obs']
        return found, rewards, terminated, truncated, info
