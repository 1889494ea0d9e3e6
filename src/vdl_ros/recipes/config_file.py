"""A YAML file of settings by name: written by hand, or the ``config.yaml`` of a run."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.common.files import find_resource
from vdl_ros.common.settings import Scalar, SettingError, settings_of
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.recipes.yaml_file import YamlFile
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    ActorConfig,
    TrainConfig,
    reject_other_algorithm_settings,
)

_SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
             AttackConfig, SurrogateConfig, RunConfig, RunFolderConfig)


def read_config(path: Path, *more: type) -> dict[str, Scalar]:
    """Return the settings in a file, which may also have those of the dataclasses ``more``.

    ``env_kwargs`` may be a mapping, ``env_wrappers`` and ``env_modules`` lists. A SettingError
    names what is not allowed.
    """
    file = YamlFile(path)
    content = file.mapping((), file.content)
    # What a run writes of its environment beside the settings.
    content.pop('environment', None)
    # An actor's settings have names of the learner's.
    found = file.settings((), content, settings_of(ActorConfig) | settings_of(*_SETTINGS, *more))
    file.check('config: ')
    return found


def folder() -> Path:
    """Return the folder ``config`` of the installed package, or of the checkout."""
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
    """Return all settings that differ from the defaults, by name.

    The user's, ``given``, override all others; ``saved`` are of the run that is resumed. A
    SettingError names a setting of another algorithm, or another algorithm than the resumed run's.
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
