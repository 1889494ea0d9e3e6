"""Load demonstrations: bags of a robot, replayed through its task, or LeRobot data sets."""

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.bags.reader import BagReader, find_bags, read_labels
from vdl_ros.common.images import ImageError
from vdl_ros.common.memory import check_size
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import ROBOT, EnvConfig, EnvModulesConfig
from vdl_ros.export.lerobot_reader import INFO, LeRobotData, read_lerobot
from vdl_ros.export.messages import ArmBag, Picture, of_contract
from vdl_ros.rl.algorithms import sac
from vdl_ros.rl.learning.demonstrations import (
    DemonstrationInbox,
    Demonstrations,
    Outcomes,
    chunks,
    repeated,
)
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import BcConfig, SacConfig, TrainConfig
from vdl_ros.robots.contract import Contract, ImageTopic, Topic
from vdl_ros.robots.contract_files import find_contract, known_contracts, read_contract
from vdl_ros.robots.observer import Observer, frame
from vdl_ros.robots.positions import Positions
from vdl_ros.robots.takeover import executed_actions
from vdl_ros.robots.task import HISTORY, Measured, Task, make_task, reward_of

# The last rest of an episode is learned for so long, and rests within it, s: what is observed does
# not say why a person waits.
_LAST_REST_S, _REST_S = 1.0, 0.5
# Gaps in the clocks of a bag must not make ticks without end: a longer one is a clock that was
# set, or that did not run yet, as one that goes back by more than messages overtake each other.
_MAX_S, _MAX_BACK_S = 3600.0, 1.0
# Share by which a recorder's clock may be another than the simulated one.
_MAX_DRIFT = 0.1
# Memory that a reading of an episode takes, bytes, and after how many that is checked.
_READING, _CHECKED = 1000, 10_000


class StateReading(NamedTuple):
    """A message of the robot's state.

    ``at`` is when it arrived, ``stamp`` its own time, s; ``values`` are features by name, of an
    image there is the ``frame`` that the robot sees instead.
    """

    at: float
    stamp: float
    values: dict[str, float]
    frame: NDArray[np.uint8] | None = None


@dataclass
class RobotEpisode:
    """An episode as it was recorded.

    Attributes:
        source: where it is from, for messages.
        readings: by key of the contract's topics and images, in the order of their arrival.
        commands: time, s, and numbers of each command, in their order.
        is_success: a person has saved it as one.
    """

    source: str
    readings: dict[str, list[StateReading]] = field(default_factory=dict)
    commands: list[tuple[float, tuple[float, ...]]] = field(default_factory=list)
    is_success: bool = False


class _Replayed(NamedTuple):
    """Observations [N, D] and actions, of the contract's action space, [N, A], of an episode."""

    observations: NDArray[Any]
    actions: NDArray[np.float64]
    outcomes: Outcomes | None = None


