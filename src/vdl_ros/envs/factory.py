"""Creates vector environments by id.

The B copies of an actor are in one process: in the environment's own vectorized version if it has
one (CartPole, Atari, dummy), else in a SyncVectorEnv.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium import spaces as gym_spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.command_line import say
from vdl_ros.common.observation_spaces import MirroredBox
from vdl_ros.common.opengl import draw_without_display
from vdl_ros.common.quoting import cause, in_one_line, quoted, text_of
from vdl_ros.common.settings import suggestion
from vdl_ros.envs import dummy
from vdl_ros.envs.atari import make_atari
from vdl_ros.envs.checked_vector_env import (
    CheckedEnv,
    CheckedVectorEnv,
    CopiedObservation,
    EnvError,
    OneCopy,
    SameStepVectorEnv,
    VectorEnvironment,
    check_memory,
)
from vdl_ros.envs.env_config import ROBOT, EnvConfig
from vdl_ros.envs.env_modules import imported_modules, make_wrappers, parse_kwargs, version_hint
from vdl_ros.envs.foreign import ForeignCall, foreign_errors
from vdl_ros.envs.realtime import add_lag, delay_arguments
from vdl_ros.envs.worlds import BodyVectorEnv, SharedWorlds, choose_bodies, is_world, make_worlds

ATARI = 'ALE/'
_LAG = ('realtime_fps', 'observation_delay', 'random_observation_delay', 'action_delay',
        'random_action_delay', 'observe_last_actions')
# Environments of Gymnasium that import what an argument names.
_IMPORTERS = ('GymV21Environment-v0', 'GymV26Environment-v0')
# Modules whose environments return what they should, and whose vector environments arrays that
# they leave alone.
_TESTED = ('vdl_ros.', 'gymnasium.')
_TESTED_VECTOR = ('vdl_ros.', 'gymnasium.envs.classic_control.')

#: Frames stacked on axis 0 of observations, by id; a module with environments may add its own.
STACKED_FRAMES: dict[str, int] = {}


def make(
    config: EnvConfig, seed: int, num_envs: int | None = None, render: bool = False, *,
    same_step: bool = False, takeovers: bool = False,
) -> VectorEnvironment:
    """Return ``num_envs`` copies of an environment, ``config.num_envs`` by default.

    The first ``reset()`` of the result uses seeds made from ``seed``, one per copy. With
    ``render``, its ``render()`` returns an image uint8 [H, W, 3] per copy. With ``same_step`` its
    autoreset mode may be SAME_STEP. With ``takeovers`` a person who commands a robot does not end
    its episode (``ros/robots/robot_env.py``).

    Raises:
        EnvError: an unknown or unusable environment; the message is one line.
    """
    count = config.num_envs if num_envs is None else num_envs
    if count < 1:
        raise EnvError(f'num_envs: {count} is not allowed: a whole number, at least 1')
    is_delayed = any(getattr(config, name) for name in _LAG)
    env = _make(config, seed, count, render, same_step and not is_delayed,
                takeovers=takeovers)
    return add_lag(env, config, seed)


def bodies(config: EnvConfig) -> list[str]:
    """Return the bodies of a world for which policies act, in the order of the world."""
    spec = _spec(config.env_id)
    if not is_world(spec.id):
        raise EnvError(f'env_id: {config.env_id} is no world of several bodies')
    with _refusals(spec, config):
        worlds = make_worlds(spec.id, 1, **parse_kwargs(config.env_kwargs))
        try:
            return choose_bodies(config.bodies, worlds.names)
        finally:
            worlds.close()


def make_shared(
    config: EnvConfig, seed: int, shares: Sequence[Sequence[str]], num_envs: int | None = None,
) -> SharedWorlds:
    """Return ``num_envs`` copies of a world in which several agents act, as :func:`make`.

    ``shares`` are the names of each agent's bodies, instead of ``config.bodies``.
    """
    for name in _LAG:
        if value := getattr(config, name):
            raise EnvError(f'{name}: {value:g} is not allowed with several agents in one world: 0')
    count = config.num_envs if num_envs is None else num_envs
    first = _make(dataclasses.replace(config, bodies=','.join(shares[0])), seed, count, False)
    worlds = first.unwrapped.worlds  # type: ignore[attr-defined]
    try:
        return SharedWorlds([first, *(
            CheckedVectorEnv(BodyVectorEnv(worlds, each), seed, seeds=lambda seeds: seeds[0],
                             is_foreign=True)
            for each in shares[1:])])
    except Exception:
        first.close()
        raise


def _refuse(config: EnvConfig, name: str, reason: str) -> None:
    """Raise an EnvError if a setting is given that the environment does not have."""
    if value := getattr(config, name):
        raise EnvError(f'{name}: {quoted(value)} is not allowed with env_id '
                       f'{quoted(config.env_id)}: {reason}')


def _make(config: EnvConfig, seed: int, count: int, render: bool,
          same_step: bool = False, takeovers: bool = False) -> CheckedVectorEnv:
    if config.env_id.startswith((ATARI, dummy.NAMESPACE, ROBOT)):
        for name in ('env_kwargs', 'env_wrappers', 'bodies'):
            _refuse(config, name, 'its contract has the arguments of its task'
                    if config.env_id.startswith(ROBOT) else 'other settings choose its variant')
    if config.env_id.startswith(ROBOT):
        # A thread that holds the last action would go on without an agent.
        for name in _LAG:
            _refuse(config, name, 'a robot has its own clock and delays, and observes its actions')
    # Of other environments the size is not known before they are there.
    if config.env_id.startswith(dummy.NAMESPACE):
        check_memory(count, dummy.parse(config.env_id).size)
    if config.env_id.startswith(ATARI):
        check_memory(count, config.frame_stack * config.screen_size**2)
        return CheckedVectorEnv(make_atari(config, count, render=render), seed)
    spec = _spec(config.env_id)
    kwargs = parse_kwargs(config.env_kwargs)
    if is_world(spec.id):
        kwargs['bodies'] = config.bodies
        _refuse(config, 'env_wrappers', 'wrappers are of environments with one body')
    else:
        _refuse(config, 'bodies', 'it is no world of several bodies')
    wrappers = make_wrappers(config.env_wrappers, count)
    if config.time_limit:
        kwargs['max_episode_steps'] = config.time_limit
    if takeovers and spec.id.startswith(ROBOT):
        kwargs['takeovers'] = True
    if render:
        kwargs['render_mode'] = 'rgb_array'
        draw_without_display()
    with _refusals(spec, config, count) as made:
        if render and not _draws(spec, _creator(spec)):
            raise EnvError(f'env_id: {spec.id} cannot render images')
        kwargs |= delay_arguments(config, _creator(spec), kwargs)
        env = _make_copies(spec, count, wrappers, kwargs, seed, same_step, made)
    # An entry point that is a function does not say it.
    if render and not _draws(spec, env):
        env.close()
        raise EnvError(f'env_id: {spec.id} cannot render images')
    return env


def _make_copies(
    spec: EnvSpec, count: int, wrappers: Sequence[Any], kwargs: dict[str, Any], seed: int,
    same_step: bool, made: list[str],
) -> CheckedVectorEnv:
    # Wrappers are of single environments.
    if spec.vector_entry_point is not None and not wrappers and _takes(spec, kwargs):
        env: VectorEnvironment = gymnasium.make_vec(
            spec.id, count, vectorization_mode='vector_entry_point', **kwargs)
        if env.unwrapped.metadata is VectorEnv.metadata:
            # ale-py writes its mode into the dictionary of the class, which others would read.
            env.unwrapped.metadata = dict(VectorEnv.metadata)
            VectorEnv.metadata.clear()
        # Of a world each body is a copy.
        if (found := env.num_envs) != count and not is_world(spec.id):
            with contextlib.suppress(*foreign_errors()):
                env.close()
            raise EnvError(f'num_envs: {count} is not allowed with env_id {spec.id}, whose vector '
                           f'environment has {found} copies: num_envs:={found}')
        mode = env.metadata.get('autoreset_mode')
        kind = CheckedVectorEnv
        if mode is AutoresetMode.SAME_STEP and (same_step or count == 1):
            kind = OneCopy if count == 1 else SameStepVectorEnv
        if mode is kind.MODE or spec.entry_point is None:
            # All copies share one random stream, which takes one seed.
            tested = str(spec.vector_entry_point).startswith(_TESTED_VECTOR)
            return kind(
                env, seed, seeds=lambda seeds: seeds[0], copies=not tested,
                is_foreign=not tested and not spec.id.startswith(ROBOT))
        with contextlib.suppress(*foreign_errors()):
            env.close()
        reason = (f'the autoreset mode {mode.name}, which is not allowed here'
                  if isinstance(mode, AutoresetMode) else
                  f'in its metadata autoreset_mode {quoted(mode)} instead of an AutoresetMode')
        say(f'env_id: {spec.id}: single copies are stepped, because its vector environment has '
            f'{reason}')
    is_foreign, is_wrapped = not str(spec.entry_point).startswith(_TESTED), bool(wrappers)
    if is_foreign and wrappers:
        wrappers = [CopiedObservation, *wrappers]
    # So is a wrapper of a module of the user's.
    is_foreign |= is_wrapped
    if is_foreign:
        wrappers = [*wrappers, CheckedEnv]

    def count_copy(env: Any) -> Any:
        # Some have them only after reset().
        for name in ('observation_space', 'action_space'):
            if getattr(env, name) is None:
                raise TypeError(f'{name} is None')
        if is_wrapped and isinstance(space := env.observation_space, MirroredBox):
            # Nobody knows what a wrapper's actions and observations are in a mirror.
            env.observation_space = gym_spaces.Box(space.low, space.high)
        made.append(spec.id)
        return env

    # Gymnasium's checker checks only the first step, and slows all others.
    return CheckedVectorEnv(gymnasium.make_vec(
        spec.id, count, vectorization_mode='sync', disable_env_checker=True,
        wrappers=[*wrappers, count_copy], **kwargs), seed, is_foreign=is_foreign)


def _takes(spec: EnvSpec, kwargs: Mapping[str, Any]) -> bool:
    """Return whether the vector environment takes a limit of steps and images, if given."""
    point = spec.vector_entry_point
    given = {'max_episode_steps': kwargs.get('max_episode_steps', spec.max_episode_steps),
             'render_mode': kwargs.get('render_mode')}
    if str(point).startswith(_TESTED_VECTOR) or not any(given.values()):
        return True
    creator: Any = load_env_creator(point) if isinstance(point, str) else point
    known = inspect.signature(creator).parameters
    missing = next((name for name, value in given.items() if value and name not in known), None)
    if missing is None:
        return True
    if spec.entry_point is None:
        if any(each.kind is each.VAR_KEYWORD for each in known.values()):
            return True
        raise EnvError(f'{missing}: {given[missing]} is not allowed with env_id {spec.id}, whose '
                       f'vector environment does not take it')
    say(f'env_id: {spec.id}: single copies are stepped, because its vector environment does not '
        f'name {missing} among its arguments')
    return False


@contextlib.contextmanager
def _refusals(spec: EnvSpec, config: EnvConfig, count: int = 1) -> Iterator[list[str]]:
    """Raise an EnvError of one line for what an environment refuses as it is created.

    Yields a list that takes an item for each of ``count`` copies that is there.
    """
    made: list[str] = []
    try:
        with ForeignCall(f'env_id: {spec.id}', 'being created'):
            yield made
    except EnvError:
        raise
    except foreign_errors() as error:
        refuses = isinstance(error, gymnasium.error.Error | ImportError | TypeError | ValueError)
        # Other errors of this package are bugs, of anybody else's code they are what it refuses.
        if not refuses and str(spec.entry_point).startswith('vdl_ros.'):
            raise
        given = f' with env_kwargs {quoted(config.env_kwargs)}' if config.env_kwargs else ''
        # Some simulators run only once in a process.
        fewer = f'; {len(made)} of {count} copies could be created: num_envs:={len(made)}' if (
            0 < len(made) < count) else ''
        # Gymnasium repeats the arguments.
        reason = ' '.join(text_of(error).split()).partition(' was raised from the environment')[0]
        if isinstance(error, gymnasium.error.DependencyNotInstalled) and 'Box2D' in reason:
            # Gymnasium names its own extra, which has to be compiled.
            reason = 'Box2D is not installed: pip install box2d, or the extra box2d of vdl_ros'
        raise EnvError(f'env_id: {spec.id} cannot be created{given}: '
                       f'{reason if refuses else cause(error)}'
                       f'{fewer}{version_hint(error)}') from error


def spaces(config: EnvConfig) -> tuple[gym_spaces.Space[Any], gym_spaces.Space[Any]]:
    """Return the observation and action space of one copy, as in ``envs/canonical_spaces.py``."""
    env = make(config, seed=0, num_envs=1)
    try:
        return env.single_observation_space, env.single_action_space
    finally:
        env.close()


def first_actions(envs: VectorEnvironment) -> NDArray[Any]:
    """Return the least number of each part of an action, as the environment itself counts them."""
    return _checked(envs).first_actions


def raw_spaces(envs: VectorEnvironment) -> tuple[gym_spaces.Space[Any], gym_spaces.Space[Any]]:
    """Return the observation and action space that one copy has by itself, with its wrappers.

    EnvError: what a policy observes is made of more, such as its last actions.
    """
    checked = _checked(envs)
    if checked.single_observation_space != envs.single_observation_space:
        raise EnvError('observe_last_actions: the environment alone does not have the '
                       'observations')
    return checked.env.single_observation_space, checked.env.single_action_space


def _checked(envs: VectorEnvironment) -> CheckedVectorEnv:
    while not isinstance(envs, CheckedVectorEnv):
        envs = envs.env  # type: ignore[attr-defined]
    return envs


def frames_per_observation(config: EnvConfig) -> int:
    """Return the number of frames stacked on axis 0 of an observation, or of the image in it.

    It is 1 if there is no stack. Stacks of consecutive observations overlap, and
    ``rl/data/unroll.py`` sends each frame once; not if observations come late, because then
    some are skipped or repeated.
    """
    if config.realtime_fps or config.observation_delay or config.random_observation_delay:
        return 1
    if config.env_id.startswith(ATARI):
        return config.frame_stack
    return STACKED_FRAMES.get(config.env_id, 1)


def describe(config: EnvConfig) -> dict[str, Any]:
    """Return what a checkpoint has to say of its environment beside the settings; {} for most.

    The class of an environment whose policy may act outside of it has a function
    ``checkpoint_description`` that returns plain values; it is called with those of ``env_kwargs``
    that it has.
    """
    if config.env_id.startswith(ATARI):
        return {}
    spec = _spec(config.env_id)
    found = getattr(_creator(spec), 'checkpoint_description', None)
    if found is None:
        return {}
    kwargs = parse_kwargs(config.env_kwargs)
    try:
        known = inspect.signature(found).parameters
        description = found(**{name: value for name, value in kwargs.items() if name in known})
    except foreign_errors() as error:
        raise EnvError(f'env_id: {spec.id}: its description: {in_one_line(error)}') from error
    return {'environment': description} if description else {}


def robot_of(env_id: str) -> str:
    """Return the name of the contract that an environment is made from, '' of most.

    The id may be a stranger's: nothing but environments of this package is imported.
    """
    spec = gymnasium.registry.get(env_id)
    if spec is None or not str(spec.entry_point).startswith('vdl_ros.'):
        return ''
    found: str = getattr(_creator(spec), 'robot', '')
    return found


def _spec(env_id: str) -> EnvSpec:
    if ':' in env_id:
        # Gymnasium would import the module before the colon, and ids come over the network.
        raise EnvError(f"env_id: {quoted(env_id)} is not allowed: no module to import, no ':'; "
                       'env_modules are imported')
    if env_id in _IMPORTERS:
        raise EnvError(f'env_id: {env_id} is not allowed: it imports what an argument names')
    if env_id.startswith(dummy.NAMESPACE):
        dummy.register_dummies(env_id)
    spec = gymnasium.registry.get(env_id)
    if spec is None:
        if env_id.startswith(ROBOT):
            hint = (f'no robot {quoted(env_id)} on this host, or this process is no ROS node: '
                    'its contract is NAME.yaml in config/robots or in the folder robots')
        elif modules := imported_modules():
            hint = (f'no environment {quoted(env_id)} on this host; env_modules '
                    f'{", ".join(modules)} have registered none of this name')
        else:
            hint = (f'no environment {quoted(env_id)} on this host; the module that registers it '
                    'is named by env_modules:=MODULE with ros2 launch, by --ros-args -p '
                    'env_modules:=MODULE with a node, by --env_modules MODULE with another '
                    'program; your own program imports it first')
        raise EnvError(f'env_id: {hint}{suggestion(env_id, gymnasium.registry)}')
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith('ale_py.'):
        raise EnvError(f'env_id: {env_id} is not preprocessed: use an id such as ALE/Pong-v5')
    return spec


def _draws(spec: EnvSpec, made: Any) -> bool:
    """Return whether ``made``, or what it creates, draws; True if it does not say it."""
    metadata = getattr(made, 'metadata', None)
    return is_world(spec.id) or metadata is None or 'rgb_array' in (
        metadata.get('render_modes') or ())


def _creator(spec: EnvSpec) -> Any:
    point = spec.vector_entry_point if spec.entry_point is None else spec.entry_point
    return load_env_creator(point) if isinstance(point, str) else point
