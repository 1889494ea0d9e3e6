"""The policy of a file as one that may move the robot of a contract."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.onnx_file import OnnxFileError
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.play.onnx_policy import ActionError, OnnxPolicy, load_onnx_policy
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.observer import Observer
from vdl_ros.robots.task import make_task, task_of

#: Returns the likeliest actions [B, ...] for observations [B, ...], where episodes begin, bool
#: [B], and the rewards of the actions before, float [B].
Act = Callable[[NDArray[Any], NDArray[np.bool_], NDArray[Any]], NDArray[Any]]


class RobotPolicy(NamedTuple):
    """A policy and its environment, as many robots as the contract has copies.

    ``act`` raises ActionError for outputs without use; with ``has_state`` it depends on what came
    before in the episode.
    """

    act: Act
    env: EnvConfig
    algorithm: str
    agent_steps: int
    has_state: bool


def open_robot_policy(path: Path, contract: Contract) -> RobotPolicy:
    """Return the policy of a checkpoint, or of *.onnx by ``export_policy``.

    It learned on this robot, or its task is that of the contract, by its own description.

    Raises:
        ValueError: it cannot be read, or is of another robot; one line that names the file.
    """
    if path.suffix == '.onnx':
        onnx = load_robot_onnx(path, contract)
        found = onnx.metadata
        env = _environment(path, contract, found.environment, found.description)
        return RobotPolicy(
            onnx, env, found.algorithm, found.agent_steps, found.state_size > 0)
    # Imported here because it takes seconds, and an ONNX file does not need it.
    import torch

    from vdl_ros.play.saved_policy import load_policy
    # More threads do not pay for so few observations.
    torch.set_num_threads(1)
    # This host need not have the robot on which it learned the same task.
    saved = load_policy(path, env_id=task_of(contract).description(contract).get('task', ''))
    env = _environment(path, contract, vars(saved.env), saved.described)
    if (wanted := factory.spaces(env)) != (had := factory.spaces(saved.env)):
        raise SettingError(f'{path}: observations and actions {had} are not {wanted}, those of '
                           f'{contract.env_id}')
    return RobotPolicy(saved.act(), env, saved.train.algorithm, saved.agent_steps,
                       saved.policy.initial_state(1).numel() > 0)


def load_robot_onnx(path: Path, contract: Contract) -> OnnxPolicy:
    """Return a policy that takes a robot's observations, and whose actions are the robot's.

    OnnxFileError: another one; the message names the file.
    """
    space = Observer(contract, make_task(contract)).space
    policy = load_onnx_policy(path)
    try:
        policy.advance(np.zeros((1, *space.shape), space.dtype),
                       np.zeros((1, policy.metadata.state_size), np.float32))
    except (ActionError, ValueError) as error:
        raise OnnxFileError(f'{path}: {error}') from None
    found, parts = policy.metadata.action, contract.actions.parts
    sizes, count = tuple(len(part.levels) for part in parts if part.levels), len(parts)
    if found.sizes != sizes or found.shape not in ((count,), () if sizes else (count,)):
        raise OnnxFileError(
            f'{path}: actions of shape {list(found.shape)} and sizes {list(found.sizes)} are not '
            f'allowed: {count} parts of sizes {list(sizes)}')
    return policy


def _environment(
    path: Path, contract: Contract, settings: dict[str, Any], described: dict[str, Any],
) -> EnvConfig:
    """Return the robot's environment, of which the file decides nothing."""
    task, env_id = task_of(contract), settings.get('env_id')
    if task.description(contract):
        try:
            task.check_policy(contract, described)
        except ValueError as error:
            raise SettingError(f'{path}: {error}') from None
    elif env_id != contract.env_id:
        raise SettingError(f'{path}: env_id is {quoted(env_id)}, not {contract.env_id!r}')
    if wrappers := settings.get('env_wrappers'):
        raise SettingError(f'{path}: env_wrappers: {quoted(wrappers)} is not allowed: a robot has '
                           'no wrappers')
    return EnvConfig(env_id=contract.env_id, num_envs=contract.copies)