def _replay(
    episode: RobotEpisode, contract: Contract, task: Task, observer: Observer,
    outcomes: bool = False, chunk: int = 1,
) -> _Replayed:
    """Return what was observed and done, from the first motion to a second after the last one.

    With ``outcomes`` what followed, too, with all rests, up to success or failure, which may come
    later; ``chunk`` is as of :func:`load_demonstrations`.
    """
    missing = [topic.topic for key, topic in _needed(contract, outcomes).items()
               if key not in episode.readings]
    if missing:
        raise ValueError(f'{episode.source}: no message on {", ".join(missing)}')
    begin = max(each[0].at for each in episode.readings.values())
    end = min(each[-1].at for each in episode.readings.values())
    count = int((end - begin) * contract.rate)
    if not 1 < count <= _MAX_S * contract.rate:
        raise ValueError(f'{episode.source}: its messages span {end - begin:.3g} s; '
                         f'from two steps of {1.0 / contract.rate:g} s to an hour')
    ticks = begin + np.arange(count + 1) / contract.rate
    actions, values = executed_actions(episode.commands, ticks, contract)
    neutral = np.array(contract.actions.neutral)
    # A position is none before a command has another one.
    begins = np.where(np.isnan(neutral), values[0], neutral)
    moves = np.any(np.abs(values - begins) > 1e-9, axis=1)
    if not moves.any():
        raise ValueError(f'{episode.source}: no command moves the robot')
    first, last = int(np.argmax(moves)), count - 1 - int(np.argmax(moves[::-1]))
    rested = min(count, last + 1 + round(_LAST_REST_S * contract.rate))
    stop = count if outcomes else rested
    begun, = _measure(episode, ticks[first:first + 1], np.tile(neutral, (HISTORY, 1)))
    rest = Positions(contract).allowed(neutral, begun.values)
    history = np.concatenate([np.tile(rest, (HISTORY, 1)), values[first:]])
    measured = _measure(episode, ticks[first:stop + outcomes], history)
    fresh = np.array([
        all(each.ages[key] <= topic.timeout for key, topic in contract.observed_inputs.items())
        for each in measured])
    task.begin_demonstrated(measured)
    observer.begin()
    if outcomes:
        return _with_outcomes(episode, contract.success_reward, task, observer, measured, fresh,
                              actions[first:stop], rested - first)
    observations = np.stack([observer.step(each) for each in measured])
    # Not what is beyond a short rest before the last motion; the first step moves.
    steps = np.arange(stop - first)
    still = steps - np.maximum.accumulate(np.where(moves[first:stop], steps, 0))
    kept = fresh & ((still <= round(_REST_S * contract.rate)) | (steps >= last - first))
    return _Replayed(observations[kept], chunks(actions[first:stop], chunk)[kept])


def _with_outcomes(
    episode: RobotEpisode, success_reward: float, task: Task, observer: Observer,
    measured: Sequence[Measured], fresh: NDArray[np.bool_], actions: NDArray[np.float64],
    most: int,
) -> _Replayed:
    """Return the steps between two ``fresh`` measurements, with the task's reward and end.

    Where nothing ends them these are ``most``.

    As on the robot a broken limit ends them, too, and costs its penalty. A success of which only
    the person knows is worth ``success_reward``.
    """
    observations, rewards = [observer.step(measured[0])], list[float]()
    ended = False
    for before, after in itertools.pairwise(measured):
        is_broken = task.contract.broken_limit(after.values) is not None
        rewards.append(reward_of(task, before, after, is_broken=is_broken))
        ended = task.success(after) | task.failure(after) | is_broken
        observations.append(observer.step(after))
        if ended:
            break
    if not ended:
        del rewards[most:], observations[most + 1:]
    if success_reward and episode.is_success and not ended:
        ended, rewards[-1] = True, rewards[-1] + success_reward
    steps, found = len(rewards), np.stack(observations)
    kept = np.flatnonzero(fresh[:steps] & fresh[1:steps + 1])
    if not len(kept):
        raise ValueError(f'{episode.source}: no two measurements in a row are new enough')
    return _Replayed(found[kept], actions[kept], Outcomes(
        found[kept + 1], np.array(rewards)[kept], ended & (kept == steps - 1),
        np.diff(kept, append=steps + 1) > 1))


def _needed(contract: Contract, outcomes: bool) -> dict[str, Topic]:
    """Return what an episode has to have: for ``outcomes`` also images that the task rewards."""
    classified = contract.success.image if contract.success is not None else ''
    return contract.observed_inputs | {
        key: topic for key, topic in contract.inputs.items() if outcomes and key != classified}


def _measure(
    episode: RobotEpisode, ticks: NDArray[np.float64], history: NDArray[np.float64],
) -> list[Measured]:
    """Return what was known at each tick; ``history`` begins ``HISTORY`` before the first."""
    places = {key: np.searchsorted([each.at for each in readings], ticks, side='right') - 1
              for key, readings in episode.readings.items()}
    found = []
    for index, tick in enumerate(ticks.tolist()):
        newest = {key: episode.readings[key][place[index]] for key, place in places.items()}
        found.append(Measured(
            {name: value for each in newest.values() for name, value in each.values.items()},
            {key: each.stamp for key, each in newest.items()},
            {key: max(0.0, tick - each.stamp) for key, each in newest.items()},
            tick - float(ticks[0]), history[index:index + HISTORY][::-1],
            {key: each.frame for key, each in newest.items() if each.frame is not None}))
    return found


