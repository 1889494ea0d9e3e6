"""
Settings known to work for a task: the files of config/tasks, chosen by environment id.

Each is a YAML file with ``env_ids``, patterns as of a shell, and ``settings``, which stand between
the defaults and what the user says.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path

import yaml

__all__ = ['folder', 'preset', 'resolve']


def folder() -> Path:
    """
    Return the folder of the presets: of the installed package, or of the checkout.

    Raises:
        FileNotFoundError: neither is there.
    """
    here = Path(__file__)
    candidates = [parent / 'share' / 'vdl_ros' / 'config' / 'tasks' for parent in here.parents]
    candidates.append(here.resolve().parents[2] / 'config' / 'tasks')
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError('config/tasks is neither installed nor in a checkout')


def preset(env_id: str) -> dict[str, object]:
    """Return the settings for an environment; of several files the first by name that fits."""
    for path in sorted(folder().glob('*.yaml')):
        content = yaml.safe_load(path.read_text())
        if any(fnmatch.fnmatchcase(env_id, pattern) for pattern in content['env_ids']):
            return dict(content['settings'])
    return {}


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
    """
    under = dict(saved) if saved else preset(str(given.get('env_id', default_env_id)))
    return under | dict(given)
