"""
Folders of episodes: one bag each, with its labels; ``record_episodes`` writes them.

A folder ``demos`` holds ``demos/episode_0000``, ``demos/episode_0001`` and so on. The labels of an
episode are texts in ``custom_data`` of the bag's ``metadata.yaml``, which ``ros2 bag info`` shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from vdl_ros.bags.reader import BagError

__all__ = ['PREFIX', 'EpisodeLabels', 'find_bags', 'read_labels']

#: Begin of the name of an episode's folder; four digits or more follow.
PREFIX = 'episode_'
# Longest text of a label that is read.
_LONGEST = 1000


@dataclass(frozen=True)
class EpisodeLabels:
    """
    What a person says of an episode.

    Attributes:
        task: what the robot does, in words; '' if unknown.
        success: whether it was done; None if unknown.
        robot: name of the robot's contract; '' if unknown.
    """

    task: str = ''
    success: bool | None = None
    robot: str = ''

    def texts(self) -> dict[str, str]:
        """Return the labels for ``custom_data``."""
        return {'task': self.task, 'success': str(bool(self.success)).lower(),
                'robot': self.robot}


def find_bags(path: Path) -> list[Path]:
    """Return the bags of a folder of episodes, in their order; any other path is one bag."""
    found = [each for each in path.glob(f'{PREFIX}*')
             if each.is_dir() and each.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=lambda each: int(each.name.removeprefix(PREFIX))) or [path]


def read_labels(bag: Path) -> EpisodeLabels:
    """
    Return the labels of a bag; unknown ones if it has none.

    Raises:
        BagError: its ``metadata.yaml`` cannot be read.
    """
    file = bag / 'metadata.yaml'
    try:
        content = yaml.safe_load(file.read_text()) if file.is_file() else {}
    except (OSError, ValueError, yaml.YAMLError):
        raise BagError(f'{file} cannot be read') from None
    for name in ('rosbag2_bagfile_information', 'custom_data'):
        content = content.get(name) if isinstance(content, dict) else None
    if not isinstance(content, dict):
        return EpisodeLabels()
    task, success, robot = (
        str(content.get(name, ''))[:_LONGEST] for name in ('task', 'success', 'robot'))
    return EpisodeLabels(
        ' '.join(task.split()), {'true': True, 'false': False}.get(success.lower()), robot)
