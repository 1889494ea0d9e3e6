"""Settings of the node ``robot_state``."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting

__all__ = ['RobotStateConfig']


@dataclasses.dataclass(frozen=True)
class RobotStateConfig:
    """The node ``robot_state``."""

    source: str = setting(
        'joint_states', 'Topic of the joint positions.', choices=('joint_states', 'pose'))
    frame_prefix: str = setting('', 'Prefix of every frame.')
