"""Load demonstrations for an environment: bags of ``record_episodes``, or a LeRobot data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from vdl_ros.bags.episodes import find_bags, read_labels
from vdl_ros.bags.messages import MessageError
from vdl_ros.bags.reader import BagError, BagReader
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.demonstrations.errors import DemonstrationError
from vdl_ros.demonstrations.lerobot_reader import INFO, LeRobotData, read_lerobot
from vdl_ros.demonstrations.robot_replay import RobotEpisode, StateReading, replay
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.envs.factory import ROBOT
from vdl_ros.export.bag_topics import of_contract
from vdl_ros.export.messages import ArmBag, ExportError
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.algorithm_config import BcConfig
from vdl_ros.rl.data.demonstrations import Demonstrations
from vdl_ros.rl.learning.demonstration_inbox import DemonstrationInbox
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.contract_file import known_contracts, read_contract
from vdl_ros.robots.task import Task, make_task

__all__ = ['demonstration_inbox', 'load_demonstrations']


def demonstration_inbox(
    env: EnvConfig, train: TrainConfig, bc: BcConfig, modules: EnvModulesConfig,
    learner: Learner, flow_stats: FlowStats,
) -> DemonstrationInbox:
    """
    Return the inbox of a learner that clones demonstrations.

    Raises:
        ValueError: none are named, or they cannot be used; one line.
    """
    if not bc.demonstrations:
        raise SettingError("demonstrations: '' is not allowed with algorithm 'bc': a folder of "
                           'record_episodes, or of a LeRobot data set')
    contracts, spaces = known_contracts(modules.robots), factory.spaces(env)
    try:
        found = load_demonstrations(Path(bc.demonstrations), env.env_id, spaces, contracts)
    except ValueError as error:
        raise DemonstrationError(f'demonstrations: {error}') from error
    return DemonstrationInbox(found, learner.schema, bc.bc_batch, train.seed,
                              lambda: learner.version, flow_stats)


def load_demonstrations(
    folder: Path, env_id: str, spaces: tuple[gymnasium.Space[Any], gymnasium.Space[Any]],
    contracts: Mapping[str, Path],
) -> Demonstrations:
    """
    Return the demonstrations in a folder, as the environment observes and acts.

    Episodes that were saved as a failure are left out. Those of a robot are replayed through the
    task of its contract; a data set of another kind has the observations and actions themselves.

    Args:
        folder: of bags, or of a data set.
        env_id: of the environment.
        spaces: of its observations and actions.
        contracts: files of this host's contracts by name; what a bag says only chooses one.

    Raises:
        DemonstrationError: there are none, or they cannot be read.
        ValueError: they do not fit the environment, or the contract cannot be used; one line.
    """
    source = str(folder)
    if (folder / INFO).is_file():
        data = read_lerobot(folder)
        contract = _contract_of(data, contracts)
        if contract is None:
            return Demonstrations(data.states, data.actions, len(np.unique(data.episodes)),
                                  source).fitted(*spaces)
        episodes = _episodes_of(data, contract, source)
    else:
        episodes, contract = _read_bags(folder, env_id, contracts)
    task = make_task(contract)
    _check_space(source, contract, task, env_id, spaces[0])
    found = [replay(each, contract, task) for each in episodes]
    return Demonstrations(
        np.concatenate([each.observations for each in found]),
        np.concatenate([each.actions for each in found]), len(found), source).fitted(*spaces)


def _check_space(
    source: str, contract: Contract, task: Task, env_id: str,
    space: gymnasium.Space[Any],
) -> None:
    if task.observation_space.shape != space.shape:
        raise DemonstrationError(
            f'{source}: of robot {contract.name!r}, whose observations of shape '
            f'{list(task.observation_space.shape)} do not fit {env_id}: {list(space.shape or ())}')


def _contract_of(data: LeRobotData, contracts: Mapping[str, Path]) -> Contract | None:
    """Return the contract whose features and actions a data set has; None without one."""
    if data.robot not in contracts:
        return None
    contract = read_contract(contracts[data.robot])
    features = tuple(each.name for each in contract.features)
    parts = tuple(each.name for each in contract.actions.parts)
    fits = data.state_names == features and data.action_names[:len(parts)] == parts
    return contract if fits else None


def _episodes_of(data: LeRobotData, contract: Contract, source: str) -> list[RobotEpisode]:
    found = []
    for number in np.unique(data.episodes).tolist():
        rows = np.flatnonzero(data.episodes == number)
        times = (np.arange(len(rows)) / data.fps).tolist()
        states, actions = data.states[rows].tolist(), data.actions[rows].tolist()
        episode = RobotEpisode(f'{source}: episode {number}')
        for key in contract.topics:
            names = [(index, each.name) for index, each in enumerate(contract.features)
                     if each.source == key]
            episode.readings[key] = [
                StateReading(time, time, {name: row[index] for index, name in names})
                for time, row in zip(times, states, strict=True)]
        episode.commands = [(time, tuple(row)) for time, row in zip(times, actions, strict=True)]
        found.append(episode)
    return found


def _read_bags(
    folder: Path, env_id: str, contracts: Mapping[str, Path],
) -> tuple[list[RobotEpisode], Contract]:
    """Return the episodes of a folder that are not failures, and their contract."""
    if not folder.is_dir():
        raise DemonstrationError(f'{folder} is no folder')
    robot, failures, bags = '', 0, []
    try:
        for bag in find_bags(folder):
            BagReader(bag)
            labels = read_labels(bag)
            name = labels.robot or env_id.removeprefix(ROBOT)
            if robot and name != robot:
                raise DemonstrationError(f'{bag} is of robot {quoted(name)}, '
                                         f'those before it of {quoted(robot)}')
            robot = name
            if labels.success is False:
                failures += 1
                continue
            bags.append(bag)
        if not bags:
            raise DemonstrationError(f'{folder}: all {failures} episodes were '
                                     'saved as failures')
        if robot not in contracts:
            raise DemonstrationError(
                f'{bags[0]} is of robot {quoted(robot)}, of which this host has '
                f'no contract: {", ".join(sorted(contracts))}')
        contract = read_contract(contracts[robot])
        return [_read_bag(bag, contract) for bag in bags], contract
    except (BagError, ExportError, MessageError) as error:
        raise DemonstrationError(str(error)) from None


def _read_bag(path: Path, contract: Contract) -> RobotEpisode:
    topics = of_contract(contract).without_images()
    keys = {topic.topic.strip('/'): key for key, topic in contract.topics.items()}
    stamped = {topic.topic.strip('/'): topic.stamped for topic in contract.topics.values()}
    episode = RobotEpisode(str(path))
    for entry in ArmBag(path, topics=topics).read(pixels=False):
        # Stamps of simulated time are not of the recorder's clock.
        at = (entry.stamp_ns if contract.simulated_clock else entry.logged_ns) * 1e-9
        if isinstance(entry.value, dict):
            stamp = entry.stamp_ns * 1e-9 if stamped[entry.topic] and topics.by_stamp else at
            readings = episode.readings.setdefault(keys[entry.topic], [])
            if not readings or at >= readings[-1].at:
                readings.append(StateReading(at, stamp, entry.value))
        elif isinstance(entry.value, tuple):
            episode.commands.append((at, entry.value))
    return episode
