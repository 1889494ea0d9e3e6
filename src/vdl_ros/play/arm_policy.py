"""Opens a policy of the task *reach* for an arm: a checkpoint, or an ONNX file without PyTorch.

A policy that was trained on something else than this program and this arm is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.owi535.reach import FEATURES, MOTORS, MisfitError, check
from vdl_ros.envs.owi535.reach_on_arm import Act
from vdl_ros.envs.registration import REACH
from vdl_ros.play.onnx_policy import ActionError, load_onnx_policy

__all__ = ['ActionError', 'ArmPolicy', 'open_policy']


class ArmPolicy(NamedTuple):
    """A policy that may move the arm.

    ``act`` raises :class:`ActionError` for outputs that cannot be used.
    """

    act: Act
    algorithm: str
    agent_steps: int


class _Opened(NamedTuple):
    """A policy, what was said of its environment, and whether it observes rewards."""

    policy: ArmPolicy
    described: Mapping[str, Any]
    env_wrappers: object
    last_action_reward: bool


def open_policy(path: Path, geometry: ArmGeometry) -> ArmPolicy:
    """Return the policy of a file, the most likely actions.

    Args:
        path: a checkpoint, or *.onnx of ``export_policy``.

    Raises:
        ValueError: it cannot be read, or does not fit; one line that names the file.
    """
    found = _of_onnx(path) if path.suffix == '.onnx' else _of_checkpoint(path)
    try:
        check(found.described, geometry)
    except MisfitError as error:
        raise SettingError(f'{path}: {error}') from None
    if found.env_wrappers:
        raise SettingError(f'{path}: env_wrappers: {quoted(found.env_wrappers)} is not allowed: '
                           'the arm has no wrappers')
    if found.last_action_reward:
        raise SettingError(f'{path}: last_action_reward: true is not allowed: the reward is '
                           'known in the environment only')
    return found.policy


def _of_checkpoint(path: Path) -> _Opened:
    # Imported here because it takes seconds, and an ONNX file does not need it.
    import torch

    from vdl_ros.play.saved_policy import load_policy
    # More threads do not pay for one observation.
    torch.set_num_threads(1)
    saved = load_policy(path, env_id=REACH)
    return _Opened(
        ArmPolicy(saved.act(), saved.train.algorithm, saved.agent_steps), saved.described,
        saved.env.env_wrappers, saved.policy.last_action_reward)


def _of_onnx(path: Path) -> _Opened:
    policy = load_onnx_policy(path)
    found = policy.metadata
    env_id = found.environment.get('env_id')
    if env_id != REACH and found.description.get('task') != REACH:
        raise SettingError(f'{path}: env_id is {quoted(env_id)}, not {REACH!r}')
    # What the file says of itself need not be what its graph takes and gives.
    first, *more = found.observation.inputs
    wanted = (len(FEATURES),)
    if more or first.shape != wanted or first.dtype != 'float32':
        raise SettingError(f'{path}: {first.name}: {first.dtype} {list(first.shape)} is not '
                           f'float32 {list(wanted)}')
    if found.action.sizes != (3,) * len(MOTORS) or not found.action.shape:
        raise SettingError(f'{path}: action: {list(found.action.sizes)} choices are not 3 for '
                           f'each of {", ".join(MOTORS)}')
    return _Opened(ArmPolicy(policy, found.algorithm, found.agent_steps), found.description,
                   found.environment.get('env_wrappers'), found.last_reward is not None)
