"""Settings of the node ``pose_estimator``, and those that ``attacker`` shares."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting

__all__ = ['PoseConfig', 'PoseModelConfig']


@dataclasses.dataclass(frozen=True)
class PoseModelConfig:
    """The network of the nodes ``pose_estimator`` and ``attacker``."""

    model: str = setting('', 'Model file or folder of a training; empty: the one in this package.')
    pose_threads: int = setting(1, 'CPU threads for the network.', minimum=1, maximum=64)


@dataclasses.dataclass(frozen=True)
class PoseConfig:
    """The node ``pose_estimator``."""

    joint_states: bool = setting(
        False, 'Track the joints by poses and motor commands, and publish them on '
        'arm/joint_states.')
    joint_std: float = setting(
        0.2, 'Joint states are published while the deviation of every joint is at most this.',
        minimum=0.001, maximum=3.0, unit='rad')