def demonstration_inbox(
    env: EnvConfig, train: TrainConfig, bc: BcConfig, modules: EnvModulesConfig,
    learner: Learner, flow_stats: FlowStats,
) -> DemonstrationInbox:
    """Return the inbox of a learner that clones; ValueError: no usable demonstrations."""
    if not bc.demonstrations:
        raise SettingError("demonstrations: '' is not allowed with algorithm 'bc': a folder of "
                           'record_episodes, or of a LeRobot data set')
    return DemonstrationInbox(
        _load(bc.demonstrations, env, modules, learner, chunk=bc.chunk), learner.schema,
        bc.bc_batch, train.seed, lambda: learner.version, flow_stats)


def demonstrate(env: EnvConfig, modules: EnvModulesConfig, learner: Learner) -> str:
    """Give a learner of ``sac`` its demonstrations; return a line of them, '' without any.

    ValueError: no usable demonstrations.
    """
    own = learner.algorithm_config
    if not isinstance(own, SacConfig) or not own.demonstrations:
        return ''
    found = _load(own.demonstrations, env, modules, learner, outcomes=True)
    assert isinstance(learner.algorithm, sac.Algorithm)
    assert found.outcomes is not None
    learner.algorithm.demonstrate(learner.make_batch([found.as_unroll(learner.schema)]))
    return (f'{100 * own.demonstration_share:.0f} % of each optimizer step are of '
            f'{len(found.actions):,} steps of {found.episodes} demonstrations, of which '
            f'{found.outcomes.terminated.sum()} end with success or failure; a new run '
            'learns from them before anybody acts')


def _load(
    folder: str, env: EnvConfig, modules: EnvModulesConfig, learner: Learner,
    outcomes: bool = False, chunk: int = 1,
) -> Demonstrations:
    """Return demonstrations in units of the policy."""
    contracts = known_contracts(modules.robots)
    with contextlib.closing(factory.make(env, seed=0, num_envs=1)) as envs:
        spaces = envs.single_observation_space, envs.single_action_space
        first = factory.first_actions(envs)
    try:
        found = load_demonstrations(
            Path(folder), env.env_id, spaces, contracts, first, outcomes=outcomes, chunk=chunk)
    except ValueError as error:
        raise ValueError(f'demonstrations: {error}') from error
    actions, shape = found.actions, found.actions.shape
    if chunk > 1:
        actions = actions.reshape(-1, *(spaces[1].shape or ()))
    return replace(found, actions=learner.policy.distribution.from_environment(
        actions).reshape(shape))


