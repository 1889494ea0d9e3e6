"""
Presets: tested settings of an algorithm, of a task, and of an algorithm on a task.

``config/algorithms/<name>.yaml`` is a ROS parameter file. ``config/tasks/*.yaml`` have ``env_ids``
(shell patterns), ``settings``, ``algorithms`` (settings by algorithm), ``networks`` (settings by
network, for a network that the user names), and ``algorithm``, where another one than the default
is better. In this order they override the defaults; the user's settings override them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.resources import find_resource
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.algorithm_config import reject_other_algorithm_settings
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['folder', 'preset', 'resolve']


def folder() -> Path:
    """
    Return the folder ``config`` of the installed package, or of the checkout.

    Raises:
        FileNotFoundError: it is neither installed nor in a checkout.
    """
    return find_resource('config/tasks').parent


def preset(env_id: str, algorithm: str, network: str = '') -> dict[str, object]:
    """Return the preset settings; ``network`` is the one that the user names, if any."""
    found: dict[str, object] = {}
    path = folder() / 'algorithms' / f'{algorithm}.yaml'
    if path.is_file():
        found |= yaml.safe_load(path.read_text())['/**']['ros__parameters']
    task = _task(env_id)
    found |= task.get('settings', {})
    found |= task.get('algorithms', {}).get(algorithm, {})
    found |= task.get('networks', {}).get(network, {})
    return found


def _task(env_id: str) -> Mapping[str, Any]:
    """Return the file of a task, {} without one; of several the first by name counts."""
    for path in sorted((folder() / 'tasks').glob('*.yaml')):
        content: Mapping[str, Any] = yaml.safe_load(path.read_text())
        if any(fnmatch.fnmatchcase(env_id, pattern) for pattern in content['env_ids']):
            return content
    return {}


def resolve(
    given: Mapping[str, object], saved: Mapping[str, object] | None = None,
    default_env_id: str = EnvConfig.env_id,
) -> dict[str, object]:
    """
    Return all settings that differ from the defaults, by name.

    Args:
        given: settings by the user; they override all others.
        saved: settings of the run that is resumed.
        default_env_id: the environment if neither names one.

    Raises:
        SettingError: a setting of another algorithm is given, or another algorithm than that of
            the resumed run.
    """
    was = (saved or {}).get('algorithm')
    env_id = str(given.get('env_id', default_env_id))
    better = {} if saved else {
        name: value for name, value in _task(env_id).items() if name == 'algorithm'}
    algorithm = str(given.get('algorithm') or was or better.get('algorithm')
                    or TrainConfig.algorithm)
    if was and algorithm != was:
        raise SettingError(f'algorithm: {algorithm!r} is not allowed: the run was trained with '
                           f'{was!r} and cannot be resumed with another')
    reject_other_algorithm_settings(given, algorithm)
    base = dict(saved) if saved else (
        preset(env_id, algorithm, str(given.get('network', ''))) | better)
    return base | dict(given)
