"""
Settings known to work: of an algorithm, of a task, and of an algorithm at a task.

``config/algorithms/<name>.yaml`` has ``settings``. ``config/tasks/*.yaml`` have ``env_ids``,
patterns as of a shell, ``settings``, and ``algorithms``, settings by algorithm. They stand, in
this order, between the defaults and what the user says.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path

import yaml

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.algorithm_config import reject_other_algorithm_settings
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['folder', 'preset', 'resolve']


def folder() -> Path:
    """
    Return the folder of the presets, ``config``: of the installed package, or of the checkout.

    Raises:
        FileNotFoundError: neither is there.
    """
    here = Path(__file__)
    candidates = [parent / 'share' / 'vdl_ros' / 'config' for parent in here.parents]
    candidates.append(here.resolve().parents[2] / 'config')
    for candidate in candidates:
        if (candidate / 'tasks').is_dir():
            return candidate
    raise FileNotFoundError('config/tasks is neither installed nor in a checkout')


def preset(env_id: str, algorithm: str) -> dict[str, object]:
    """Return the settings for both; of several tasks' files the first by name that fits."""
    found: dict[str, object] = {}
    path = folder() / 'algorithms' / f'{algorithm}.yaml'
    if path.is_file():
        found |= yaml.safe_load(path.read_text())['settings']
    for path in sorted((folder() / 'tasks').glob('*.yaml')):
        content = yaml.safe_load(path.read_text())
        if any(fnmatch.fnmatchcase(env_id, pattern) for pattern in content['env_ids']):
            found |= content['settings']
            found |= content.get('algorithms', {}).get(algorithm, {})
            break
    return found


def resolve(
    given: Mapping[str, object], saved: Mapping[str, object] | None = None,
    default_env_id: str = 'CartPole-v1',
) -> dict[str, object]:
    """
    Return what is set, on top of the defaults.

    Args:
        given: what the user says: it wins.
        saved: settings of the run that is resumed.
        default_env_id: the environment if neither names one.

    Raises:
        SettingError: a setting is given that another algorithm has, or another algorithm than
            that of the run that is resumed.
    """
    was = (saved or {}).get('algorithm')
    algorithm = str(given.get('algorithm') or was or TrainConfig.algorithm)
    if was and algorithm != was:
        raise SettingError(f'algorithm: {algorithm!r} is not allowed: the run was learned by '
                           f'{was!r}, and cannot go on with another')
    reject_other_algorithm_settings(given, algorithm)
    under = dict(saved) if saved else preset(
        str(given.get('env_id', default_env_id)), algorithm)
    return under | dict(given)