def load_demonstrations(
    folder: Path, env_id: str, spaces: tuple[gymnasium.Space[Any], gymnasium.Space[Any]],
    contracts: Mapping[str, Path], first_actions: ArrayLike = 0, *, outcomes: bool = False,
    chunk: int = 1,
) -> Demonstrations:
    """Return the demonstrations in a folder, as the environment observes and acts.

    Episodes that were saved as a failure are left out. Those of a robot are replayed through the
    task of its contract; a data set of another kind has the observations and actions themselves.

    Args:
        folder: of bags, or of a data set.
        contracts: files of this host's contracts by name; what a bag says only chooses one.
        first_actions: the least numbers of discrete actions in the environment; ``spaces`` and
            the result count from 0.
        outcomes: what followed is needed, too.
        chunk: actions of each step, its own and the next ones, [N, chunk * A].

    Raises:
        ValueError: there are none, they cannot be read, or do not fit the environment; one line.
    """
    source = str(folder)
    spaces = spaces[0], repeated(spaces[1], chunk)
    if chunk > 1:
        first_actions = np.tile(np.ravel(first_actions), chunk)
    if (folder / INFO).is_file():
        data = read_lerobot(folder)
        contract = _contract_of(data, contracts)
        if contract is None:
            _check_meaning(source, data.robot, _contract_of_env(data.robot, contracts), env_id,
                           contracts)
            return _of_environment(data, source, outcomes, chunk).fitted(*spaces, first_actions)
        if contract.observed_images:
            raise ValueError(f'{source}: the robot {contract.name!r} observes images, which are '
                             'videos in a LeRobot data set and not read: bags of record_episodes')
        episodes = _episodes_of(data, contract, source)
    else:
        episodes, contract = _read_bags(folder, env_id, contracts, outcomes)
    task = make_task(contract)
    observer = Observer(contract, task)
    wanted, shape = spaces[0].shape, observer.space.shape
    if shape != wanted:
        raise ValueError(
            f'{source}: of robot {contract.name!r}, whose observations of shape {list(shape)} do '
            f'not fit {env_id}: {list(wanted or ())}')
    _check_meaning(source, contract.name, contract, env_id, contracts)
    found, size = list[_Replayed](), 0
    for episode in episodes:
        found.append(_replay(episode, contract, task, observer, outcomes, chunk))
        # Twice as they are joined, and what followed.
        size += found[-1].observations.nbytes * (4 if outcomes else 2)
        check_size(size, source)
    known = [each.outcomes for each in found if each.outcomes is not None]
    return Demonstrations(
        np.concatenate([each.observations for each in found]),
        np.concatenate([each.actions for each in found]), len(found), source,
        Outcomes(*(np.concatenate([getattr(each, field.name) for each in known])
                   for field in fields(Outcomes))) if known else None).fitted(*spaces)


def _check_meaning(
    source: str, robot: str, contract: Contract | None, env_id: str,
    contracts: Mapping[str, Path],
) -> None:
    """Refuse numbers that mean something else in the environment, where both have a contract.

    Shapes do not say it: changes of positions are as many as positions.
    """
    other = _contract_of_env(env_id, contracts)
    if contract is None or other is None:
        return
    for theirs, ours in itertools.zip_longest(
            _meanings(contract), _meanings(other), fillvalue='nothing'):
        if theirs != ours:
            raise ValueError(f'{source}: of robot {quoted(robot)}, with {theirs}, where {env_id} '
                             f'has {ours}')


def _contract_of_env(env_id: str, contracts: Mapping[str, Path]) -> Contract | None:
    """Return the contract of a robot, or that an environment is made from; None without one."""
    if env_id.startswith(ROBOT):
        path = contracts.get(env_id.removeprefix(ROBOT))
        return None if path is None else read_contract(path)
    name = factory.robot_of(env_id)
    return find_contract(name) if name else None


def _meanings(contract: Contract) -> list[str]:
    """Return what the numbers of observations and actions are, in words."""
    return [*(f'feature {each.name}' for each in contract.features), *(
        f'action {each.name} from {each.low:g} to {each.high:g}' + ''.join(
            f', {key} {value}' for key in ('levels', 'change_of', 'position_of', 'step')
            if (value := getattr(each, key)))
        for each in contract.actions.parts)]


def _of_environment(
    data: LeRobotData, source: str, outcomes: bool, chunk: int,
) -> Demonstrations:
    """Return the rows of an environment; with outcomes those that another one follows, too."""
    count = len(np.unique(data.episodes))
    if not outcomes:
        ends = np.flatnonzero(np.diff(data.episodes)) + 1
        return Demonstrations(data.states, np.concatenate([
            chunks(each, chunk) for each in np.split(data.actions, ends)]), count, source)
    if data.rewards is None or data.done is None:
        raise ValueError(f'{source}: it has no next.reward and next.done, which sac learns from: '
                         'record it again')
    is_last = np.append(np.diff(data.episodes) != 0, True)
    # What follows the last row is not recorded; after a termination it is not needed.
    kept = np.flatnonzero(~is_last | data.done)
    if not len(kept):
        raise ValueError(f'{source}: episodes of one row')
    following = np.where(is_last, np.arange(len(is_last)), np.arange(len(is_last)) + 1)
    return Demonstrations(data.states[kept], data.actions[kept], count, source, Outcomes(
        data.states[following[kept]], data.rewards[kept], data.done[kept],
        np.append(is_last[kept[:-1]] | (np.diff(kept) > 1), True)))


