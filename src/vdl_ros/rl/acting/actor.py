"""An actor: B environments in which a policy acts, and the unrolls that it records."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode
from vdl_ros.rl.data.unroll import OPTIONAL, Arrays, UnrollSchema, add_extras

if TYPE_CHECKING:
    from torch import Tensor

    from vdl_ros.rl.policy.numpy_policy import NumpyPolicy
    from vdl_ros.rl.policy.policy import Policy

# Time after which an unroll lasts long, s.
_LONG_S = 5.0


class Step(NamedTuple):
    """The outcome of one action in each of B environments.

    Attributes:
        observation: [B, ...], after the action.
        reward: [B] float32.
        terminated, truncated: [B] bool.
        is_reset: [B] bool, where ``observation`` is the first of an episode: the environment
            ignored the action and reset itself; also where a robot was silent (``is_lost`` in the
            environment's info).
        extras: the arrays of ``unroll.OPTIONAL`` that the environment's info has, [B, ...] each.
        final: [B, ...], if some environments reset themselves in this step, because it ended their
            episodes (SAME_STEP): there the last observation of the episode. Else None.
        executed: [B] or [B, A], the actions of a person where the extra ``intervened`` says so.
    """

    observation: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    is_reset: NDArray[Any]
    extras: Mapping[str, NDArray[Any]] = MappingProxyType({})
    final: NDArray[Any] | None = None
    executed: NDArray[Any] | None = None

    @property
    def ignored(self) -> NDArray[Any]:
        """[B] bool, where the environment ignored the action, so that the step does not count."""
        return self.is_reset if self.final is None else np.zeros_like(self.is_reset)

    @property
    def success(self) -> NDArray[Any] | None:
        """Where the episode reached its aim, bool [B]; None if it is unknown."""
        return self.extras.get('success')

    def arrays(self, is_reset: NDArray[Any]) -> Arrays:
        """Return an unroll of this step; ``is_reset`` [B] is of the observation before it."""
        return {'rewards': self.reward[None], 'terminated': self.terminated[None],
                'truncated': self.truncated[None],
                'is_reset': np.stack([is_reset, self.ignored]),
                **{name: values[None] for name, values in self.extras.items()}}


# Rows that a column may be ahead of an unroll, also of a shorter one.
_AHEAD = 16


class SameStepColumns:
    """Records the steps of environments of SAME_STEP as if they reset a step later, as others do.

    The end of an episode takes two rows of an environment's column: the last step, and one into
    the first observation of the next episode, as if the environment had ignored an action. So
    columns fill at their own speed, and rows beyond an unroll begin the next one. An environment
    that is an unroll ahead of the slowest, at least 16 steps, is left out until its next episode.
    """

    def __init__(self, schema: UnrollSchema, observation: NDArray[Any], state: Any) -> None:
        self._schema, self._length = schema, schema.unroll_length
        self._room = self._length + max(self._length, _AHEAD)
        batch = len(observation)
        # With a row after the end of an episode.
        more = self._room + 1 - self._length
        self._arrays: Arrays = {
            name: np.zeros((len(each) + more, *each.shape[1:]), each.dtype)
            for name, each in schema.empty(batch).items() if name != 'state'}
        self._arrays['observations'][0], self._arrays['is_reset'][0] = observation, True
        # Of the policy, before the first row of this unroll and of the next ones.
        self._states = np.stack([np.asarray(state)] * ((self._room + 1) // self._length + 1))
        # Of each column the number of rows, and whether the environment's steps are recorded.
        self._rows = np.zeros(batch, np.int64)
        self._chosen: Arrays = {}
        self._recorded = np.ones(batch, np.bool_)
        self._episodes = EpisodeCounter(batch)

    def choose(self, actions: NDArray[Any], log_probs: NDArray[Any]) -> NDArray[Any]:
        """Take the actions of the step that is added next; return them as they are recorded."""
        actions = actions.astype(self._arrays['actions'].dtype, copy=False)
        self._chosen = {'actions': actions, 'behaviour_log_probs': log_probs}
        return actions

    def add(self, step: Step, state: Any) -> bool:
        """Record a step, after which the policy has ``state``; return whether all have T rows."""
        ended, length, before = step.is_reset, self._length, self._rows.copy()
        recorded = self._recorded & (before < self._room)
        values = self._chosen | {
            'rewards': step.reward, 'terminated': step.terminated, 'truncated': step.truncated,
            **step.extras}
        self._append(recorded, values, step.observation if step.final is None else step.final)
        # Those that are left out have such a row also where the others would wait for them.
        begins = ended & (recorded | (before < self._room))
        self._append(begins | (~recorded & (before < length)), self._chosen,
                     step.observation, is_reset=True)
        self._recorded = recorded | begins
        if self._schema.state_size:
            # A step may have filled two unrolls of one row.
            for number in (before // length + 1, self._rows // length):
                full = np.flatnonzero(
                    (number > before // length) & (number * length <= self._rows))
                self._states[number[full], full] = np.asarray(state)[full]
        return bool(self._rows.min() >= length)

    def _append(
        self, where: NDArray[np.bool_], values: Mapping[str, NDArray[Any]],
        observations: NDArray[Any], *, is_reset: bool = False,
    ) -> None:
        """Append a row to the columns ``where``; what is not among ``values`` is 0."""
        index = np.flatnonzero(where)
        if not index.size:
            return
        row = self._rows[index]
        for name, each in values.items():
            if name not in self._arrays:
                self._arrays[name] = np.zeros(
                    (len(self._arrays['rewards']), *each.shape), each.dtype)
            self._arrays[name][row, index] = each[index]
        self._arrays['observations'][row + 1, index] = observations[index]
        self._arrays['is_reset'][row + 1, index] = is_reset
        self._rows[index] += 1

    def take(self) -> tuple[Arrays, list[FinishedEpisode]]:
        """Return the first T rows, as ``Actor.unroll``, and keep the others for the next."""
        length, stop = self._length, int(self._rows.max()) + 1
        arrays: Arrays = {}
        for name, each in self._arrays.items():
            arrays[name] = each[:length + (name in ('observations', 'is_reset'))]
            kept = self._arrays[name] = np.zeros_like(each)
            rest = each[length:stop]
            kept[:len(rest)] = rest
        if self._schema.state_size:
            arrays['state'] = self._states[0]
            self._states = np.concatenate([self._states[1:], self._states[-1:]])
        self._rows -= length
        finished = self._episodes.add(arrays)
        encoded = self._schema.encode(arrays.pop('observations'), arrays['is_reset'])
        return arrays | encoded, finished


# Their names in an environment's info.
_IN_INFO = {name: 'is_success' if name == 'success' else name for name in OPTIONAL}


class EnvStepper:
    """Steps environments that reset themselves after an episode, or in its last step (SAME_STEP).

    It has the current ``observation`` [B, ...], and where it ``is_reset``, the first of its
    episode, [B] bool.
    """

    def __init__(self, envs: VectorEnv, seed: int) -> None:
        self.envs = envs
        observation, _ = envs.reset(seed=seed)
        self.observation: NDArray[Any] = np.array(observation)
        self.is_reset: NDArray[Any] = np.ones(envs.num_envs, np.bool_)
        self._done: NDArray[Any] = np.zeros(envs.num_envs, np.bool_)
        self.same_step = envs.metadata.get('autoreset_mode') is AutoresetMode.SAME_STEP
        space = envs.single_action_space
        self._box = space if isinstance(space, gymnasium.spaces.Box) else None

    def step(self, actions: NDArray[Any]) -> Step:
        """Step all environments; ``actions`` [B] or [B, A] are clipped to a Box's bounds."""
        return self.record(self.envs.step(self.clip(actions)))

    def clip(self, actions: NDArray[Any]) -> NDArray[Any]:
        if self._box is None:
            return actions
        clipped: NDArray[Any] = np.clip(actions, self._box.low, self._box.high)
        return clipped

    def record(self, outcome: tuple[Any, ...]) -> Step:
        """Return what the environments returned for the last actions as a :class:`Step`."""
        observation, reward, terminated, truncated, info = outcome
        lost = info.get('is_lost')
        before, self._done = self._done, np.logical_or(terminated, truncated)
        if self.same_step:
            is_reset, final = self._done, info.get('final_obs')
        else:
            is_reset, final = before if lost is None else before | np.asarray(lost, np.bool_), None
        step = Step(observation, reward, terminated, truncated, is_reset, self._extras(info),
                    final, info.get('executed_actions'))
        self.observation, self.is_reset = observation, is_reset
        return step

    def _extras(self, info: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        found = {name: np.asarray(info[key]) for name, key in _IN_INFO.items() if key in info}
        # Anybody's environment may have something else of this name.
        return {name: values.astype(OPTIONAL[name][0]) for name, values in found.items()
                if values.shape == (self.envs.num_envs, *OPTIONAL[name][1])}


class Interrupted(Exception):  # noqa: N818
    """An unroll that is given up, because the process is to end."""


class Actor(ABC):
    """B environments and a copy of the policy that acts in them, by PyTorch or by NumPy.

    Consecutive unrolls overlap by one observation: x_T of one is x_0 of the next.

    Args:
        seed: of the first episodes.
        timer: timer of the thread that calls :meth:`unroll`.
        exploration: see :func:`exploration_schedule`.

    Attributes:
        policy_version: version of its weights, -1 before the first :meth:`load`.
        state: state of the policy, float32 [B, S].

    Raises:
        UnrollError: its unrolls would be too large.
    """

    def __init__(
        self, envs: VectorEnv, policy: 'Policy | NumpyPolicy', schema: UnrollSchema, seed: int,
        timer: ThreadTimer | None = None,
        exploration: Callable[[int], float] = lambda agent_steps: 0.0,
    ) -> None:
        schema.check_size(envs.num_envs)
        self.envs, self.policy = envs, policy
        self.state: Tensor | NDArray[Any] = policy.initial_state(envs.num_envs)
        self.policy_version = -1
        self._schema = schema
        self._timer = timer or ThreadTimer()
        self._exploration = exploration
        self._stepper = EnvStepper(envs, seed)
        # Of the unroll that is recorded, and its next step.
        self._arrays: Arrays = {}
        self._observations: NDArray[Any] = np.empty(0)
        self._step = 0
        self._episodes = EpisodeCounter(envs.num_envs)
        # Instead of the four above, with environments of SAME_STEP, and the last actions.
        self._columns = SameStepColumns(
            schema, self._stepper.observation, self.state) if self._stepper.same_step else None
        self._chosen: NDArray[Any] = np.empty(0)
        # When the unroll began, by monotonic(), and its steps, which other threads may read.
        self._began, self._taken = 0.0, 0

    def progress(self) -> str:
        """Return how far an unroll is that lasts longer than 5 s, else ''; for any thread."""
        steps, seconds, envs = self._taken, monotonic() - self._began, self.envs.num_envs
        if not steps or seconds < _LONG_S:
            return ''
        return (f'step {steps} of {self._schema.unroll_length} (num_envs {envs}), '
                f'{steps * envs / seconds:.3g} steps/s: a smaller unroll_length or num_envs gives '
                'earlier updates')

    def load(self, arrays: Mapping[str, NDArray[Any]], version: int, agent_steps: int = 0) -> None:
        """Load the weights after ``agent_steps``; ValueError: weights of another network."""
        self.use(arrays, self._exploration(agent_steps))
        self.policy_version = version

    @abstractmethod
    def use(self, arrays: Mapping[str, NDArray[Any]], exploration: float) -> None:
        """Copy weights, and act with this epsilon or temperature; ValueError as :meth:`load`."""

    @abstractmethod
    def choose(
        self, observations: NDArray[Any], is_reset: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Update the state; return actions, [B] or [B, A], and their log-probabilities, [B].

        ``observations`` are [B, ...], ``is_reset`` [B] bool.
        """

    @abstractmethod
    def append_last_action(self, actions: NDArray[Any], rewards: NDArray[Any]) -> None:
        """Put the last actions and rewards into the state, if they are inputs of the policy."""

    def unroll(
        self, stop: threading.Event | None = None, refresh: Callable[[], None] = lambda: None,
    ) -> tuple[Arrays, list[FinishedEpisode]]:
        """Step T times; return the arrays of ``unroll.py`` and the episodes that ended.

        Args:
            refresh: called before each step; it may :meth:`load` newer weights.

        Raises:
            Interrupted: ``stop`` is set; it is looked at before each step, which may take seconds.
        """
        with self._timer('encode'):
            is_complete = False
            while not is_complete:
                if stop is not None and stop.is_set():
                    raise Interrupted
                refresh()
                actions = self.begin_step()
                with self._timer('step'):
                    outcome = self.envs.step(actions)
                is_complete = self.end_step(outcome)
            return self.finish()

    def begin_step(self) -> NDArray[Any]:
        """Return actions for the environments, [B] or [B, A].

        With :meth:`end_step` and :meth:`finish` it is for environments that several actors step
        together; :meth:`unroll` calls them too.
        """
        t, stepper = self._step, self._stepper
        if not self._taken:
            self._began = monotonic()
        if self._columns is not None:
            with self._timer('infer'):
                self._chosen = self._columns.choose(
                    *self.choose(stepper.observation, stepper.is_reset))
            return stepper.clip(self.policy.distribution.to_environment(self._chosen))
        if not t:
            self._arrays = self._schema.empty(self.envs.num_envs)
            self._observations = self._arrays.pop('observations')
            self._observations[0], self._arrays['is_reset'][0] = (
                stepper.observation, stepper.is_reset)
            if 'state' in self._arrays:
                self._arrays['state'][...] = np.asarray(self.state)
        arrays = self._arrays
        with self._timer('infer'):
            actions, log_probs = self.choose(self._observations[t], arrays['is_reset'][t])
        arrays['actions'][t], arrays['behaviour_log_probs'][t] = actions, log_probs
        return stepper.clip(self.policy.distribution.to_environment(arrays['actions'][t]))

    def end_step(self, outcome: tuple[Any, ...]) -> bool:
        """Record what the environments returned; return whether there are T steps."""
        self._taken += 1
        if self._columns is not None:
            step = self._stepper.record(outcome)
            self.append_last_action(self._chosen, step.reward)
            return self._columns.add(step, self.state)
        arrays, t = self._arrays, self._step
        (self._observations[t + 1], arrays['rewards'][t], arrays['terminated'][t],
         arrays['truncated'][t], arrays['is_reset'][t + 1], extras, _, executed) = (
            self._stepper.record(outcome))
        add_extras(arrays, extras, t)
        if executed is not None and (persons := extras['intervened']).any():
            arrays['actions'][t, persons] = self.policy.distribution.from_environment(
                executed[persons])
        self.append_last_action(arrays['actions'][t], arrays['rewards'][t])
        self._step += 1
        return self._step == self._schema.unroll_length

    def finish(self) -> tuple[Arrays, list[FinishedEpisode]]:
        """Return the unroll of the last T steps, as :meth:`unroll`."""
        self._taken = 0
        if self._columns is not None:
            return self._columns.take()
        arrays, self._step = self._arrays, 0
        finished = self._episodes.add(arrays)
        return arrays | self._schema.encode(self._observations, arrays['is_reset']), finished

    def close(self) -> None:
        self.envs.close()


#: Takes the actions of each actor, and returns what a vector environment returns for each.
StepTogether = Callable[[Sequence[NDArray[Any]]], Sequence[tuple[Any, ...]]]


class SharedActors:
    """Steps several actors at once; each records unrolls of its own length."""

    def __init__(self, actors: Sequence[Actor], step_together: StepTogether) -> None:
        self.actors = list(actors)
        self._step_together = step_together

    def step(self) -> list[int]:
        """Step once; return the indices of the actors with T steps, to be finished now."""
        actions = [actor.begin_step() for actor in self.actors]
        outcomes = self._step_together(actions)
        complete = [actor.end_step(outcome)
                    for actor, outcome in zip(self.actors, outcomes, strict=True)]
        return [index for index, each in enumerate(complete) if each]
