"""The common behaviour of all vector environments that the factory creates.

Gymnasium does not specify the seeding of sub-environments, the dtype of rewards and the step after
the end of an episode. :class:`CheckedVectorEnv` wraps an environment and fixes them. It is the
border to code of others: what that raises or returns is checked here once, and then trusted.
"""

import contextlib
import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from vdl_ros.common.children import closing
from vdl_ros.common.command_line import say
from vdl_ros.common.observation_spaces import number_error
from vdl_ros.common.quoting import cause, in_one_line, quoted
from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs.canonical_spaces import Actions, Column, ObservationError, Observations
from vdl_ros.envs.foreign import ForeignCall, foreign_errors

T = TypeVar('T')
VectorEnvironment: TypeAlias = VectorEnv[Any, Any, Any]
Seeds: TypeAlias = Callable[[list[int]], Any]
#: Observations and info.
ResetResult: TypeAlias = tuple[Any, dict[str, Any]]
#: Observations, rewards, terminated, truncated and info of a step of B environments, and of one.
StepResult: TypeAlias = tuple[
    NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
SingleStepResult: TypeAlias = tuple[Any, Any, bool, bool, dict[str, Any]]
if TYPE_CHECKING:
    Wrapper: TypeAlias = VectorWrapper[Any, Any, Any, Any, Any]
else:
    # At run time its number of type parameters depends on the version of Gymnasium.
    Wrapper = VectorWrapper

_SHOWN = 40  # characters of a value in an error
_MAX_RATE = 1000  # frames/s
#: What is read in the info of any environment; of single ones the rest may change its shape.
INFO = ('is_success', 'observation_delay', 'action_delay')
# Of final observations in ``info``: Gymnasium's, and that of its versions before 1.0.
_FINAL = ('final_obs', 'final_observation')
# Bytes; settings come over the network.
_MAX_OBSERVATION_BYTES = 1 << 30


class EnvError(ValueError):
    """An environment that cannot be created or stepped; the message is one line."""


class EnvFailedError(EnvError):
    """An error of the environment's own in a call, or a result of it that is not allowed."""


def failure(env: Any, reason: str) -> EnvFailedError:
    """Return what to raise for an environment that fails."""
    return EnvFailedError(f'{_named(env)}: {reason}')


def _named(env: Any) -> str:
    return f'env_id: {env.spec.id if env.spec is not None else type(env.unwrapped).__name__}'


def frame_rate(env: VectorEnvironment, default: float) -> float:
    """Return the environment's frames per second, ``default`` if it does not say it."""
    found = env.metadata.get('render_fps')
    with contextlib.suppress(TypeError, ValueError):
        if 0.0 <= (rate := float(found or default)) <= _MAX_RATE:
            return rate
    raise failure(env, f"metadata['render_fps'] {quoted(found, _SHOWN)} is not allowed: a number "
                  f'above 0, at most {_MAX_RATE}')


def check_memory(num_envs: int, size: int) -> None:
    """Refuse settings, each allowed, whose observations of ``size`` bytes fill the memory."""
    if num_envs * size > _MAX_OBSERVATION_BYTES:
        raise EnvError(f'num_envs: {num_envs} observations of {size} bytes are not allowed: at '
                       f'most {_MAX_OBSERVATION_BYTES} bytes together')


def seeds_for(seed: int, num_envs: int) -> list[int]:
    """Return one seed per sub-environment, each in [0, 2^31).

    They come from :class:`numpy.random.SeedSequence`, since Gymnasium's ``seed, seed + 1, ...``
    would give actors with neighbouring seeds nearly the same episodes.
    """
    if seed < 0:
        raise EnvError(f'seed: {seed} is not allowed: a whole number, at least 0')
    # The emulator takes a signed 32 bit seed and reads a negative one as "none".
    words = np.random.SeedSequence(seed).generate_state(num_envs, np.uint32) >> np.uint32(1)
    return [int(word) for word in words]


class CheckedVectorEnv(Wrapper):
    """A vector environment of B copies with fixed seeding, dtypes and autoreset.

    * Autoreset is NEXT_STEP: the step that ends an episode returns its last observation, and the
      following step ignores the action, returns the first observation of the next episode and
      reward 0.
    * ``terminated`` and ``truncated`` bool [B] are those of the environment. Both may be true in
      one step (a pole that falls at the time limit); then do not bootstrap.
    * Rewards are float32 [B], never clipped. They and observations are finite numbers that a
      learner accepts.
    * Later steps do not write to returned arrays.
    * The first ``reset()`` uses the seed given at construction, so the same seed gives the same
      episodes; a later ``reset()`` continues the same random streams. ``reset(seed=...)`` starts
      new ones.
    * Observations are one array [B, ...], and actions [B] or [B, A]; the spaces are those of
      ``envs/canonical_spaces.py``.
    * Actions of the wrong shape, dtype or range raise an error before they reach the environment.
      Box actions beyond the bounds are not clipped.
    * Whatever the environment raises, or returns that is not allowed, becomes an EnvFailedError of
      one line, except in ``close``, which only prints it.

    ``seeds`` converts a list of B seeds to the seed argument of this ``env``. With ``copies`` its
    arrays are copied, because it may write to them in later steps. With ``is_foreign`` its calls
    are each a :class:`ForeignCall`.
    """

    MODE = AutoresetMode.NEXT_STEP

    def __init__(
        self, env: VectorEnvironment, seed: int, seeds: Seeds = list, *, copies: bool = False,
        is_foreign: bool = False,
    ) -> None:
        super().__init__(env)
        # Until it is made, which is a call already.
        self._copies, self._is_foreign, self._name = copies, False, _named(env)
        self._failed = ''
        mode = env.metadata.get('autoreset_mode')
        if mode is not self.MODE:
            self.close()
            raise EnvError(
                f'{_named(env)}: the autoreset mode {getattr(mode, "name", mode)} in its '
                'metadata is not allowed: NEXT_STEP; SAME_STEP with num_envs:=1, or where an '
                'actor chooses the actions, without delays and attacks')
        try:
            self._observations = Observations(env.single_observation_space)
            self._actions = Actions(env.single_action_space)
            space = self._observations.space
            check_memory(self.num_envs, math.prod(space.shape) * space.dtype.itemsize)
        except Exception as error:
            self.close()
            raise EnvError(in_one_line(error)) from error
        if space is not env.single_observation_space:
            self.single_observation_space = space
            self.observation_space = batch_space(space, self.num_envs)
        if self._actions.space is not env.single_action_space:
            self.single_action_space = self._actions.space
            self.action_space = batch_space(self._actions.space, self.num_envs)
        space = self._actions.space
        # Of discrete actions, the largest of each part.
        self._largest: Any = getattr(space, 'nvec', getattr(space, 'n', 0)) - 1
        self._action_shape = (self.num_envs, *(space.shape or ()))
        self._shape = (self.num_envs, *self._observations.space.shape)
        self._seeds = seeds
        self._first_seed: int | None = seed
        self._is_foreign = is_foreign
        # Copies whose episode ended in the last step, of a foreign environment.
        self._ended = np.zeros(self.num_envs, np.bool_)

    @property
    def observation_columns(self) -> list[Column]:
        return self._observations.columns

    @property
    def first_actions(self) -> NDArray[np.int64]:
        """What the environment adds to actions, which count from 0; files have its numbers."""
        return self._actions.first

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        else:
            self._first_seed = None
        each = None if seed is None else self._seeds(seeds_for(seed, self.num_envs))
        self._ended[:] = False

        def reset() -> ResetResult:
            observations, info = self.env.reset(seed=each, options=options)
            return self._observed(observations), self._checked_info(info, 'reset')

        return self.call('reset', reset)

    def step(self, actions: NDArray[Any]) -> StepResult:
        chosen = self.to_environment(actions)
        return self.call('step', lambda: self.from_environment(self.env.step(chosen)))

    def call(self, name: str, function: Callable[[], T]) -> T:
        """Return what ``function`` returns; errors are those of the environment's ``name``()."""
        try:
            with self._foreign(name):
                return function()
        except EnvStopped:
            raise
        except EnvError as error:
            self._failed = str(error)
            raise
        except ObservationError as error:
            found = failure(self.env, f'the observation of {name}(){error}')
            self._failed = str(found)
            raise found from error
        except foreign_errors() as error:
            found = failure(self.env, f'{name}(): {cause(error)}')
            self._failed = str(found)
            raise found from error

    def _foreign(self, name: str) -> contextlib.AbstractContextManager[None]:
        if not self._is_foreign:
            return contextlib.nullcontext()
        return ForeignCall(
            self._name, f'in {name}()', often=name == 'step', silent=name == 'close')

    def close(self, **kwargs: Any) -> None:
        try:
            # Whoever hears of the failure prints it after this, which may never end.
            with closing(f'{self._failed}; close()' if self._failed
                         else f'{self._name}: close()'), self._foreign('close'):
                super().close(**kwargs)
        except foreign_errors() as error:
            # What follows still has to be closed.
            say(f'{self._name}: close(): {cause(error)}')

    def to_environment(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self._actions.convert(self._checked(actions))

    def from_environment(self, outcome: tuple[Any, ...]) -> StepResult:
        observations, rewards, terminated, truncated, info = outcome
        rewards = np.asarray(rewards)
        if reason := number_error(rewards):
            raise failure(self.env, f'the reward of step(): {reason}')
        rewards = rewards.astype(np.float32, copy=self._copies)
        terminated, truncated = (
            self._truth(name, values) for name, values in (
                ('terminated', terminated), ('truncated', truncated)))
        if not rewards.shape == terminated.shape == truncated.shape == self._shape[:1]:
            raise failure(
                self.env, f'step(): rewards {rewards.shape}, terminated {terminated.shape} and '
                f'truncated {truncated.shape} are not of the shape {self._shape[:1]}')
        if self._is_foreign and self.MODE is AutoresetMode.NEXT_STEP:
            before, self._ended = self._ended, terminated | truncated
            # All: a body that is gone from a world waits for the others.
            if (before & self._ended).all():
                raise failure(self.env, 'step(): terminated or truncated also in the step after '
                              'the end of an episode, which resets (NEXT_STEP)')
        return (self._observed(observations), rewards, terminated, truncated,
                self._checked_info(info, 'step'))

    def _truth(self, name: str, given: Any) -> NDArray[np.bool_]:
        values = np.asarray(given)
        if values.dtype != np.bool_ and (wrong := values[(values != 0) & (values != 1)]).size:
            raise failure(self.env, f'{name} of step(): {quoted(wrong.tolist()[0], _SHOWN)} is '
                          'not allowed: True or False')
        return values.astype(np.bool_, copy=self._copies)

    def _checked_info(self, info: Any, source: str) -> dict[str, Any]:
        if not isinstance(info, dict):
            raise _no_info(self.env, info, source)
        found: dict[str, Any] = info
        if self._is_foreign and not found.keys().isdisjoint(INFO):
            found = dict(found)
            for name in INFO:
                if name in found and (values := self._numbers(name, found.pop(name))) is not None:
                    found[name] = values
        return found

    def _numbers(self, name: str, given: Any) -> NDArray[Any] | None:
        """Return what an info has of this name, [B]; None if it is something else."""
        values = numbers(given)
        if values.shape != self._shape[:1]:
            return None
        if name == 'is_success' and (wrong := values[(values != 0) & (values != 1)]).size:
            raise failure(
                self.env, f"info['is_success']: {wrong[0]:g} is not allowed: True or False")
        return values

    def _observed(self, observations: Any) -> NDArray[Any]:
        """Return observations as one array [B, ...]."""
        found = self._observations.convert(observations)
        if found.shape != self._shape:
            raise ObservationError(f' has the shape {found.shape}, its space has {self._shape}')
        return found.copy() if self._copies else found

    def render(self) -> tuple[Any, ...] | None:
        """Return an image uint8 [H, W, 3] of each sub-environment, None without rendering."""
        def render() -> tuple[Any, ...] | None:
            try:
                images = self.env.render()
            except DependencyNotInstalled as error:
                raise EnvError(f'rendering: {error}') from error
            return None if images is None else tuple(map(self._image, images))

        return self.call('render', render)

    def _image(self, given: Any) -> NDArray[np.uint8] | None:
        if given is None:
            return None
        image = np.asarray(given)
        if image.ndim == 3 and image.shape[2] in (3, 4) and image.size:
            pixels = image[..., :3]  # without transparency
            if pixels.dtype == np.uint8:
                return pixels
            if pixels.dtype.kind in 'fiu' and pixels.min() >= 0 and pixels.max() <= 255:
                if pixels.dtype.kind == 'f' and pixels.max() <= 1:
                    pixels = np.round(pixels * 255)
                return pixels.astype(np.uint8)
        extent = f' from {image.min():g} to {image.max():g}' if (
            image.size and image.dtype.kind in 'fiu') else ''
        raise failure(self.env, f'render(): an array {image.shape} of {image.dtype}{extent} is '
                      'not allowed: [height, width, 3], from 0 to 255, or floats from 0 to 1')

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        shape = self._action_shape
        if not isinstance(actions, np.ndarray) or actions.shape != shape:
            raise EnvError(f'actions: shape {np.shape(actions)} is not {shape}')
        if isinstance(self.single_action_space, spaces.Box):
            if not np.isfinite(actions).all():
                raise EnvError('actions: not all are finite')
            return actions
        if actions.dtype.kind not in 'iu':
            raise EnvError(f'actions: {actions.dtype} is not an integer type')
        # In AtariVectorEnv an action out of range would make the caller wait forever.
        wrong = (actions < 0) | (actions > self._largest)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise EnvError(f'actions: {actions[at]} is not within 0 to '
                           f'{np.broadcast_to(self._largest, shape)[at]}')
        return actions.astype(np.int64, copy=False)


class SameStepVectorEnv(CheckedVectorEnv):
    """A :class:`CheckedVectorEnv` that resets a copy in the step that ends its episode: SAME_STEP.

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


def _no_info(env: Any, info: Any, source: str) -> EnvFailedError:
    return failure(env, f'info of {source}(): {quoted(info, _SHOWN)} is not allowed: a dictionary')


def is_number(value: Any) -> bool:
    """Return whether a value is one number or truth value, also of NumPy, JAX or PyTorch."""
    return isinstance(value, bool | int | float) or (
        getattr(value, 'shape', None) == ()
        # Text, times and complex numbers of NumPy; types of PyTorch have no kind.
        and getattr(getattr(value, 'dtype', None), 'kind', 'f') not in 'cmMSU')


def numbers(given: Any) -> NDArray[Any]:
    """Return an array of numbers; one of another shape if they are none."""
    values = np.asarray(given)
    # As Gymnasium joins what only some of the copies have.
    if values.dtype == object and all(each is None or is_number(each) for each in values.flat):
        values = np.array([float(each or 0) for each in values.flat]).reshape(values.shape)
    return values if values.dtype.kind in 'biuf' else np.empty(())


class CopiedObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Copies each observation, for wrappers that keep some of an environment with one array."""

    def observation(self, observation: Any) -> Any:
        return copy.deepcopy(observation)


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Compares what reset and step return with what they have to; the batch would not name it.

    Values are compared in the batch. Bounds of a Box are not, because many environments leave
    theirs by a rounding error.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._space = env.observation_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        outcome = self.env.reset(seed=seed, options=options)
        if not isinstance(outcome, tuple | list) or len(outcome) != 2:
            raise self._wrong('reset', outcome, 'observation, info')
        self._check(outcome[0], 'reset')
        return outcome[0], self._known(outcome[1], 'reset')

    def step(self, action: Any) -> SingleStepResult:
        outcome = self.env.step(action)
        if not isinstance(outcome, tuple | list) or len(outcome) != 5:
            raise self._wrong('step', outcome, 'observation, reward, terminated, truncated, info')
        self._check(outcome[0], 'step')
        for name, value, allowed in zip(
                ('the reward', 'terminated', 'truncated'), outcome[1:4],
                ('one number', *['True or False'] * 2), strict=True):
            if not is_number(value) or (allowed != 'one number' and value not in (0, 1)):
                raise failure(self, f'{name} of step(): {quoted(value, _SHOWN)} is not allowed: '
                              f'{allowed}')
        return *outcome[:4], self._known(outcome[4], 'step')

    def _known(self, info: Any, source: str) -> dict[str, Any]:
        """Return what is read in an info, where it is a number."""
        if not isinstance(info, dict):
            raise _no_info(self, info, source)
        return {name: float(info[name]) for name in INFO if is_number(info.get(name))}

    def _wrong(self, source: str, outcome: Any, allowed: str) -> EnvFailedError:
        found = f'{len(outcome)} values' if isinstance(outcome, tuple | list) else quoted(
            outcome, _SHOWN)
        return failure(self, f'{source}() returns {found}, which is not allowed: {allowed}')

    def _check(self, observation: Any, source: str) -> None:
        space = self._space
        # The usual case first: this is done in every step.
        if not (isinstance(observation, np.ndarray) and observation.shape == space.shape
                and observation.dtype == space.dtype) and (
                    reason := difference(space, observation)):
            raise failure(self, f'the observation of {source}(){reason}')


def difference(space: spaces.Space[Any], observation: Any, part: str = '') -> str:
    """Return how an observation's structure differs from its space, or ''; ``part`` is its key."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        wanted = list(space.spaces) if isinstance(space, spaces.Dict) else [*range(len(space))]
        if not isinstance(observation, dict | tuple):
            return f'{part} is of {type(observation).__name__}, its space is '\
                   f'{type(space).__name__}'
        keys = list(observation) if isinstance(observation, dict) else [*range(len(observation))]
        if set(keys) != set(wanted):
            return f'{part} has the parts {keys}, its space has {wanted}'
        spaces_by_key: Any = space
        observations: Any = observation
        return next((reason for key in wanted if (reason := difference(
            spaces_by_key[key], observations[key], f'{part}[{key!r}]'))), '')
    if space.shape is None:
        return ''
    try:
        array = np.asarray(observation)
    except ValueError:
        return f'{part} is a {type(observation).__name__} of unequal parts, its space has the ' \
               f'shape {space.shape}'
    # As NumPy joins the observations of several copies.
    if not np.can_cast(array.dtype, space.dtype or array.dtype, 'same_kind'):
        return f'{part}: {quoted(observation, _SHOWN)} of {array.dtype} is not allowed: ' \
               f'{space.dtype}'
    return '' if array.shape == space.shape else (
        f'{part} has the shape {array.shape}, its space has {space.shape}')