def _contract_of(data: LeRobotData, contracts: Mapping[str, Path]) -> Contract | None:
    """Return the contract whose features and actions a data set has; None without one."""
    if data.robot not in contracts:
        return None
    contract = read_contract(contracts[data.robot])
    features = tuple(each.name for each in contract.features)
    parts = tuple(each.name for each in contract.actions.parts)
    fits = data.state_names == features and data.action_names[:len(parts)] == parts
    return contract if fits else None


def _episodes_of(
    data: LeRobotData, contract: Contract, source: str,
) -> Iterator[RobotEpisode]:
    """Yield the episodes that are not failures; ValueError: all are."""
    numbers = np.unique(data.episodes)
    if data.success is not None:
        numbers = np.unique(data.episodes[data.success])
    if not len(numbers):
        raise ValueError(f'{source}: all episodes were saved as failures')
    for number in numbers.tolist():
        rows = np.flatnonzero(data.episodes == number)
        check_size(_READING * len(rows), f'{source}: episode {number}')
        times = (np.arange(len(rows)) / data.fps).tolist()
        states, actions = data.states[rows].tolist(), data.actions[rows].tolist()
        episode = RobotEpisode(
            f'{source}: episode {number}', is_success=data.success is not None)
        for key in contract.topics:
            names = [(index, each.name) for index, each in enumerate(contract.features)
                     if each.source == key]
            episode.readings[key] = [
                StateReading(time, time, {name: row[index] for index, name in names})
                for time, row in zip(times, states, strict=True)]
        episode.commands = [(time, tuple(row)) for time, row in zip(times, actions, strict=True)]
        yield episode


def _read_bags(
    folder: Path, env_id: str, contracts: Mapping[str, Path], outcomes: bool,
) -> tuple[Iterator[RobotEpisode], Contract]:
    """Return the episodes of a folder that are not failures, and their contract."""
    if not folder.is_dir():
        raise ValueError(f'{folder} is no folder')
    robot, failures, bags = '', 0, []
    for bag in find_bags(folder):
        BagReader(bag)
        labels = read_labels(bag)
        name = labels.robot or env_id.removeprefix(ROBOT)
        if name == env_id:
            raise ValueError(f'{bag / "metadata.yaml"}: custom_data: robot: missing, so that '
                             f'nothing says whose bag it is: {", ".join(sorted(contracts))}')
        if robot and name != robot:
            raise ValueError(
                f'{bag} is of robot {quoted(name)}, those before it of {quoted(robot)}')
        robot = name
        if labels.success is False:
            failures += 1
            continue
        bags.append((bag, labels.success is True))
    if not bags:
        raise ValueError(f'{folder}: all {failures} episodes were saved as failures')
    if robot not in contracts:
        raise ValueError(
            f'{bags[0][0]} is of robot {quoted(robot)}, of which this host has '
            f'no contract: {", ".join(sorted(contracts))}')
    contract = read_contract(contracts[robot])
    return (_read_bag(bag, contract, success, outcomes) for bag, success in bags), contract


