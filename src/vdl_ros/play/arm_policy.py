"""Opens a policy of the task *reach* for an arm: a checkpoint, or an ONNX file without PyTorch.

A policy that was trained on something else than this program and this arm is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.owi535.reach import FEATURES, MOTORS, MisfitError, check
from vdl_ros.envs.owi535.reach_on_arm import Act
from vdl_ros.envs.registration import REACH
from vdl_ros.play.onnx_policy import PolicyMetadata, load_onnx_policy


class ArmPolicy(NamedTuple):
    """A policy that may move the arm; ``act`` raises ActionError for outputs without use."""

    act: Act
    algorithm: str
    agent_steps: int


def open_policy(path: Path, geometry: ArmGeometry) -> ArmPolicy:
    """Return the policy of a checkpoint, or of *.onnx by ``export_policy``: its likeliest actions.

    Raises:
        ValueError: it cannot be read, or does not fit; one line that names the file.
    """
    if path.suffix == '.onnx':
        onnx = load_onnx_policy(path)
        found = onnx.metadata
        _check_graph(path, found)
        policy = ArmPolicy(onnx, found.algorithm, found.agent_steps)
        described, wrappers = found.description, found.environment.get('env_wrappers')
        observes_reward = found.last_reward is not None
    else:
        # Imported here because it takes seconds, and an ONNX file does not need it.
        import torch

        from vdl_ros.play.saved_policy import load_policy
        # More threads do not pay for one observation.
        torch.set_num_threads(1)
        saved = load_policy(path, env_id=REACH)
        policy = ArmPolicy(saved.act(), saved.train.algorithm, saved.agent_steps)
        described, wrappers = saved.described, saved.env.env_wrappers
        observes_reward = saved.policy.last_action_reward
    try:
        check(described, geometry)
    except MisfitError as error:
        raise SettingError(f'{path}: {error}') from None
    if wrappers:
        raise SettingError(f'{path}: env_wrappers: {quoted(wrappers)} is not allowed: the arm has '
                           'no wrappers')
    if observes_reward:
        raise SettingError(f'{path}: last_action_reward: true is not allowed: the reward is '
                           'known in the environment only')
    return policy


def _check_graph(path: Path, found: PolicyMetadata) -> None:
    """Check the inputs and outputs, which need not be what the file says of itself."""
    env_id = found.environment.get('env_id')
    if env_id != REACH and found.description.get('task') != REACH:
        raise SettingError(f'{path}: env_id is {quoted(env_id)}, not {REACH!r}')
    first, *more = found.observation.inputs
    wanted = (len(FEATURES),)
    if more or first.shape != wanted or first.dtype != 'float32':
        raise SettingError(f'{path}: {first.name}: {first.dtype} {list(first.shape)} is not '
                           f'float32 {list(wanted)}')
    if found.action.sizes != (3,) * len(MOTORS) or not found.action.shape:
        raise SettingError(f'{path}: action: {list(found.action.sizes)} choices are not 3 for '
                           f'each of {", ".join(MOTORS)}')
