"""The settings that a run keeps in its ``config.yaml``; without PyTorch, for launch files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.run_files import write_text
from vdl_ros.common.settings import SettingError

__all__ = ['check_unfinished', 'save_settings', 'saved_settings', 'settings_of_init']

_FILE = 'config.yaml'
# What says which run it is and not how it is trained: config.yaml can start another one.
_NOT_SAVED = ('run_dir', 'resume', 'relearn', 'learner_rank', 'group_address')
# Settings of one start, which a resumed run does not keep: num_actors is how many start with it.
# The modules are what the user of a host trusts, not what a folder asks for.
_OF_A_START = (*_NOT_SAVED, 'device', 'num_actors', 'num_learners', 'init', 'env_modules')


def save_settings(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write the settings of a run as resolved, and return those that are written."""
    saved = {name: value for name, value in settings.items() if name not in _NOT_SAVED}
    write_text(folder / _FILE, yaml.safe_dump(saved, sort_keys=False))
    return saved


def saved_settings(folder: Path) -> dict[str, object]:
    """
    Return the settings of the run in ``folder``, without those of one start.

    Raises:
        SettingError: the folder has no readable config.yaml.
    """
    return _read('resume', folder)


def check_unfinished(folder: Path, total_steps: int) -> None:
    """
    Check that a run has agent steps left to make.

    Raises:
        SettingError: it has ended by ``total_steps``, and the new number is not larger.
    """
    try:
        summary = json.loads((folder / 'summary.json').read_text())
        ended, steps = summary['ended_by'], int(summary['agent_steps'])
    except (OSError, ValueError, KeyError, TypeError):
        return  # interrupted before it could write one
    if ended == 'total_steps' and steps >= total_steps:
        raise SettingError(f'total_steps: {total_steps} is not allowed with resume: {folder} has '
                           f'made {steps} agent steps and ended; a larger number goes on')


def settings_of_init(given: Mapping[str, Any]) -> dict[str, object]:
    """
    Return the settings of the run whose weights a new run starts with.

    They are empty if the user names an environment or an algorithm, or if ``init`` is not in the
    folder of a run, or is in that of a run on a robot. An attack on that run is not part of them.

    Args:
        given: settings by the user.

    Raises:
        SettingError: the folder of the checkpoint has a config.yaml that cannot be read.
    """
    path = Path(str(given.get('init') or ''))
    folder = path if path.is_dir() else path.parent
    if (not given.get('init') or given.keys() & {'env_id', 'algorithm', 'resume'}
            or not path.exists() or not (folder / _FILE).exists()):
        return {}
    settings = _read('init', folder)
    if str(settings.get('env_id', '')).startswith('robot/'):
        return {}  # a folder must not choose the robot that moves
    return {name: value for name, value in settings.items()
            if not name.startswith('adversarial_') and name != 'freeze'}


def _read(setting: str, folder: Path) -> dict[str, object]:
    try:
        content = yaml.safe_load((folder / _FILE).read_text())
    except (OSError, yaml.YAMLError):
        content = None
    if not isinstance(content, dict):
        raise SettingError(f'{setting}: {folder} holds no readable {_FILE}')
    return {name: value for name, value in content.items() if name not in _OF_A_START}