def _read_bag(path: Path, contract: Contract, success: bool, outcomes: bool) -> RobotEpisode:
    inputs = _needed(contract, outcomes)
    images = {each.topic.strip('/') for each in inputs.values() if isinstance(each, ImageTopic)}
    topics = of_contract(contract).without_images(but=images)
    episode, before, origin = RobotEpisode(str(path), is_success=success), math.nan, 0
    size = checked = 0
    # The first and the last stamp of what has one, and when these were recorded, ns.
    stamps = list[tuple[int, int]]()
    bag = ArmBag(path, _namespace(path, contract), topics)
    for entry in bag.read(pixels=bool(images)):
        size += _READING
        if size > checked:
            check_size(size, str(path))
            checked = size + _READING * _CHECKED
        # Stamps of simulated time are not of the recorder's clock; large numbers would be inexact.
        ns = entry.stamp_ns if contract.simulated_clock else entry.logged_ns
        at = (ns - origin) / 1e9 if origin else 0.0
        if at - before > _MAX_S or at - before < -_MAX_BACK_S:
            warnings.warn(f'{path}: its clock goes from {before + origin / 1e9:.1f} to '
                          f'{ns / 1e9:.1f} s: what comes before that is left out', stacklevel=1)
            episode, at = RobotEpisode(str(path), is_success=success), 0.0
            stamps.clear()
        if not at:
            origin = ns
        before = at
        if isinstance(entry.value, dict | Picture):
            for key, topic in inputs.items():
                if topic.topic.strip('/') != entry.topic:
                    continue
                known = episode.readings.get(key)
                if known and at < known[-1].at:
                    continue
                if topic.stamped and entry.own_ns is not None:
                    stamps[1:] = [(entry.own_ns, entry.logged_ns)]
                stamp = (entry.stamp_ns - origin) / 1e9 if topics.by_stamp else at
                try:
                    found = _reading(topic, at, stamp, entry.value)
                except ImageError as error:
                    bag.refused[f'{entry.topic}: {error}'] += 1
                    continue
                episode.readings.setdefault(key, []).append(found)
                size += getattr(found.frame, 'nbytes', 0)
        elif isinstance(entry.value, tuple):
            episode.commands.append((at, entry.value))
    if contract.simulated_clock and not topics.by_stamp and stamps:
        _check_clock(path, stamps)
    for line in (*bag.faults, *(f'{path}: left out {count} messages: {why}'
                                for why, count in bag.refused.most_common(5))):
        warnings.warn(line, stacklevel=1)
    return episode


def _namespace(path: Path, contract: Contract) -> str:
    """Return the namespace of the copy that was commanded, if a bag has several; else ''.

    ValueError: several were, or none.
    """
    if contract.copies == 1:
        return ''
    topics = {message.topic.strip('/') for message in BagReader(path)}
    spaces = [contract.namespace.format(copy) for copy in range(contract.copies)]
    present = [each for each in spaces if any(name.startswith(f'{each}/') for name in topics)]
    commands = contract.actions.echo or contract.actions.topic
    found = [each for each in present if f'{each}/{commands}' in topics]
    if len(present) < 2:
        return ''
    if len(found) != 1:
        raise ValueError(f'{path}: has commands of {", ".join(found) or "no robot"} '
                         f'of {len(present)}: demonstrate with one')
    return found[0]


def _check_clock(path: Path, stamps: Sequence[tuple[int, int]]) -> None:
    """Refuse a bag whose recorder's clock was not the simulated one, by stamps beside its times.

    Of commands without a stamp nobody knows when they were given in simulated time.
    """
    simulated, recorded = ((last - first) / 1e9 for first, last in zip(
        stamps[0], stamps[-1], strict=True))
    if abs(simulated - recorded) > _MAX_DRIFT * max(simulated, recorded):
        raise ValueError(
            f'{path}: {simulated:.3g} s of simulated time were recorded as {recorded:.3g} s, and '
            'commands have no stamp: record it again with record_episodes --ros-args -p '
            'use_sim_time:=true')


def _reading(
    topic: Topic, at: float, stamp: float, value: Picture | dict[str, float],
) -> StateReading:
    if isinstance(value, dict):
        return StateReading(at, stamp, value)
    assert isinstance(topic, ImageTopic)
    assert value.pixels is not None
    return StateReading(at, stamp, {}, frame(topic, value.pixels))
