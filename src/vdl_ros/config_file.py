"""A YAML file of settings by name: written by hand, or the ``config.yaml`` of a run."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, Setting, SettingError, settings_of, suggestion
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.rl.acting.actor_config import ActorConfig
from vdl_ros.rl.algorithm_config import ALGORITHM_SETTINGS
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder_config import RunFolderConfig
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['read_config', 'setting_value']

_SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
             AttackConfig, SurrogateConfig, RunConfig, RunFolderConfig)
# What a run writes of its environment beside the settings.
_NO_SETTINGS = ('environment',)


def read_config(path: Path, *more: type) -> dict[str, Scalar]:
    """
    Return the settings in a file.

    ``env_kwargs`` may be a mapping, ``env_wrappers`` and ``env_modules`` lists.

    Args:
        path: the file.
        more: dataclasses of further settings that it may have.

    Raises:
        SettingError: the file cannot be read, has a setting that does not exist, or a value that
            is not allowed.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise SettingError(f'config: {path} cannot be read: {error.strerror}') from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = ' '.join(str(error).split())[:200]
        raise SettingError(f'config: {path} is not YAML: {reason}') from None
    if not isinstance(content, dict):
        raise SettingError(f'config: {path} is not a mapping from settings to values')
    # An actor's settings have names of the learner's.
    known = settings_of(ActorConfig) | settings_of(*_SETTINGS, *more)
    found = {}
    for name, value in content.items():
        if name in _NO_SETTINGS:
            continue
        if name not in known:
            raise SettingError(f'config: {path}: {quoted(name)}: no such setting'
                               f'{suggestion(str(name), known)}')
        try:
            found[name] = setting_value(known[name], value)
        except SettingError as error:
            raise SettingError(f'config: {path}: {error}') from None
    return found


def setting_value(setting: Setting, value: object) -> Scalar:
    """
    Return a value of YAML as the setting has it; YAML reads 1e-3 as text.

    Raises:
        SettingError: a value that is not allowed.
    """
    if isinstance(value, str):
        return setting.parse(value)
    if setting.name == 'env_modules' and isinstance(value, list):
        value = ','.join(map(str, value))
    elif setting.name in ('env_kwargs', 'env_wrappers') and isinstance(value, dict | list):
        value = json.dumps(value, default=str)  # of a date
    return setting.check(value)
