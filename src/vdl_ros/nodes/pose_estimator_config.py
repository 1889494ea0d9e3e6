"""What a user can say about the pose estimator."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting

__all__ = ['PoseConfig']


@dataclasses.dataclass(frozen=True)
class PoseConfig:
    """The node ``pose_estimator``."""

    model: str = setting(
        '', 'Model file or folder of a training run; empty: the one of this package.')
    pose_threads: int = setting(
        1, 'Threads that the network uses.', minimum=1, maximum=64)
    joint_states: bool = setting(
        False, 'Follow the joints through what the estimates say and what the motors were told, '
        'and publish them on arm/joint_states, for a controller that has nothing else to go by.')
    joint_std: float = setting(
        0.2, 'How far off a joint that is followed may be, as a standard deviation, before '
        'nothing is published.', minimum=0.001, maximum=3.0, unit='rad')
