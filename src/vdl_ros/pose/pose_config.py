"""What a user can say about the pose estimator."""

from __future__ import annotations

import dataclasses

from vdl_ros.settings import setting

__all__ = ['PoseConfig']


@dataclasses.dataclass(frozen=True)
class PoseConfig:
    """The node ``pose_estimator``."""

    model: str = setting(
        '', 'Model file or folder of a training run; empty: the one of this package.')
    pose_threads: int = setting(
        1, 'Threads that the network uses.', minimum=1, maximum=64)
    joint_states: bool = setting(
        False, 'Publish confident estimates on arm/joint_states as well, for a controller that '
        'has nothing else to go by.')
